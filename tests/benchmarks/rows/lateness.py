"""How late delayed messages come home, at a fixed rate: from the instant each is due until a plain consumer has it.

The row's process consumes; publisher and router run in processes of their own. One machine, one clock
(`time.time_ns`). Messages that are due during the warm-up aren't measured, so that as many messages wait as ever will.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from confluent_kafka import Consumer

from kafka_pubsub import PubSub
from tests.benchmarks.cluster import CONSUMER, create_with_us
from tests.benchmarks.data import delays_ms, head
from tests.benchmarks.figures import percentile
from tests.benchmarks.open_loop import due_ms
from tests.benchmarks.row import Measured, say

__all__ = ["routed", "start_router", "wait_for_routers"]

#: Seconds for a router to join, and for messages under way when the last measured message is due.
_READY_S, _REST_S = 60.0, 10.0
#: Seconds between two reports of progress.
_SAY_S = 10.0
_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


def routed(
    bootstrap: str, group: str, rate: int, warmup_seconds: int, seconds: int, longest_ms: int, distinct: int
) -> Measured:
    """Our publisher and `kafka-pubsub service router` at their defaults."""
    topic = f"{group}-own"
    create_with_us(bootstrap, topic, [])
    total = rate * (warmup_seconds + seconds)
    with _router(bootstrap) as router:
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic, **CONSUMER})
        consumer.subscribe([topic])
        while not consumer.assignment():
            consumer.poll(0.1)
        numbers = {"rate": rate, "total": total, "distinct": distinct, "longest_ms": longest_ms}
        publisher = _publisher({"client": "ours", "bootstrap": bootstrap, "topic": topic, **numbers})
        began, busy = time.time(), _cpu_seconds(router.pid)
        until = began + warmup_seconds + seconds + _REST_S
        found = _read(consumer, until, total)
        used = (_cpu_seconds(router.pid) - busy) / (time.time() - began)
        consumer.close()
        late = json.loads(publisher.communicate(timeout=_REST_S)[0].strip().splitlines()[-1])
    interval, start = 1_000_000_000 // rate, late["start_ns"]
    first, last = (start // 1_000_000 + 1000 * after for after in (warmup_seconds, warmup_seconds + seconds))
    dues = {
        start + place * interval: due_ms(start + place * interval, delay)
        for place, delay in enumerate(delays_ms(total, longest_ms))
    }
    return {
        **_judge([(at, dues[intended]) for at, intended in found], dues.values(), first, last),
        "router_cpu": used,
        "note": f"the router used {used:.0%} of a core; the publisher: p99 {late['late_p99_ms']:.1f} ms after its "
        "timetable",
    }


def _judge(found: Sequence[tuple[int, int]], dues: Iterable[int], first: int, last: int) -> Measured:
    """`found`: when each came, in nanoseconds, and when it was due; messages due from `first` to `last` count."""
    late = sorted(at / 1e6 - due for at, due in found if first <= due < last)
    return {
        "p50_ms": percentile(late, 50),
        "p99_ms": percentile(late, 99),
        "max_ms": late[-1],
        "early": sum(at / 1e6 < due for at, due in found),
        "lost": sum(first <= due < last for due in dues) - len(late),
        "messages": len(late),
    }


def _read(consumer: Consumer, until: float, total: int) -> list[tuple[int, int]]:
    """When each message came, and when it was meant to be sent, both in nanoseconds."""
    found: list[tuple[int, int]] = []
    say_at = time.time() + _SAY_S
    while (now := time.time()) < until and len(found) < total:
        messages = consumer.consume(500, 0) or consumer.consume(1, 0.05)
        at = time.time_ns()
        found += [(at, head(message.value() or b"").intended_ns) for message in messages]
        if now >= say_at:
            say_at = now + _SAY_S
            say(f"{len(found):,} of {total:,} are home")
    return found


def _publisher(wanted: dict[str, str | int]) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.benchmarks.open_loop", json.dumps(wanted)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def start_router(bootstrap: str) -> subprocess.Popen[bytes]:
    """Starts `kafka-pubsub service router` in a process of its own."""
    command = [sys.executable, "-m", "kafka_pubsub", "--bootstrap", bootstrap, "service", "router"]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL)


def wait_for_routers(bootstrap: str, count: int) -> None:
    """Waits until so many routers share the work."""
    end = time.monotonic() + _READY_S
    with PubSub(bootstrap) as pubsub:
        while pubsub.delays.routers() < count:
            if time.monotonic() > end:
                raise RuntimeError(f"{pubsub.delays.routers()} of {count} routers after {_READY_S:.0f} s")
            time.sleep(0.1)


@contextlib.contextmanager
def _router(bootstrap: str) -> Iterator[subprocess.Popen[bytes]]:
    router = start_router(bootstrap)
    try:
        wait_for_routers(bootstrap, 1)
        yield router
    finally:
        router.terminate()
        router.wait(_READY_S)


def _cpu_seconds(process: int) -> float:
    """Processor time of a process; 0 where that can't be seen."""
    stat = Path(f"/proc/{process}/stat")
    if not stat.exists():
        return 0.0
    fields = stat.read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_A_SECOND
