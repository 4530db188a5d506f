"""What is wrong: TOML rules (`alerts/*.toml`) -> a pure `step` over Views -> Transitions -> Incidents.

A new rule is a table in `alerts/`, no Python. `language` parses a condition, `judge` holds it against what is known of one
target, `step` moves one state, `engine` does that for every rule and target, `incidents` tells the story to people, and
`promql` writes the same rules for Prometheus.
"""
