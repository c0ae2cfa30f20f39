"""A stream: the fetcher and the runner, and `receive`.

Begin with `stream.py`, then `runner.py`.
"""
