"""The client over a Kafka in memory, on a virtual clock, by a seeded schedule: `python -m tests.simulation`."""
