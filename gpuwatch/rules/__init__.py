"""What is wrong."""
