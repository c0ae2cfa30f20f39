"""Histories of what a stream and a publisher did, as lines of JSON, for the checker of the tests or for you.

Begin with `protocol.py`, then `recorder.py`.
"""
