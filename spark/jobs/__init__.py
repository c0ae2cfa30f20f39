"""Thin mains: options in, transforms, a report out. `job.py` tells what a job is."""
