"""The job `replay`, and its plan."""
