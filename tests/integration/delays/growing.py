"""What the test and the benchmark of growing delays share: routers in processes, messages, and what went wrong."""

from __future__ import annotations

import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from kafka_pubsub import PubSub, Topic
from tests.integration.delays.home import Home

__all__ = ["Routers", "Sent", "count_wrong", "lateness", "publish"]

#: By the id of a message: its key, when it is due in milliseconds, and its number.
Sent = dict[str, tuple[str, int, int]]

#: Milliseconds: clocks are read to the millisecond.
_CLOCK = 2


class Routers:
    """Routers in processes of their own."""

    def __init__(self, ps: PubSub) -> None:
        self._command = [sys.executable, "-m", "kafka_pubsub", "--bootstrap", ps._cluster.backend.address]
        self.started: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        self.started.append(subprocess.Popen([*self._command, "service", "router"]))

    def __enter__(self) -> Routers:
        return self

    def __exit__(self, *error: object) -> None:
        for process in self.started:
            process.kill()
            process.wait()


def publish(topic: Topic, count: int, sent: Sent, first: float, spread: float) -> None:
    """Publishes messages that are due `first` seconds from now at least, in no order."""
    now = datetime.now(UTC).replace(microsecond=0)
    futures = []
    keys = max(40, count // 100)
    for n in range(len(sent), len(sent) + count):
        at = now + timedelta(seconds=first, milliseconds=n * 7919 % round(spread * 1000))
        key = f"k{n % keys}"
        due = round(at.timestamp() * 1000)
        futures.append((topic.publish(b"%d" % n, ordering_key=key, deliver_at=at), (key, due, n)))
    topic.flush(120)
    sent.update((future.result(), said) for future, said in futures)


def count_wrong(home: Home, sent: Sent) -> Mapping[str, int]:
    """Returns how many messages are lost, doubled, early, and how many keys aren't in the order of due times."""
    ids = _ids(home)
    by_key: dict[str, list[tuple[int, int]]] = defaultdict(list)
    early = 0
    for (record, read_at), message_id in zip(home.records, ids, strict=True):
        key, due, number = sent[message_id]
        early += read_at * 1000 < due - _CLOCK
        assert record.key() == key.encode()
        by_key[key].append((due, number))
    return {
        "lost": len(set(sent) - set(ids)),
        "doubled": len(ids) - len(set(ids)),
        "early": early,
        "disordered": sum(found != sorted(found) for found in by_key.values()),
    }


def lateness(home: Home, sent: Sent) -> list[float]:
    """Returns by how many milliseconds each of these messages was late, sorted."""
    found = zip(home.records, _ids(home), strict=True)
    return sorted(read_at * 1000 - sent[each][1] for (_, read_at), each in found if each in sent)


def _ids(home: Home) -> list[str]:
    return [(dict(record.headers() or ())["ps-id"] or b"").decode() for record, _ in home.records]
