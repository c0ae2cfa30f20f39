"""A dead letter, as a list shows it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kafka_pubsub import (
    InvalidArgument,
    Message,
    PubSub,
    Subscription,
)
from tests.unit.dying import deliver, kill, publish, until


def test_a_dead_letter_reports_what_died_and_why(ps: PubSub, sub: Subscription) -> None:
    (message_id,) = publish(ps, ("k", b"1"))
    before = datetime.now(UTC) - timedelta(seconds=1)
    (dead_letter,) = kill(sub, 1)
    assert (dead_letter.subscription, dead_letter.topic, dead_letter.message_id) == (
        "billing",
        "orders",
        message_id,
    )
    assert (dead_letter.ordering_key, dead_letter.data, dead_letter.attributes) == ("k", b"1", {"n": "1"})
    assert (dead_letter.attempts, dead_letter.crashes, dead_letter.replays, dead_letter.problem) == (
        5,
        0,
        0,
        None,
    )
    assert dead_letter.reason == "attempts used up"
    assert before < dead_letter.died < datetime.now(UTC) + timedelta(seconds=1)
    assert dead_letter.id == f"{dead_letter.id.split(':')[0]}:0"


@pytest.mark.parametrize(
    ("chosen", "numbers"),
    [
        ({"keys": ["k1"]}, {1, 4}),
        ({"keys": ["k1", b"k2"]}, {1, 2, 4, 5}),
        ({"error": "VALUEERROR: bad 3"}, {3}),
        ({"error": "nothing like it"}, set()),
        ({"until": datetime(2000, 1, 1, tzinfo=UTC)}, set()),
        ({"since": datetime(2000, 1, 1, tzinfo=UTC)}, {0, 1, 2, 3, 4, 5}),
        ({"since": datetime(2000, 1, 1, tzinfo=UTC), "keys": ["k0"], "error": "bad"}, {0, 3}),
    ],
)
def test_some_are_picked_and_the_others_stay(
    ps: PubSub, sub: Subscription, chosen: dict[str, Any], numbers: set[int]
) -> None:
    publish(ps, *((f"k{at % 3}", b"%d" % at) for at in range(6)))

    def raises(message: Message) -> None:
        raise ValueError(f"bad {message.data.decode()}")

    with sub.pull(raises):
        until(lambda: len(list(sub.dead_letters())) == 6)
    assert {int(each.data) for each in sub.dead_letters(**chosen)} == numbers
    assert sub.replay_dead_letters(**chosen, dry_run=True).count == len(numbers)
    assert len(list(sub.dead_letters())) == 6, "a dry run changed something"
    assert sub.replay_dead_letters(**chosen).count == len(numbers)
    assert {int(each.data) for each in sub.dead_letters()} == {0, 1, 2, 3, 4, 5} - numbers
    assert {int(message.data) for message in deliver(sub, len(numbers))} == numbers


@pytest.mark.parametrize(
    ("chosen", "text"),
    [
        ({"keys": "k1"}, "keys must be a list, not one str"),
        ({"keys": [""]}, "isn't an ordering key"),
        ({"ids": ["7"]}, "'7' is neither a message id"),
        ({"ids": ["0:-1"]}, "nor PARTITION:OFFSET"),
        ({"error": ""}, "error is empty"),
        ({"since": datetime(2026, 1, 1)}, "since has no time zone"),  # noqa: DTZ001
        ({"topic": "a b"}, "contains ' '"),
        (
            {"since": datetime(2026, 1, 2, tzinfo=UTC), "until": datetime(2026, 1, 1, tzinfo=UTC)},
            "isn't before until=",
        ),
    ],
)
def test_a_selection_that_cannot_be_right_is_refused(
    sub: Subscription, chosen: dict[str, Any], text: str
) -> None:
    with pytest.raises(InvalidArgument, match=text):
        sub.replay_dead_letters(**chosen)
