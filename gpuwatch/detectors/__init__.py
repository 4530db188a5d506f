"""What the numbers mean."""
