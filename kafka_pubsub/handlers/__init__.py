"""Handlers: functions that get messages as models, with what follows from a return or an exception (docs/handlers.md).

`app.py` is the entry: it declares handlers, and starts, tests and stops them. It uses the client as a user does, and
nothing of the client imports this folder.
"""
