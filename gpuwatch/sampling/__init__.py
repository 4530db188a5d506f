"""Readings on time: workers under supervision, the board, the schedule."""
