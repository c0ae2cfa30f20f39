"""The pure core: events in, effects out. It has no clock, thread, socket, logging or randomness."""
