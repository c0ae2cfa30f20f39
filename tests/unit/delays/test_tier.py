"""A tier as its router reads it: when its first message is known."""

from __future__ import annotations

from kafka_pubsub.delays.tier import Tier
from tests.unit.delays.waits import wait


def is_unknown(tier: Tier) -> bool:
    """Whether the head is unknown; a function, so that mypy expects another answer after each change."""
    return tier.unknown


def test_the_head_is_unknown_until_all_that_an_earlier_router_wrote_is_read() -> None:
    tier = Tier(3, until=5)
    assert is_unknown(tier)
    tier.reach(5)  # only markers were left
    assert not is_unknown(tier)
    assert tier.head is None


def test_a_record_is_the_head_as_soon_as_it_is_read_and_holds_the_position_until_it_is_taken() -> None:
    tier = Tier(0, until=2)
    tier.receive([wait(10, 1, position=0), wait(20, 2, position=1)])
    assert (tier.take().offset, tier.next) == (1, 1)
    assert (tier.take().offset, tier.next, tier.size) == (2, 2, 0)


def test_records_that_were_read_before_are_left_out() -> None:
    tier = Tier(0, until=1)
    tier.receive([wait(10, 1, position=0)])
    tier.receive([wait(10, 1, position=0)])
    assert len(tier.buffer) == 1


def test_a_message_that_leaves_before_the_next_flush_is_never_written() -> None:
    tier = Tier(0, until=0)
    assert tier.put(wait(10, 1))
    assert not tier.put(wait(20, 2))
    assert tier.take().offset == 1
    assert [each.offset for each in tier.flush([])] == [2]
    assert is_unknown(tier)  # the written message isn't read yet


def test_a_foreign_record_does_not_count_as_one_that_the_router_wrote() -> None:
    tier = Tier(0, until=0)
    tier.put(wait(10, 1))
    tier.flush([])
    tier.receive([wait(10, 0, position=0, home=None)])
    tier.take()
    assert is_unknown(tier)
    tier.receive([wait(10, 1, position=1)])
    assert not is_unknown(tier)
    tier.check()
