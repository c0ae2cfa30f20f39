"""Keys that are held up in a lane: which they are, and what releasing and dropping does to their messages."""

from __future__ import annotations

import threading

import pytest

from kafka_pubsub import DeadLetterPolicy, InvalidArgument, Message, PubSub, RetryPolicy, Subscription, Topic
from tests.support import until
from tests.unit.lanes.handling import Handler

PATIENCE = 30.0
ATTEMPTS = 5
HIGH, DEFAULT, TRANSIENT = "jobs.lane.p9", "jobs", "jobs.lane.t4"


@pytest.fixture
def sub(ps: PubSub, topic: Topic) -> Subscription:
    ps.create_topic("dead", partitions=1)
    return ps.create_subscription(
        "billing",
        topic,
        message_ordering=True,
        retry=RetryPolicy(min_backoff=0.01, max_backoff=0.01),
        dead_letter=DeadLetterPolicy(topic="dead", max_attempts=ATTEMPTS, on_exhausted="park"),
    )


@pytest.fixture
def parked(topic: Topic, sub: Subscription) -> Subscription:
    """Two messages of each lane, of which the first is parked; all lie at the same places."""
    lanes = {b"high": (9, True), b"default": (4, True), b"transient": (4, False)}
    for name, (priority, durable) in lanes.items():
        for body in (name, b"after " + name):
            topic.publish(body, priority=priority, durable=durable, ordering_key=name.decode()).result(
                PATIENCE
            )
    fails = Handler(dict.fromkeys(lanes, Message.nack))
    with sub.pull(fails):
        until(lambda: [each.state for each in list(sub.keys())] == ["parked"] * 3)
    return sub


def test_the_log_names_the_lane_of_what_is_parked(
    parked: Subscription, caplog: pytest.LogCaptureFixture
) -> None:
    begun = [each.getMessage().partition(": ")[0] for each in caplog.get_records("setup")]
    places = ["0", "0 of .lane.p9", "0 of .lane.t4"]
    assert sorted(begun) == [f"subscription 'billing', partition {place}" for place in places]


def taken(sub: Subscription, count: int) -> list[tuple[bytes, int]]:
    handler = Handler()
    with sub.pull(handler):
        handler.until(count)
    return [(data, attempt) for data, _, _, attempt in handler.came]


def test_keys_name_the_lane_and_the_place_of_what_holds_them_up(parked: Subscription) -> None:
    states = {each.ordering_key: each for each in list(parked.keys())}
    assert {key: (each.topic, each.partition, each.offset) for key, each in states.items()} == {
        "high": (HIGH, 0, 0),
        "default": (DEFAULT, 0, 0),
        "transient": (TRANSIENT, 0, 0),
    }
    assert {each.attempt for each in states.values()} == {ATTEMPTS}


def test_a_key_with_its_callback_is_named_with_its_lane(topic: Topic, sub: Subscription) -> None:
    begun, goes_on = threading.Event(), threading.Event()

    def hold(message: Message) -> None:
        begun.set()
        assert goes_on.wait(PATIENCE)
        message.ack()

    with sub.pull(Handler({b"slow": hold})):
        topic.publish(b"slow", priority=9, ordering_key="k").result(PATIENCE)
        assert begun.wait(PATIENCE)
        until(lambda: [(each.state, each.topic) for each in list(sub.keys())] == [("leased", HIGH)])
        goes_on.set()
        until(lambda: not sub.keys())


@pytest.mark.parametrize(
    ("of", "released"),
    [
        (f"{HIGH}:0:0", b"high"),
        (f"{TRANSIENT}:0:0", b"transient"),
        (f"{DEFAULT}:0:0", b"default"),
        ("0:0", b"default"),
    ],
)
def test_an_id_releases_the_message_of_its_lane_only(parked: Subscription, of: str, released: bytes) -> None:
    assert parked.release(ids=[of]).count == 1
    assert taken(parked, 2) == [(released, 1), (b"after " + released, 1)]
    assert len(parked.keys()) == 2


def test_all_lanes_are_released_at_once(parked: Subscription) -> None:
    assert parked.release(dry_run=True).count == 3
    assert parked.release().count == 3
    came = taken(parked, 6)
    assert {data for data, _ in came} == {
        before + name for name in (b"high", b"default", b"transient") for before in (b"", b"after ")
    }
    assert parked.keys() == []


def test_keys_and_errors_pick_in_every_lane(parked: Subscription) -> None:
    assert parked.release(keys=["high", "transient"], dry_run=True).count == 2
    assert parked.release(keys=["high"], ids=[f"{DEFAULT}:0:0"], dry_run=True).count == 0


def test_a_message_of_a_lane_is_dropped_into_the_dead_letter_topic(parked: Subscription) -> None:
    assert parked.release(ids=[f"{HIGH}:0:0"], drop=True).count == 1
    assert taken(parked, 1) == [(b"after high", 1)]
    (dead,) = parked.dead_letters()
    assert (dead.data, dead.topic, dead.problem) == (b"high", HIGH, None)
    assert {each.topic for each in list(parked.keys())} == {DEFAULT, TRANSIENT}


@pytest.mark.parametrize("of", ["0:-1", ":0:0:", "0", "0:0:", ""])
def test_an_id_of_another_form_is_refused(parked: Subscription, of: str) -> None:
    with pytest.raises(InvalidArgument, match=r"ids: .* is neither a message id, .* nor PARTITION:OFFSET"):
        parked.release(ids=[of])


def test_a_dead_letter_of_a_lane_is_found_by_its_message_and_by_its_place(parked: Subscription) -> None:
    parked.release(ids=[f"{HIGH}:0:0"], drop=True)
    assert taken(parked, 1) == [(b"after high", 1)]
    (dead,) = parked.dead_letters(ids=[f"{HIGH}:0:0"])
    assert (dead.data, dead.message_id) == (b"high", f"{HIGH}:0:0")
    assert list(parked.dead_letters(ids=[dead.id])) == [dead]
    assert list(parked.dead_letters(ids=["dead:0:0"])) == []
