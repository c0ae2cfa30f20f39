"""The job `archive`, and its table."""
