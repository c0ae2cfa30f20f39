"""Routers that share the delays, and the growth of the delays while messages wait. A row has a broker of its own."""

from __future__ import annotations

import multiprocessing
import time
from datetime import UTC, datetime, timedelta
from multiprocessing.connection import Connection

from kafka_pubsub import DelayRouter, PubSub
from kafka_pubsub.delays.declaration import DelayDeclaration
from kafka_pubsub.local.broker import LocalKafka
from tests.benchmarks.figures import percentile
from tests.benchmarks.row import Measured, say
from tests.integration.delays.growing import Routers, Sent, count_wrong, lateness, publish
from tests.integration.delays.home import Home
from tests.support import until

__all__ = ["growing", "shared"]

_PARTITIONS, _PATIENCE = 12, 600.0
_UNLIMITED = 1e9
BODY = bytes(100)


def shared(messages: int, routers: int, wait: float) -> Measured:
    """Messages that are due at one time, `wait` seconds after the first was published: how fast they come home."""
    context = multiprocessing.get_context("spawn")
    with LocalKafka() as broker, PubSub(broker.bootstrap) as ps:
        topic = ps.create_topic("home", partitions=_PARTITIONS)
        ps._cluster.topology.apply(DelayDeclaration(tiers=8, partitions=_PARTITIONS))
        pipes = [context.Pipe() for _ in range(routers)]
        running = [
            context.Process(target=_route, args=(broker.bootstrap, theirs), daemon=True)
            for _, theirs in pipes
        ]
        for process in running:
            process.start()
        until(lambda: ps.delays.routers() == routers, "all routers are there", _PATIENCE)
        due = datetime.now(UTC) + timedelta(seconds=wait)
        for number in range(messages):
            topic.publish(BODY, ordering_key=f"k{number % 1000}", deliver_at=due)
        topic.flush(_PATIENCE)
        if datetime.now(UTC) > due:
            raise RuntimeError(f"publishing took longer than {wait} seconds")
        say("all wait")
        admin = ps._cluster.backend.admin
        until(lambda: sum(admin.last_stable_offsets("home").values()) >= messages, "all are home", _PATIENCE)
        seconds = (datetime.now(UTC) - due).total_seconds()
        counts = []
        for ours, _ in pipes:
            ours.send("end")
            counts.append(int(ours.recv()))
        for process in running:
            process.join(30)
    return {
        "rate": messages / seconds,
        "idle": sum(not count for count in counts),
        "note": "each brought home " + ", ".join(f"{count:,}" for count in sorted(counts)),
    }


def _route(bootstrap: str, pipe: Connection) -> None:
    with PubSub(bootstrap) as ps, DelayRouter(ps, max_rate=_UNLIMITED) as router:
        pipe.recv()
        pipe.send(router.metrics().get("home", 0))


def growing(messages: int, first: float, spread: float, later: int) -> Measured:
    """Messages wait in 2 partitions, of three routers two are killed, and the delays get 12."""
    with LocalKafka() as broker, PubSub(broker.bootstrap) as ps:
        topic = ps.create_topic("home", partitions=3)
        topology = ps._cluster.topology
        topology.apply(DelayDeclaration(tiers=8, partitions=2))
        with Routers(ps) as routers:
            for _ in range(3):
                routers.start()
            until(lambda: ps.delays.routers() == 3, "all routers are there", _PATIENCE)
            home, sent, newer = Home(ps, topic), Sent(), Sent()
            publish(topic, messages, sent, first, spread)
            say("they wait")
            routers.started[0].kill()
            began = time.monotonic()
            topology.apply(DelayDeclaration(tiers=8, partitions=_PARTITIONS))
            took = time.monotonic() - began
            ps._cluster.delayed.publisher.renew()
            publish(topic, later, newer, 1, first + spread)
            routers.started[1].kill()
            until(lambda: home.count() >= len(sent) + len(newer), "all are home", _PATIENCE)
            last = time.time() - max(due for _, due, _ in (sent | newer).values()) / 1000
            numbered = {each: (key, due, n + messages) for each, (key, due, n) in newer.items()}
            wrong = count_wrong(home, sent | numbered)
        before, after = lateness(home, sent), lateness(home, newer)
    return {
        **wrong,
        "apply_s": took,
        "last_s": last,
        "p50_ms": percentile(before, 50),
        "p99_ms": percentile(before, 99),
        "newer_p50_ms": percentile(after, 50),
        "newer_p99_ms": percentile(after, 99),
    }
