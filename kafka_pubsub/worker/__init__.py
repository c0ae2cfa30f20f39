"""`kafka-pubsub worker`: the apps and the services that a file names, each kept running."""

from __future__ import annotations

__all__: list[str] = []
