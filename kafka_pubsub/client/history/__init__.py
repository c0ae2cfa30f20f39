"""Histories of what a stream and a publisher did, for the checker of the tests.

Begin with `protocol.py`, then `recorder.py`.
"""
