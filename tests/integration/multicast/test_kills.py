"""Sequencers, senders and the broker are killed while multicasts flow: nothing is lost, doubled, torn or out of order.

Each test reads the logs of the home topics at the end, as a consumer of committed records does, and compares them with
what was sent, what the senders were told, and with each other.
"""

from __future__ import annotations

import contextlib
import itertools
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager

import pytest

from kafka_pubsub import DeadlineExceeded, PubSub
from kafka_pubsub.local.broker import LocalKafka
from kafka_pubsub.multicast.future import Sent
from kafka_pubsub.multicast.multicast import Multicast
from kafka_pubsub.multicast.publisher import sequencer_watch
from kafka_pubsub.multicast.service import Sequencer
from tests.acceptance.test_multicast import Logs
from tests.causal import PATIENCE, make_topics
from tests.integration.multicast.killed import body, some_of
from tests.support import until

#: The topics of a test.
LETTERS = "abcd"
#: Seconds within which another sequencer goes on: those of the group's session and of the transaction, and as many
#: usual receipts as follow each other meanwhile; on a busy machine each receipt takes longer.
TAKEOVER, RECEIPTS = 8.0, 10
#: Seconds until traffic flows, and goes on, on the busiest machine: there a receipt takes seconds, and one follows the
#: other.
BUSY = 150.0
#: Receipts that are waited for before something is killed.
ENOUGH = 40
#: Messages of the flow that wait at the same time. Each goes to other topics, so it waits for the receipt of the one
#: before, and 30 s at most for all of them.
FLOWING = 4


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalKafka]:
    """A broker of these tests' own: sequencers serve all causal topics of a cluster."""
    with LocalKafka() as running:
        yield running


@contextmanager
def child(broker: LocalKafka, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A sequencer or a sender in a process of its own (`killed.py`)."""
    command = [sys.executable, "-m", "tests.integration.multicast.killed", broker.bootstrap, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


class Traffic:
    """Two publishers. One sends up to 20 messages a second; the other reacts, by a side channel, to what is sent."""

    def __init__(self, one: PubSub, two: PubSub, names: Sequence[str]) -> None:
        self._one, self._two, self._names = one, two, names
        self._ending = threading.Event()
        self._threads = [threading.Thread(target=work) for work in (self._flow, self._react)]
        #: By the body: the topics, when it was published, and when it had its place.
        self.sent: dict[bytes, tuple[list[str], float]] = {}
        self.told: dict[bytes, float] = {}
        self.by_body: dict[bytes, Future[Sent]] = {}

    def __enter__(self) -> Traffic:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join()

    def settle(self) -> None:
        """Waits for all that was sent; on a busy machine a message may be without its place for so long."""
        for future in self.by_body.values():
            error = future.exception(PATIENCE)
            assert error is None or "unknown whether it is delivered" in str(error)

    def usual(self, until: float) -> float:
        """Returns the median time of a receipt until then."""
        told = [(at, at - self.sent[data][1]) for data, at in list(self.told.items())]
        return statistics.median(took for at, took in told if at < until)

    def _publish(self, ps: PubSub, prefix: str, number: int) -> Future[Sent]:
        data, topics = body(prefix, number), some_of(self._names, number)
        self.sent[data] = topics, time.time()
        future = ps.publish_multi(topics, data)
        future.add_done_callback(lambda _: self.told.setdefault(data, time.time()))
        self.by_body[data] = future
        return future

    def _flow(self) -> None:
        number, free = 0, threading.Semaphore(FLOWING)
        while not self._ending.wait(0.05):
            if free.acquire(timeout=0.1):
                future = self._publish(self._one, "flow", number)
                future.add_done_callback(lambda _: free.release())
                number += 1

    def _react(self) -> None:
        number = 0
        while not self._ending.is_set():
            self._publish(self._one, "cause", number).exception(PATIENCE)
            self._publish(self._two, "effect", number).exception(PATIENCE)
            number += 1


def check(
    broker: LocalKafka,
    names: Sequence[str],
    sent: Mapping[bytes, Sequence[str]],
    told: Sequence[bytes] | set[bytes],
) -> Logs:
    """Judges the home topics while a sequencer still runs.

    Each message is at all its topics or at none, once; what its sender was told is there; what one sender sent is in
    its order; all topics have a single order, which is that of the timestamps; effects come after their causes.
    """
    logs = Logs(broker, names, {data: sent[data] for data in told})
    found_somewhere = {data for found in logs.bodies.values() for data in found}
    assert found_somewhere <= set(sent)
    logs = Logs(broker, names, {data: sent[data] for data in found_somewhere})
    logs.check_one_order()
    everything = {data for found in logs.bodies.values() for data in found}
    assert everything <= set(sent)
    assert set(told) <= everything, "a sender was told of a message that isn't there"
    for name, found in logs.bodies.items():
        assert len(found) == len(set(found)), "doubled"
        assert set(found) == {data for data in everything if name in sent[data]}, "torn"
        at = {data: place for place, data in enumerate(found)}
        for prefix in {data.split()[0] for data in found}:
            mine = [int(data.split()[1]) for data in found if data.split()[0] == prefix]
            assert mine == sorted(mine), "what was published later comes later"
        for data in found:
            effect = data.replace(b"cause", b"effect")
            assert effect == data or effect not in at or at[data] < at[effect]
    return logs


def test_without_a_sequencer_the_future_says_so_and_the_message_is_delivered_later(
    broker: LocalKafka, ps: PubSub, names: list[str]
) -> None:
    usual = ps._cluster.multicast
    impatient = Multicast(ps._cluster.backend, usual._find, sequencer_watch(), timeout=3.0)
    with contextlib.closing(impatient):
        begun = time.monotonic()
        staged = impatient.publish(names, b"flow 0", None, None)
        behind = impatient.publish(names[:2], b"flow 1", None, None)
        with pytest.raises(
            DeadlineExceeded, match=r"is staged .* is a sequencer running\? .*service sequencer"
        ):
            staged.result(PATIENCE)
        assert time.monotonic() - begun > 2.5
        with pytest.raises(DeadlineExceeded, match=r"never delivered.*publish it again"):
            behind.result(PATIENCE)
        sent = {b"flow 0": names, b"flow 1": names[:2]}
        with Sequencer(ps):
            # Held up by the first one until that has its place, which a busy machine may not give in 3 s.
            for number in itertools.count(2):
                sent[body("flow", number)] = names[:2]
                last = impatient.publish(names[:2], body("flow", number), None, None)
                if last.exception(PATIENCE) is None:
                    break
            logs = check(broker, names, sent, {b"flow 0", body("flow", number)})
    assert all(b"flow 1" not in found for found in logs.bodies.values())


def test_another_sequencer_goes_on_after_one_was_killed() -> None:
    """Each has two of the topics, and most messages go to topics of both."""
    with (
        LocalKafka() as broker,
        PubSub(broker.bootstrap) as ps,
        PubSub(broker.bootstrap) as other,
        Sequencer(ps) as sequencer,
    ):
        names = make_topics(ps, LETTERS)
        with child(broker, "sequencer") as killed:
            until(lambda: sequencer.health().partitions == 2)
            with Traffic(ps, other, names) as traffic:
                until(lambda: len(traffic.told) > ENOUGH, "traffic", BUSY)
                killed.kill()
                killed_at = time.time()
                until(lambda: any(at > killed_at for _, at in traffic.sent.copy().values()))
                until(lambda: goes_on(traffic, killed_at) is not None, "a place for each topic", BUSY)
            traffic.settle()
        took, usual = goes_on(traffic, killed_at) or 0.0, traffic.usual(killed_at)
        sent = {data: topics for data, (topics, _) in traffic.sent.items()}
        check(broker, names, sent, set(sent))
    print(f"went on after {took} s; a receipt took {usual} s before")
    assert took <= TAKEOVER + RECEIPTS * usual


def goes_on(traffic: Traffic, killed_at: float) -> float | None:
    """Returns after how many seconds each topic had got something that was published after the kill; None: not yet."""
    sent = traffic.sent.copy()  # which other threads write
    names = {name for topics, _ in sent.values() for name in topics}
    first: dict[str, float] = {}
    for data, at in list(traffic.told.items()):
        topics, sent_at = traffic.sent[data]
        if sent_at > killed_at:
            for name in topics:
                first[name] = min(at, first.get(name, at))
    return max(first.values()) - killed_at if set(first) == names else None


@pytest.mark.parametrize("phase", ["begun", "prepared", "committed"])
def test_what_a_killed_sender_has_staged_is_delivered_and_the_rest_isnt(
    broker: LocalKafka, ps: PubSub, names: list[str], phase: str
) -> None:
    """It is killed before, in and after a transaction; others go on when the broker has ended an open one."""
    with Sequencer(ps) as sequencer:
        sequencer.wait_until_running(PATIENCE)
        with child(broker, "sender", phase, "20", "killed", *names) as killed:
            output, _ = killed.communicate(timeout=PATIENCE)
        killed_at = time.monotonic()
        told = {body("killed", int(number)) for number in output.split()}
        assert len(told) > 10
        mine = [ps.publish_multi(some_of(names, number), body("mine", number)) for number in range(20)]
        for future in mine:
            future.result(PATIENCE)
        print(f"killed in phase {phase!r}: others went on after {time.monotonic() - killed_at:.1f} s")
        sent = {body("killed", number): some_of(names, number) for number in range(10_000)}
        sent |= {body("mine", number): some_of(names, number) for number in range(20)}
        told |= {body("mine", number) for number in range(20)}
        logs = check(broker, names, sent, told)
        later = {data for found in logs.bodies.values() for data in found} - told
        assert bool(later) == (phase == "committed"), "only what was staged is delivered"


def test_what_was_staged_before_its_sender_was_killed_is_delivered_without_it(
    broker: LocalKafka, ps: PubSub, names: list[str]
) -> None:
    """No sequencer runs while it sends, so it is killed between stage and receipt."""
    with child(broker, "sender", "committed", "1", "killed", *names) as killed:
        output, _ = killed.communicate(timeout=PATIENCE)
    assert not output, "it has learned nothing"
    with Sequencer(ps):
        ps.publish_multi(names, b"mine 0").result(PATIENCE)
        sent = {body("killed", 0): names, b"mine 0": names}
        logs = check(broker, names, sent, set(sent))
    assert logs.bodies[names[0]][-1] == b"mine 0"


def test_multicasts_go_on_after_the_broker_was_killed_and_started_again() -> None:
    with LocalKafka() as broker, PubSub(broker.bootstrap) as ps, PubSub(broker.bootstrap) as other:
        names = make_topics(ps, LETTERS)
        with Sequencer(ps) as sequencer:
            sequencer.wait_until_running(PATIENCE)
            with Traffic(ps, other, names) as traffic:
                until(lambda: len(traffic.told) > ENOUGH, "traffic", BUSY)
                broker.kill()
                broker.start()
                started_at = time.time()
                until(lambda: goes_on(traffic, started_at) is not None, "a place for each topic", BUSY)
            for future in traffic.by_body.values():
                future.exception(PATIENCE)
            until(lambda: sequencer.health().ok, f"a healthy sequencer: {sequencer.health()}")
            # Behind all that was staged before.
            ps.publish_multi(names, b"last 0").result(PATIENCE)
            print(f"went on {goes_on(traffic, started_at):.1f} s after the broker was back")
            untold = {
                str(future.exception())
                for future in traffic.by_body.values()
                if future.exception() is not None
            }
            assert all("has no place in the order after 30 s" in text for text in untold), untold
            sent = {data: topics for data, (topics, _) in traffic.sent.items()} | {b"last 0": names}
            told = {data for data, future in traffic.by_body.items() if future.exception() is None}
            logs = check(broker, names, sent, told)
            never = {
                data
                for data, future in traffic.by_body.items()
                if "won't be delivered" in str(future.exception())
            }
            assert never.isdisjoint(logs.bodies[names[0]])
