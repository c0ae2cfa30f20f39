"""Dead letters and parked messages: listed, replayed, released, purged.

Begin with `replay.py`.
"""
