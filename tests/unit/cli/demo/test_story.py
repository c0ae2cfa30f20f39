"""The demo's events: decided by the seed, numbered without gaps."""

from __future__ import annotations

from collections import defaultdict

import pytest

from kafka_pubsub.cli.demo.story import story, toss, user_name


@pytest.mark.parametrize(("messages", "users"), [(1, 1), (5, 20), (500, 20), (100, 1)])
def test_every_users_events_are_numbered_from_zero(messages: int, users: int) -> None:
    sequences = defaultdict(list)
    for event in story(messages, users, seed=1):
        sequences[event.key].append(event.sequence)
    assert sum(map(len, sequences.values())) == messages
    assert len(sequences) == min(messages, users)
    for numbers in sequences.values():
        assert numbers == list(range(len(numbers)))


def test_the_seed_decides() -> None:
    assert list(story(200, 10, 7)) == list(story(200, 10, 7))
    assert list(story(200, 10, 7)) != list(story(200, 10, 8))


def test_a_user_logs_in_first() -> None:
    assert all(event.kind == "login" for event in story(50, 50, 3))


def test_tosses_hit_as_often_as_they_should() -> None:
    hits = sum(toss(1, user_name(number % 50), number, 1) < 0.1 for number in range(5000))
    assert 400 < hits < 600
