"""Rounds with real processes on a real cluster while something is broken on purpose; see `__main__`."""
