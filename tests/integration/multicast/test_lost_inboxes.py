"""Another client deletes the inbox of a causal topic: what to do is said, and the other topics go on after it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kafka_pubsub import FailedPrecondition, NotFound, PubSub
from kafka_pubsub.local.broker import LocalKafka
from kafka_pubsub.multicast.service import Sequencer
from tests.causal import PATIENCE, bodies, log
from tests.support import until

#: The topics of a test.
LETTERS = "abc"


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalKafka]:
    with LocalKafka() as running:
        yield running


@pytest.mark.parametrize("lost", [0, 1])
@pytest.mark.parametrize("proposed", [False, True])
def test_what_waits_for_it_is_refused_when_the_topic_is_deleted(
    broker: LocalKafka, ps: PubSub, names: list[str], lost: int, proposed: bool
) -> None:
    """The first topic by name would write the receipt; a message is lost before, or after the others have proposed."""
    gone = names[lost]
    left = [name for name in names if name != gone]
    admin = ps._cluster.backend.admin
    if not proposed:
        waiting = ps.publish_multi(names, b"waits")
        until(lambda: log(broker, f"{left[0]}.inbox"))
        admin.delete_topic(f"{gone}.inbox")
    with Sequencer(ps) as sequencer, PubSub(broker.bootstrap) as other:
        if proposed:
            sequencer.wait_until_running(PATIENCE)
            ps.publish_multi(names, b"before").result(PATIENCE)
            admin.delete_topic(f"{gone}.inbox")
        behind = other.publish_multi(left, b"behind")
        until(lambda: any(each.problem for each in other.multicast.status(gone)))
        with PubSub(broker.bootstrap) as third:
            third._cluster.multicast._timeout = 2.0  # so that the call fails soon
            with pytest.raises(NotFound, match="delete the topic and make it again"):
                third.publish_multi([gone], b"never").result(PATIENCE)
        if proposed:  # else the message's time would run out meanwhile
            with pytest.raises(FailedPrecondition, match="notify"):
                other.delete_topic(gone, notify=[left[0]])
        other.delete_topic(gone)
        if not proposed:
            with pytest.raises(FailedPrecondition, match=f"because {gone} was deleted"):
                waiting.result(PATIENCE)
        behind.result(PATIENCE)
        other.create_topic(gone, causal=True)
        other.publish_multi(names, b"again").result(PATIENCE)
        wanted = [b"before", b"behind", b"again"] if proposed else [b"behind", b"again"]
        for name in left:
            until(lambda name=name: bodies(broker, name) == wanted)  # type: ignore[misc]
        until(lambda: bodies(broker, gone) == [b"again"])
        until(lambda: not any(each.problem or each.pending for each in other.multicast.status(left[0])))


def test_a_topic_that_another_client_deleted_from_kafka_is_deleted_without_a_place(
    broker: LocalKafka, ps: PubSub, names: list[str]
) -> None:
    gone, *left = names
    with Sequencer(ps) as sequencer:
        sequencer.wait_until_running(PATIENCE)
        ps.publish_multi(names, b"before").result(PATIENCE)
        until(lambda: bodies(broker, gone) == [b"before"])
        ps._cluster.backend.admin.delete_topic(gone)
        with pytest.raises(FailedPrecondition, match=r"notify: .* another client has deleted the topic"):
            ps.delete_topic(gone, notify=left)
        ps.delete_topic(gone)
        ps.publish_multi(left, b"behind").result(PATIENCE)
        for name in left:
            until(lambda name=name: bodies(broker, name) == [b"before", b"behind"])  # type: ignore[misc]
        ps.create_topic(gone, causal=True)
        ps.publish_multi(names, b"again").result(PATIENCE)
        until(lambda: bodies(broker, gone) == [b"again"])
