"""The nouns: frozen records without I/O that every room shares.

A Metric is one number of a Subject; a Target is one thing of a Subject (a GPU, a disk); a Reading is one look at one
Target; a View is what the board knows now; Transition, Incident, Delivery and Outcome are how a verdict reaches a person.
A new noun gets a file of its own here only when two rooms need it.
"""
