"""Three brokers, four processes that multicast to eight topics; senders, sequencers and brokers are killed (-9).

`MULTICASTS=200000 pytest -m slow tests/integration/processes/test_multicast_cluster.py` for a long run.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from kafka_pubsub import PubSub
from kafka_pubsub.local.tcp_ports import free_ports
from tests.acceptance.test_seed2_multicast import parse_place
from tests.integration.processes.multicast_history import Delivered, History, Place, Published, judge
from tests.local_cluster import LocalCluster

#: Messages, and the seed of the faults.
MULTICASTS, SEED = int(os.environ.get("MULTICASTS", "3000")), 1
#: Seconds for one answer on a busy machine, and for one run: brokers that are killed hold up everything for seconds.
PATIENCE, LIMIT = 120.0, 240.0 + MULTICASTS / 10
TOPICS = [f"t{number}" for number in range(8)]
SENDERS, CLIENTS, SEQUENCERS = 4, 3, 2
#: Seconds between two faults.
BETWEEN = 6.0


class Crowd:
    """The processes, and what befalls them."""

    def __init__(self, cluster: LocalCluster, folder: Path) -> None:
        self._cluster, self._folder = cluster, folder
        # UDP ports that are free as TCP ports are nearly always free.
        self._ports = free_ports(SENDERS)
        self._made = 0
        self.senders = [self._sender(number) for number in range(SENDERS)]
        self.sequencers = [self._sequencer() for _ in range(SEQUENCERS)]

    def _start(self, *command: str) -> subprocess.Popen[bytes]:
        with (self._folder / "errors.log").open("ab") as errors:
            return subprocess.Popen([sys.executable, *command], stdout=errors, stderr=errors)

    def _sender(self, number: int) -> subprocess.Popen[bytes]:
        self._made += 1
        plan = {
            "bootstrap": self._cluster.bootstrap,
            "topics": TOPICS,
            "name": f"p{self._made}",
            "clients": CLIENTS,
            "ports": self._ports,
            "port": self._ports[number],
            "seed": SEED,
            "history": str(self._folder / f"{self._made}.history"),
        }
        return self._start("-m", "tests.integration.processes.multicaster", json.dumps(plan))

    def _sequencer(self) -> subprocess.Popen[bytes]:
        address = self._cluster.bootstrap
        return self._start("-m", "kafka_pubsub", "--bootstrap", address, "service", "sequencer")

    def kill_sender(self, number: int) -> None:
        """Kills a process that multicasts, and starts another one."""
        _kill(self.senders[number])
        self.senders[number] = self._sender(number)

    def kill_sequencer(self, number: int) -> None:
        """Kills a sequencer, and starts another one."""
        _kill(self.sequencers[number])
        self.sequencers[number] = self._sequencer()

    def history(self) -> History:
        """What the senders wrote down until now."""
        return History.read(self._folder.glob("*.history"))

    def stop_sending(self) -> None:
        """Ends the senders in order: they wait for their futures."""
        for each in self.senders:
            each.terminate()
        for each in self.senders:
            each.wait(PATIENCE)

    def close(self) -> None:
        """Leaves no process."""
        for each in (*self.senders, *self.sequencers):
            _kill(each)


def _kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


@contextmanager
def crowd(cluster: LocalCluster, folder: Path) -> Iterator[Crowd]:
    made = Crowd(cluster, folder)
    try:
        yield made
    finally:
        made.close()


class Homes:
    """What plain consumers of committed records find in the home topics."""

    def __init__(self, bootstrap: str) -> None:
        settings = {"bootstrap.servers": bootstrap, "group.id": "none", "enable.partition.eof": True}
        self._consumer = Consumer(settings)
        self._consumer.assign([TopicPartition(name, 0, 0) for name in TOPICS])
        self.found: dict[str, list[Delivered]] = {name: [] for name in TOPICS}

    def read(self, seconds: float) -> None:
        """Reads on for that long."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for record in self._consumer.consume(500, 0.2):
                if record.error() is None:
                    said = dict(record.headers() or [])["ps-clock"]
                    assert isinstance(said, bytes)
                    place = parse_place(said.decode())
                    delivered = Delivered((record.value() or b"").decode(), place)
                    self.found[record.topic() or ""].append(delivered)

    def close(self) -> None:
        """Ends the consumer."""
        self._consumer.close()


@pytest.mark.timeout(LIMIT + 4 * PATIENCE)
def test_the_order_holds_while_senders_and_sequencers_and_brokers_are_killed(tmp_path: Path) -> None:
    chances, killed = random.Random(SEED), {"sender": 0, "sequencer": 0, "broker": 0}
    end = time.monotonic() + LIMIT
    with LocalCluster(3) as cluster:
        with PubSub(cluster.bootstrap) as ps:
            for name in TOPICS:
                ps.create_topic(name, causal=True)
        with crowd(cluster, tmp_path) as running:
            faults = ["sender", "sequencer", "broker"]
            while len(running.history().sent_at) < MULTICASTS or not all(killed.values()):
                assert time.monotonic() < end, f"too slow: {len(running.history().sent_at)} sent, {killed}"
                time.sleep(BETWEEN)
                fault = faults[sum(killed.values()) % 3]
                killed[fault] += 1
                if fault == "sender":
                    running.kill_sender(chances.randrange(SENDERS))
                elif fault == "sequencer":
                    running.kill_sequencer(chances.randrange(SEQUENCERS))
                else:
                    node = chances.choice(cluster.nodes)
                    cluster.kill(node)
                    time.sleep(chances.random() * 3)
                    cluster.start(node)
                    cluster.wait_in_sync(PATIENCE)
            running.stop_sending()
            history, homes = running.history(), Homes(cluster.bootstrap)
            end = time.monotonic() + PATIENCE
            homes.read(3)
            while history.missing(homes.found) and time.monotonic() < end:
                homes.read(1)
            homes.close()
    print(f"{len(history.sent_at)} of {len(history.published)} messages sent, killed: {killed}")
    assert judge(history, homes.found) == []


# -- the judge notices each fault -----------------------------------------------------------------------------------

AT_A, AT_B = ((1, "a", 0), (2, "b", 0))


def judged(
    homes: dict[str, Sequence[tuple[str, Place]]], after: Sequence[str] = (), second_at: float = 3
) -> list[str]:
    """Judges two messages to two topics; the future of the first resolved at second 2, that of the other at 5."""
    history = History(
        {
            "one": Published(1, "p", 1, ["a", "b"], []),
            "two": Published(second_at, "q", 1, ["a", "b"], after),
        },
        {"one": 2, "two": 5},
        {"one": AT_A, "two": AT_B},
    )
    return judge(history, {name: [Delivered(*each) for each in home] for name, home in homes.items()})


RIGHT = [("one", AT_A), ("two", AT_B)]


def test_the_judge_finds_nothing_where_all_is_well() -> None:
    assert judged({"a": RIGHT, "b": RIGHT}, after=["one"]) == []


@pytest.mark.parametrize(
    ("home", "problem"),
    [
        (RIGHT[:1], "two isn't at all its topics"),
        ([*RIGHT, RIGHT[1]], "twice"),
        ([*RIGHT, ("three", (3, "a", 0))], "three wasn't published to it"),
        ([("one", AT_A), ("two", (3, "b", 0))], "two has two timestamps"),
        (RIGHT[::-1], "comes behind two at"),
        (RIGHT[::-1], "two was published when one was sent, and comes before it"),
    ],
)
def test_the_judge_notices_a_home_that_is_wrong(home: list[tuple[str, Place]], problem: str) -> None:
    assert problem in "\n".join(judged({"a": RIGHT, "b": home}))


def test_the_judge_notices_an_effect_before_the_cause_of_which_it_was_told() -> None:
    home = [("two", (1, "a", 0)), ("one", (2, "b", 0))]
    found = judged({"a": home, "b": home}, after=["one"], second_at=1.5)
    assert "b: two comes before its cause one" in found


def test_the_judge_notices_that_a_sender_overtook_itself() -> None:
    history = History(
        {"one": Published(1, "p", 1, ["a"], []), "two": Published(1, "p", 2, ["a"], [])},
        {},
        {},
    )
    home = [Delivered("two", AT_A), Delivered("one", AT_B)]
    assert judge(history, {"a": home}) == ["a: one comes behind what its sender published later, or twice"]
