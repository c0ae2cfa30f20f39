"""A process that looks at a round's subscription, over and over, and writes down how far behind it is.

It is a process of its own because asking is part of what is tested: what takes a process down when brokers have
changed places (it has happened) takes this one down, and is told, not the test run.
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from kafka_pubsub import PubSub, PubSubError
from kafka_pubsub.log.kafka.backend import KafkaBackend
from kafka_pubsub.repartition.drain import Drain

__all__ = ["Sight", "last_sight"]

#: Seconds between looks.
EVERY = 0.2


@dataclass(frozen=True)
class Sight:
    """What was seen last: messages that aren't finished by what is committed, retry topic included; None: no answer."""

    left: int | None
    text: str


def last_sight(path: Path) -> Sight | None:
    """What the watcher wrote last; None before its first look."""
    try:
        return Sight(**json.loads(path.read_text("utf-8")))
    except FileNotFoundError:
        return None


def _look(ps: PubSub, backend: KafkaBackend, drain: Drain, subscription: str) -> Sight:
    state = ps.subscription(subscription).state()
    record = backend.catalog.subscriptions()[subscription]
    left = drain.left(record, backend.admin.last_stable_offsets(record.topic))
    return Sight(
        state.lag + left,
        f"lag by partition {state.lag_by_partition}, {state.members} members, {left} by positions and maps",
    )


def main() -> None:
    """The process: address, subscription, where to write. It ends when whoever started it does."""
    bootstrap, subscription, told = sys.argv[1:]
    path, parent = Path(told), os.getppid()
    backend = KafkaBackend(bootstrap, {})
    drain = Drain(backend)
    with PubSub(bootstrap) as ps:
        while os.getppid() == parent:
            try:
                sight = _look(ps, backend, drain, subscription)
            except PubSubError as error:
                sight = Sight(None, f"the lag can't be read: {error}")
            scratch = path.with_suffix(".tmp")
            scratch.write_text(json.dumps(asdict(sight)), "utf-8")
            scratch.replace(path)
            time.sleep(EVERY)


if __name__ == "__main__":
    main()
