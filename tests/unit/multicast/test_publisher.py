"""Messages to causal topics of which their publisher doesn't learn what became of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any

import pytest

from kafka_pubsub import DeadlineExceeded, PubSub
from kafka_pubsub.errors import BrokerUnavailable
from kafka_pubsub.log.memory import MemoryBackend
from kafka_pubsub.model import Ending
from kafka_pubsub.multicast import publisher as publishing
from kafka_pubsub.multicast.multicast import Multicast
from kafka_pubsub.multicast.publisher import MulticastPublisher, sequencer_watch
from kafka_pubsub.multicast.records import Receipt
from kafka_pubsub.multicast.service import Sequencer
from tests.support import until
from tests.unit.multicast.test_multicast import home

PATIENCE = 20.0


@pytest.fixture
def publisher(topics: PubSub, monkeypatch: pytest.MonkeyPatch) -> Iterator[MulticastPublisher]:
    """The publisher of the topics, which has published already, and looks soon for what was released."""
    monkeypatch.setattr(publishing, "_LOOK", 0.2)
    with Sequencer(topics):
        topics.publish_multi(["a", "b"], b"0").result(PATIENCE)
        yield topics._cluster.multicast._publisher


def lose_one_answer(publisher: MulticastPublisher, meanwhile: Callable[[], object]) -> None:
    """The next transaction is stored, its caller doesn't learn so, and before it looks something else happens.

    Receipts are read once the caller knows enough, so that they don't end its doubts.
    """
    transactions: Any = publisher._transactions
    real, note, settle, noted = transactions.transact, publisher._note, publisher._settle, threading.Event()

    def tell(*arguments: Any) -> None:
        note(*arguments)
        noted.set()

    publisher._note = tell  # type: ignore[method-assign, assignment]
    publisher._settle = lambda some: (not some or noted.wait(PATIENCE)) and settle(some)  # type: ignore[method-assign, assignment]

    def transact(*arguments: Any, **options: Any) -> Any:
        transactions.transact = real
        outcome = real(*arguments, **options)
        meanwhile()
        return outcome._replace(ending=Ending.UNKNOWN)

    transactions.transact = transact


def test_a_receipt_that_is_lost_holds_up_nothing_for_long(
    backend: MemoryBackend, topics: PubSub, publisher: MulticastPublisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, dropped = publisher._settle, list[Receipt]()

    def settle(receipts: Sequence[Receipt]) -> bool:
        if receipts and not dropped:
            dropped.extend(receipts)
            return False
        return real(receipts)

    monkeypatch.setattr(publisher, "_settle", settle)
    lost = topics.publish_multi(["a", "b"], b"1")
    topics.publish_multi(["c"], b"2").result(PATIENCE)
    until(lambda: home(backend, "a") == home(backend, "b") == [b"0", b"1"])
    assert not lost.done(), "its time-out ends it"


def test_futures_fail_in_time_while_it_is_looked_whether_a_message_is_staged(
    backend: MemoryBackend, topics: PubSub
) -> None:
    multicast = Multicast(backend, topics._cluster.topics.found, sequencer_watch(), timeout=1.0)
    with Sequencer(topics):
        multicast.publish(["a", "b"], b"0", None, None).result(PATIENCE)
    transactions: Any = multicast._publisher._transactions

    def fence(transactional_id: str) -> None:
        time.sleep(0.1)
        raise BrokerUnavailable("no broker answers")

    real, transactions.fence = transactions.fence, fence
    lose_one_answer(multicast._publisher, lambda: None)
    doubtful = multicast.publish(["a", "b"], b"1", None, None)
    behind = multicast.publish(["c"], b"2", None, None)
    with pytest.raises(DeadlineExceeded, match="unknown whether it is delivered: it is perhaps staged"):
        doubtful.result(5.0)
    with pytest.raises(DeadlineExceeded, match="never delivered"):
        behind.result(5.0)
    transactions.fence = real
    multicast.close()
    with Sequencer(topics):
        until(lambda: home(backend, "a") == home(backend, "b") == [b"0", b"1"])
    assert home(backend, "c") == []


@pytest.mark.parametrize("several", [False, True])
def test_a_done_callback_may_publish_and_wait(topics: PubSub, several: bool) -> None:
    followed = threading.Event()

    def publish(data: bytes) -> Future[Any]:
        return topics.publish_multi(["a", "b"], data) if several else topics.topic("a").publish(data)

    def follow(_: Future[Any]) -> None:
        publish(b"1").result(PATIENCE)
        followed.set()

    publish(b"0").add_done_callback(follow)  # without a sequencer it can't be done yet
    with Sequencer(topics):
        assert followed.wait(PATIENCE / 2)


def test_a_done_callback_may_close_the_pubsub(topics: PubSub, caplog: pytest.LogCaptureFixture) -> None:
    closed = threading.Event()

    def close(_: Future[Any]) -> None:
        topics.close()
        closed.set()

    topics.publish_multi(["a", "b"], b"0").add_done_callback(close)
    with PubSub.in_memory(topics._cluster.backend, services=False) as other, Sequencer(other):
        assert closed.wait(PATIENCE / 2)
    assert "raised" not in caplog.text
