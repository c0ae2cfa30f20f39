"""Members come and go, 1 to 4 to 2, in an open loop: how long any key stands still, and how much is delivered again.

A key's stall is the longest time from the instant a message was meant to be sent to its first start. Every member
notes its deliveries in a diary that survives its end; all diaries together are judged at the end.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tests.benchmarks import journal
from tests.benchmarks.cluster import create_with_us
from tests.benchmarks.row import Measured, say

__all__ = ["Event", "Result", "judge", "members"]

# The share of first deliveries that is nacked, so that transactions are always near.
NACKS = 0.01
# The promise: commits at most this far behind.
COMMIT_LAG_NS = 200_000_000
# Seconds that the last members have to finish all messages.
REST_S = 60.0
# Nothing written for so long: everything has been delivered. A killed member's partitions come back after its session.
QUIET_S = 15.0


class Event(NamedTuple):
    """The notes of a member."""

    time_ns: int
    kind: int
    key: int
    place: int
    member: int


@dataclass
class Result:
    """All diaries together."""

    stall_s: float = 0.0
    redelivered: int = 0
    excess: int = 0
    """Redeliveries of what was acked: in peace, or longer than the lag before its member was killed."""
    lost: int = 0
    disordered: int = 0
    examples: list[str] = field(default_factory=list)


def judge(
    events: Iterable[Event], killed: Mapping[int, int], intended: Mapping[int, int] | range, lag: int
) -> Result:
    """`killed`: when a member was, in ns; `intended`: when each place was meant to be sent."""
    judged = Result()
    last: dict[int, Event] = {}
    highest: dict[int, int] = {}
    acked: set[int] = set()
    for event in sorted(events):
        before = last.get(event.place)
        if event.kind == journal.START:
            if before is None:
                judged.stall_s = max(judged.stall_s, (event.time_ns - intended[event.place]) / 1e9)
                if event.place < highest.get(event.key, -1):
                    judged.disordered += 1
                highest[event.key] = max(event.place, highest.get(event.key, -1))
            elif before.kind != journal.NACK:
                judged.redelivered += 1
                _excess(judged, before, event, killed, lag)
        elif event.kind == journal.ACK:
            acked.add(event.place)
        last[event.place] = event
    judged.lost = len(intended) - len(acked)
    return judged


def _excess(judged: Result, before: Event, event: Event, killed: Mapping[int, int], lag: int) -> None:
    end = killed.get(before.member)
    in_flight = before.kind == journal.START or (end is not None and before.time_ns >= end - lag)
    if not in_flight:
        judged.excess += 1
        judged.examples.append(
            f"{event.place} of key {event.key} again with member {event.member}, acked by {before.member} "
            f"{(event.time_ns - before.time_ns) / 1e6:.0f} ms before"
        )


def members(bootstrap: str, group: str, rate: int, distinct: int, step: float, kill: bool) -> Measured:
    """A single member, then another every `step` seconds up to four, then two go, in peace or by kill -9."""
    topic = f"{group}-own"
    create_with_us(bootstrap, topic, [topic])
    total = round(rate * step * 7)
    with tempfile.TemporaryDirectory(prefix="kafka-pubsub-bench-") as folder:
        group_of = _Members({"bootstrap": bootstrap, "group": topic, "records": 6 * total}, Path(folder))
        try:
            group_of.join()
            group_of.await_first(bootstrap, topic, rate)
            publisher = _publisher(bootstrap, topic, rate, total, distinct)
            for _ in range(3):
                time.sleep(step)
                group_of.join()
            for inside in (False, True):
                time.sleep(step)
                group_of.leave(kill=kill, inside=inside)
            output, _ = publisher.communicate(timeout=step * 7 + REST_S)
            group_of.finish()
        finally:
            group_of.kill_all()
        start = json.loads(output.strip().splitlines()[-1])["start_ns"]
        interval = 1_000_000_000 // rate
        intended = range(start, start + total * interval, interval)
        judged = judge(group_of.events(), group_of.killed, intended, COMMIT_LAG_NS)
    return {
        "stall_s": judged.stall_s,
        "redelivered": judged.redelivered,
        "excess": judged.excess,
        "lost": judged.lost,
        "disordered": judged.disordered,
        "note": "; ".join(judged.examples[:3]),
    }


def _publisher(bootstrap: str, topic: str, rate: int, total: int, distinct: int) -> subprocess.Popen[str]:
    wanted = {"client": "raw", "bootstrap": bootstrap, "topic": topic}
    numbers = {"rate": rate, "total": total, "distinct": distinct}
    command = [sys.executable, "-m", "tests.benchmarks.open_loop", json.dumps({**wanted, **numbers})]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


class _Members:
    """The processes, each with its diary."""

    def __init__(self, wanted: Mapping[str, str | int], folder: Path) -> None:
        self._wanted = wanted
        self._folder = folder
        self._all: list[subprocess.Popen[bytes]] = []
        self._running: list[int] = []
        #: When each member was killed, ns since 1970.
        self.killed: dict[int, int] = {}

    def _diary(self, number: int) -> Path:
        return self._folder / f"{number}.diary"

    def join(self) -> None:
        """Starts another member."""
        number = len(self._all)
        say(f"member {number} joins")
        wanted = {**self._wanted, "diary": str(self._diary(number)), "nacks": NACKS}
        command = [sys.executable, "-m", "tests.benchmarks.member", json.dumps(wanted)]
        self._all.append(subprocess.Popen(command))
        self._running.append(number)

    def await_first(self, bootstrap: str, topic: str, rate: int) -> None:
        """Waits until the first member has its partitions: starting up is nobody's stall."""
        from confluent_kafka import ConsumerGroupState
        from confluent_kafka.admin import AdminClient

        admin, until = AdminClient({"bootstrap.servers": bootstrap}), time.monotonic() + 60
        while time.monotonic() < until:
            found = admin.describe_consumer_groups([topic])[topic].result()
            if found.state == ConsumerGroupState.STABLE:
                time.sleep(1.0)
                return
            time.sleep(0.1)
        raise RuntimeError("the first member didn't get its partitions within 60 s")

    def leave(self, *, kill: bool, inside: bool) -> None:
        """The oldest goes; `inside`: killed inside a transaction."""
        number = self._running.pop(0)
        say(f"member {number} {'is killed' if kill else 'goes'}")
        process = self._all[number]
        if not kill:
            process.terminate()
            if process.wait(REST_S):
                raise RuntimeError(f"member {number} ended with {process.returncode} after SIGTERM")
            return
        self.killed[number] = time.time_ns()
        os.kill(process.pid, signal.SIGUSR1 if inside else signal.SIGKILL)
        process.wait(REST_S)
        if inside:  # the member was alive until its next transaction
            self.killed[number] = max(event.time_ns for event in self._events_of(number))

    def finish(self) -> None:
        """Until nothing more comes; then the others go in peace."""
        say("waiting until nothing more comes")
        until, before, quiet_since = time.monotonic() + REST_S, -1, time.monotonic()
        while time.monotonic() - quiet_since < QUIET_S and time.monotonic() < until:
            time.sleep(0.2)
            now = sum(journal.written(self._diary(number)) for number in range(len(self._all)))
            if now != before:
                before, quiet_since = now, time.monotonic()
        while self._running:
            self.leave(kill=False, inside=False)

    def kill_all(self) -> None:
        """Whatever still runs."""
        for process in self._all:
            process.kill()
            process.wait()

    def _events_of(self, number: int) -> Iterator[Event]:
        for kind, key, place, time_ns in journal.read(self._diary(number)):
            yield Event(time_ns, kind, key, place, number)

    def events(self) -> Iterator[Event]:
        """All diaries."""
        for number in range(len(self._all)):
            yield from self._events_of(number)
