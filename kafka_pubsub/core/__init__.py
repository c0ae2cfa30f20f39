"""The pure core: events in, effects out. No clock, no thread, no socket, no logging, no randomness."""
