"""The rules of multicast that no broker shows: blocks, ties, clocks, estimates and the cost of an operation."""

from __future__ import annotations

import math
from typing import Any

import pytest

from kafka_pubsub.multicast.release_queue import ReleaseQueue
from kafka_pubsub.multicast.sequencer import START, Sequencer
from kafka_pubsub.multicast.values import Output, Proposal, Propose, Release, Stage, Timestamp


class Inbox:
    """The inbox of topic `b`; `take` stores a record and returns what its sequencer answers."""

    def __init__(self) -> None:
        self.sequencer = Sequencer("b", START._replace(alive="id"))
        self.end = 0

    def take(self, record: Stage | Proposal) -> list[Output]:
        self.end += 1
        return self.sequencer.take(self.end - 1, record)

    def stage(self, message: str, *destinations: str, estimate: int = 0) -> list[Output]:
        return self.take(Stage(message, destinations, estimate=estimate))

    def propose(self, message: str, clock: int, topic: str) -> list[Output]:
        return self.take(Proposal(message, Timestamp(clock, topic), deleted=False))


def released(outputs: list[Output]) -> list[str]:
    return [each.message for each in outputs if isinstance(each, Release)]


def proposed(outputs: list[Output]) -> list[Timestamp]:
    return [each.proposal.timestamp for each in outputs if isinstance(each, Propose)]


def test_nothing_is_dequeued_behind_a_block() -> None:
    inbox = Inbox()
    assert proposed(inbox.stage("first", "a", "b")) == [Timestamp(1, "b")]
    inbox.stage("second", "b", "c")
    assert released(inbox.propose("second", 1, "c")) == [], "the first may still come before it"
    assert released(inbox.propose("first", 7, "a")) == ["second", "first"], "it got a later place"


def test_equal_timestamps_are_told_apart_by_the_topic() -> None:
    inbox = Inbox()
    inbox.stage("one", "b", "c")
    inbox.stage("two", "a", "b")
    inbox.propose("one", 5, "c")
    assert released(inbox.propose("two", 5, "a")) == ["two", "one"]


def test_the_clock_is_brought_up_before_the_message_is_released() -> None:
    inbox = Inbox()
    inbox.stage("one", "a", "b")
    assert released(inbox.propose("one", 40, "a")) == ["one"]
    assert proposed(inbox.stage("effect", "b", "c")) == [Timestamp(41, "b")]


def test_a_block_stands_at_the_best_estimate() -> None:
    assert proposed(Inbox().stage("one", "a", "b", estimate=30)) == [Timestamp(31, "b")]


def test_a_second_stage_of_a_name_that_waits_is_passed_over() -> None:
    inbox = Inbox()
    inbox.stage("one", "a", "b")
    assert inbox.stage("one", "a", "b") == []
    assert released(inbox.propose("one", 3, "a")) == ["one"]
    assert inbox.sequencer.waiting == 0


def test_a_message_to_one_topic_needs_no_block() -> None:
    outputs = Inbox().stage("alone", "b")
    assert (released(outputs), proposed(outputs)) == (["alone"], [])


def test_a_message_to_one_topic_waits_behind_a_block() -> None:
    inbox = Inbox()
    inbox.stage("first", "a", "b")
    assert released(inbox.stage("alone", "b")) == []
    assert released(inbox.propose("first", 1, "a")) == ["first", "alone"]


class Counted(int):
    """A clock that counts its comparisons."""

    count = 0

    def __lt__(self, other: Any) -> bool:
        Counted.count += 1
        return int(self) < int(other)

    def __eq__(self, other: object) -> bool:
        return int(self) == other

    __hash__ = int.__hash__


def comparisons(messages: int) -> float:
    """The comparisons of an operation while so many messages wait."""
    queue, Counted.count = ReleaseQueue(), 0
    for number in range(messages):
        queue.raise_to(f"m{number}", Timestamp(Counted(number * 7919 % messages), "b"))
    for number in range(messages):
        queue.raise_to(f"m{number}", Timestamp(Counted(messages + number * 104_729 % messages), "b"))
    while (first := queue.first()) is not None:
        queue.remove(first)
    return Counted.count / (4 * messages)


@pytest.mark.parametrize("messages", [1_000, 16_000])
def test_an_operation_costs_the_logarithm_of_what_waits(messages: int) -> None:
    assert comparisons(messages) < 2 * math.log2(2 * messages)
