"""Delayed publishing, and what an operator may ask about delayed messages. The router is in `services/`."""
