"""Who is told."""
