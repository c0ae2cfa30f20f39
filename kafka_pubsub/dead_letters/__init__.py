"""Lists, replays, releases and purges dead letters and parked messages.

Begin with `replay.py`.
"""
