"""Which messages to causal topics may be staged now, and in which batches."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_pubsub.multicast.batch import BatchMessage
from kafka_pubsub.multicast.future import SentFuture
from kafka_pubsub.multicast.outbox import Batch, Outbox, Outgoing, Standing
from kafka_pubsub.multicast.records import Receipt
from kafka_pubsub.multicast.routes import Route, Target, Way, way_of_deletion
from kafka_pubsub.multicast.values import Timestamp
from tests.unit.multicast.test_future import Owner

NEVER, MANY = 1e9, 1000


def way(*topics: str, handles: tuple[str, ...] = (), partitions: int = 1, key: bytes | None = None) -> Way:
    route = Route(
        [Target(each, partitions, 10**6, "i") for each in topics],
        [Target(each, 1, 10**6, "i") for each in handles],
    )
    return route.way(key, "name")


def add(outbox: Outbox, way: Way, data: bytes = b"", deadline: float = NEVER) -> Outgoing:
    message = Outgoing(way, BatchMessage(0, None, data, ()), SentFuture(Owner()), deadline)
    outbox.add(message)
    return message


def bodies(batches: list[Batch]) -> list[bytes]:
    return [b"".join(each.message.data for each in batch.messages) for batch in batches]


def test_messages_that_go_the_same_way_are_one_batch() -> None:
    outbox = Outbox("p")
    for data in (b"1", b"2", b"3"):
        add(outbox, way("a", "b"), data)
    (batch,) = outbox.take(MANY, 0, estimate=7)
    assert bodies([batch]) == [b"123"]
    assert (batch.stage.message, batch.stage.destinations, batch.stage.estimate) == (
        "p-1",
        ("a/0@i", "b/0@i"),
        7,
    )
    assert len(outbox) == 3
    assert outbox.settle("p-1") is batch
    assert outbox.settle("p-1") is None
    assert len(outbox) == 0


def test_the_order_of_the_topics_makes_no_other_way() -> None:
    assert way("a", "b") == way("b", "a")


def test_a_message_that_goes_another_way_waits_for_the_receipt_of_one_to_several_topics() -> None:
    outbox = Outbox("p")
    for topics, data in (("ab", b"1"), ("ab", b"2"), ("c", b"3"), ("ab", b"4")):
        add(outbox, way(*topics), data)
    assert bodies(outbox.take(MANY, 0)) == [b"12"]
    assert outbox.take(MANY, 0) == []
    outbox.settle("p-1")
    assert bodies(outbox.take(MANY, 0)) == [b"3", b"4"]


def test_messages_of_the_same_way_are_staged_while_a_batch_is_under_way() -> None:
    outbox = Outbox("p")
    add(outbox, way("a", "b"), b"1")
    assert bodies(outbox.take(MANY, 0)) == [b"1"]
    add(outbox, way("a", "b"), b"2")
    assert bodies(outbox.take(MANY, 0)) == [b"2"]
    outbox.settle("p-1")
    add(outbox, way("a"), b"3")
    assert outbox.take(MANY, 0) == [], "the second batch has no receipt"


def test_messages_to_one_topic_each_wait_for_nothing() -> None:
    outbox = Outbox("p")
    for topic, data in (("a", b"1"), ("b", b"2"), ("a", b"3"), ("b", b"4")):
        add(outbox, way(topic), data)
    add(outbox, way("a", "b"), b"5")
    assert bodies(outbox.take(MANY, 0)) == [b"13", b"24", b"5"]


def test_handles_make_another_batch_and_no_later_message_joins_the_one_before() -> None:
    outbox = Outbox("p")
    add(outbox, way("a", "b"), b"1")
    add(outbox, way("a", handles=("b",)), b"2")
    add(outbox, way("a", "b"), b"3")
    assert bodies(outbox.take(MANY, 0)) == [b"1", b"2", b"3"]


def test_partitions_make_another_way() -> None:
    outbox = Outbox("p")
    ways = {way("a", "b", partitions=3, key=b"%d" % number) for number in range(20)}
    assert len(ways) == 3
    for number in range(20):
        add(outbox, way("a", partitions=3, key=b"%d" % number), b"x")
    assert sorted(each.stage.destinations for each in outbox.take(MANY, 0)) == [
        ("a/0@i",),
        ("a/1@i",),
        ("a/2@i",),
    ]


def test_a_deletion_is_alone_and_counts_as_sent_with_its_receipt() -> None:
    outbox = Outbox("p")
    target = Target("a", 2, 10**6, "i", "id")
    for data in (b"1", b"2"):
        add(outbox, way_of_deletion(target, [Target("b", 2, 10**6, "i")]), data)
    add(outbox, way("b"), b"3")
    (batch,) = outbox.take(MANY, 0)
    assert bodies([batch]) == [b"1"]
    assert batch.stage.destinations == ("a/0@i", "a/1@i", "b/0@i")
    assert batch.stage.deletes == "a@id"
    assert outbox.take(MANY, 0) == []


@pytest.mark.parametrize(("size", "batches"), [(1, 1), (1000, 3), (300_000, 12)])
def test_a_batch_is_limited_in_bytes_unless_one_message_is_larger(size: int, batches: int) -> None:
    outbox, count = Outbox("p"), 12 if size > 1000 else 600
    for _ in range(count):
        add(outbox, way("a"), bytes(size))
    found = outbox.take(MANY, 0)
    assert sum(len(each.messages) for each in found) == count
    assert all(len(each.messages) == 1 or len(each.messages) * size <= 256 * 1024 for each in found)
    assert len(found) == batches


def test_what_is_staged_at_once_is_limited_in_bytes() -> None:
    outbox = Outbox("p")
    for _ in range(20):
        add(outbox, way("a"), bytes(900_000))
    assert [len(outbox.take(MANY, 0)) for _ in range(4)] == [5, 5, 5, 5]


def test_no_more_messages_are_taken_than_wanted() -> None:
    outbox = Outbox("p")
    for number in range(5):
        add(outbox, way("a", "b"), b"%d" % number)
    assert bodies(outbox.take(2, 0)) == [b"01"]
    assert bodies(outbox.take(2, 0)) == [b"23"]


def test_what_has_waited_too_long_is_never_staged() -> None:
    outbox = Outbox("p")
    first = add(outbox, way("a", "b"), b"1", deadline=1)
    outbox.take(MANY, 0)
    second = add(outbox, way("c"), b"2", deadline=2)
    third = add(outbox, way("c"), b"3", deadline=3)
    assert outbox.next_deadline() == 1
    assert outbox.expired(2) == [(first, Standing.UNKNOWN), (second, Standing.QUEUED)]
    assert outbox.expired(2) == []
    assert outbox.take(MANY, 2) == [], "the first one is staged and has no receipt"
    outbox.settle("p-1")
    assert outbox.next_deadline() == 3
    assert [batch.messages for batch in outbox.take(MANY, 2)] == [[third]]


def test_what_has_its_receipt_doesnt_run_out_of_time() -> None:
    outbox = Outbox("p")
    add(outbox, way("a"), deadline=1)
    outbox.take(MANY, 0)
    outbox.settle("p-1")
    assert outbox.expired(5) == []
    assert outbox.next_deadline() is None


def test_what_is_late_is_taken_from_a_batch_that_isnt_staged() -> None:
    outbox = Outbox("p")
    early = add(outbox, way("a", "b"), b"1", deadline=1)
    late = add(outbox, way("a", "b"), b"2", deadline=5)
    (batch,) = outbox.take(MANY, 0)
    assert outbox.give_up(batch, 0.5) == []
    assert outbox.give_up(batch, 1) == [early]
    assert batch.messages == [late]
    assert outbox.give_up(batch, 5) == [late]
    assert outbox.settle("p-1") is None
    add(outbox, way("c"), b"3")
    assert bodies(outbox.take(MANY, 0)) == [b"3"], "nothing holds it up"


def receipt(*buried: int, destination: str = "a/0@i") -> Receipt:
    return Receipt("p-1", Timestamp(7, "b/0@i"), (), destination, buried, "too large" if buried else "")


def three_in_a_batch(*topics: str) -> tuple[Outbox, list[Outgoing]]:
    outbox = Outbox("p")
    messages = [add(outbox, way(*topics), b"%d" % number, deadline=5) for number in range(3)]
    outbox.take(MANY, 0)
    add(outbox, way("c"), b"next")
    return outbox, messages


def test_a_message_has_its_outcome_with_the_first_receipt_of_a_destination_that_took_it() -> None:
    outbox, (one, two, three) = three_in_a_batch("a", "b")
    first, second = receipt(0, 2), receipt(2, destination="b/0@i")
    assert outbox.take_receipt(first, 0) == (first, [(1, two)], (), {})
    assert bodies(outbox.take(MANY, 0)) == [b"next"], "it was released, so it holds up nothing"
    assert [each for each, _ in outbox.waiting("a")] == [one, three]
    reasons = {"a/0@i": "too large", "b/0@i": "too large"}
    assert outbox.take_receipt(second, 0) == (second, [(0, one)], [three], reasons)
    assert outbox.take_receipt(receipt(), 0) is None
    assert outbox.waiting("a") == []


def test_a_batch_that_a_destination_took_is_over_with_its_receipt() -> None:
    outbox, messages = three_in_a_batch("a", "b")
    first = receipt(destination="b/0@i")
    assert outbox.take_receipt(first, 0) == (first, list(enumerate(messages)), [], {})
    assert outbox.take_receipt(receipt(0), 0) is None


def test_a_batch_that_all_refuse_together_has_one_receipt() -> None:
    outbox, messages = three_in_a_batch("a", "b")
    answer = outbox.take_receipt(receipt()._replace(refused=("b/0@i",)), 0)
    assert answer is not None
    assert (answer.taken, answer.refused) == ([], messages)
    assert len(outbox) == 1, "the next one"


def test_what_one_destination_refused_is_forgotten_when_its_time_has_run_out() -> None:
    outbox, (one, _, _) = three_in_a_batch("a", "b")
    (batch,) = (each.batch for each, _ in outbox.waiting("b")[:1])
    assert batch is not None
    batch.stored, batch.offsets = True, {"a/0@i": 0, "b/0@i": 0}
    assert outbox.take_receipt(receipt(0), 0) is not None
    assert outbox.expired(5)[:1] == [(one, Standing.STAGED)]
    assert outbox.waiting("a") == []
    assert outbox.take_receipt(receipt(destination="b/0@i"), 5) is None


WAYS = [
    way("a"),
    way("b"),
    way("a", "b"),
    way("a", "c"),
    way("a", handles=("b",)),
    way("a", handles=("c",)),
    way_of_deletion(Target("c", 1, 10**6), []),
]


@given(st.lists(st.tuples(st.sampled_from(WAYS), st.booleans()), max_size=40), st.randoms())
def test_what_is_published_later_comes_later_and_waits_until_the_former_is_sent(
    plan: list[tuple[Way, bool]], chances: object
) -> None:
    """In any order of calls, takes and receipts."""
    outbox, open_batches, inboxes = Outbox("p"), list[Batch](), dict[str, list[int]]()

    def take() -> None:
        for batch in outbox.take(1 + chances.randrange(10), 0):  # type: ignore[attr-defined]
            held = [each for each in open_batches if each.way.lasting]
            assert all(
                each.way.participants == batch.way.participants
                and not each.way.deletes
                and not batch.way.deletes
                for each in held
            )
            open_batches.append(batch)
            assert all(each.way == batch.way for each in batch.messages)
            assert not batch.way.deletes or len(batch.messages) == 1
            for name in batch.way.participants:
                inboxes.setdefault(name, []).extend(int(each.message.data) for each in batch.messages)

    for number, (which, pause) in enumerate(plan):
        add(outbox, which, b"%d" % number)
        if pause:
            take()
        if open_batches and chances.random() < 0.5:  # type: ignore[attr-defined]
            batch = open_batches.pop(chances.randrange(len(open_batches)))  # type: ignore[attr-defined]
            assert outbox.settle(batch.stage.message) is batch
    for _ in range(2 * len(plan) + 1):
        take()
        if open_batches:
            outbox.settle(open_batches.pop(0).stage.message)
    assert len(outbox) == 0
    for name, found in inboxes.items():
        wanted = [number for number, (which, _) in enumerate(plan) if name in which.participants]
        assert found == wanted


def test_batches_in_doubt_that_go_different_ways_let_none_of_them_go_on() -> None:
    outbox = Outbox("p")
    for topics, data in (("c", b"1"), ("ab", b"2")):
        add(outbox, way(*topics), data)
    first, second = outbox.take(MANY, 0)
    outbox.doubt(first)
    outbox.doubt(second)
    for topics in ("c", "ab"):
        add(outbox, way(*topics))
    assert outbox.take(MANY, 0) == []
    outbox.sent(second, 0)
    assert outbox.take(MANY, 0) == []
    outbox.sent(first, 0)
    assert len(outbox.take(MANY, 0)) == 2
