"""The publisher and the subscriber; they use a log only through `ports.py`."""
