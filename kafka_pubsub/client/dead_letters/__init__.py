"""Lists, replays, releases and purges dead letters and parked messages.

Begin with `replay.py`.
May import, beside top modules: `client.admin`, `client.assignment`, `client.retry`, `core.commit`, `core.retry`.
"""
