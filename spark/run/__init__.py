"""Runs a streaming job: its options, its checkpoint, its progress and its end."""
