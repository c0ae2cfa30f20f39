"""Messages in a router's memory: the order, the positions that they hold back, and messages in no log."""

from __future__ import annotations

import pytest

from kafka_pubsub.delays.memory import Memory
from kafka_pubsub.delays.values import Waiting
from kafka_pubsub.errors import InvariantViolated
from tests.unit.delays.waits import wait


def take(memory: Memory) -> Waiting:
    """Handles the first."""
    found = memory.pop()
    memory.end(found)
    return found[4]


def test_messages_go_by_due_time_and_then_by_offset() -> None:
    memory = Memory(1)
    for position, (due, offset) in enumerate([(30, 1), (20, 9), (20, 4)]):
        memory.rest(0, wait(due, offset, position=position))
    assert [take(memory).offset for _ in range(3)] == [4, 9, 1]


def test_a_request_to_cancel_goes_just_before_its_message() -> None:
    memory = Memory(1)
    memory.rest(0, wait(20, 4, position=0))
    memory.rest(0, wait(20, 7, position=1, target=4))
    assert [take(memory).offset for _ in range(2)] == [7, 4]


def test_a_source_is_held_at_its_lowest_record_in_memory() -> None:
    memory = Memory(2)
    memory.rest(0, wait(30, 1, position=5))
    memory.rest(0, wait(20, 2, position=6))
    assert (memory.lowest(0, 9), memory.lowest(1, 9)) == (5, 9)
    take(memory)
    assert memory.lowest(0, 9) == 5
    take(memory)
    assert memory.lowest(0, 9) == 9


def test_messages_in_no_log_are_put_back_in_the_order_of_leaving() -> None:
    memory = Memory(2)
    memory.rest(0, wait(20, 4, position=0))
    memory.rest(1, wait(40, 2))
    memory.rest(1, wait(30, 3))
    with pytest.raises(InvariantViolated, match="in no log"):
        memory.check(afloat=False)
    assert {at: [each.offset for each in some] for at, some in memory.put_back().items()} == {1: [3, 2]}
    memory.check(afloat=False)
    assert memory.put_back() == {}
    assert take(memory).offset == 4


def test_what_is_set_aside_holds_its_position_and_comes_back_in_its_place() -> None:
    memory = Memory(1)
    for position, offset in enumerate((1, 2, 3)):
        memory.rest(0, wait(20, offset, position=position))
    memory.set_aside(7, [memory.pop()])
    assert take(memory).offset == 2
    assert (memory.lowest(0, 9), len(memory)) == (0, 2)
    assert [(home, first and first.offset) for home, first in memory.firsts_aside()] == [(7, 1)]
    memory.check(afloat=False)
    memory.take_back(7)
    assert memory.aside_size == 0
    assert [take(memory).offset for _ in range(2)] == [1, 3]


def test_what_is_set_aside_and_in_no_log_is_put_back() -> None:
    memory = Memory(2)
    memory.rest(0, wait(20, 9, position=0, target=4))
    memory.rest(1, wait(20, 4))
    memory.set_aside(7, [memory.pop(), memory.pop()])
    assert {at: [each.offset for each in some] for at, some in memory.put_back().items()} == {1: [4]}
    assert memory.firsts_aside() == [(7, None)], "only the request is left"
    memory.check(afloat=False)
