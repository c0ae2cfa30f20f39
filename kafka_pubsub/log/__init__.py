"""What the library asks of a log, and the values and helpers that all of its users share.

Begin with `ports.py`; `kafka/` and `memory/` are the two logs.
"""
