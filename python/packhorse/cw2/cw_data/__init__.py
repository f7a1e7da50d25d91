"""What experiments log, and how it is loaded again."""
