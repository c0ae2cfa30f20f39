"""How many partitions are asked for their ends: only those whose leaders' logs may have lost something."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import cast

from confluent_kafka import KafkaError
from confluent_kafka import TopicPartition as KafkaPartition

from kafka_pubsub.log.kafka.client_factory import ClientFactory
from kafka_pubsub.log.kafka.tails import find_lost_tails
from kafka_pubsub.model import LogEnd, TopicPartition

TOPIC = "orders"
COUNT = 1_000
#: Where all logs end that have lost nothing, and under which epoch.
END = LogEnd(50, 3)


class Leaders:
    """Leaders of logs, as a consumer meets them; counts the partitions that it begins to read."""

    def __init__(self, cut: dict[int, int] | None = None) -> None:
        #: Where the shortened logs end now, for a client that has read them before.
        self.cut = cut or {}
        self.asked: list[int] = []
        self.opened = 0
        self._at: dict[int, int] = {}
        self._silent: set[int] = set()

    @property
    def handles(self) -> ClientFactory:
        """What gives out this consumer."""

        def consumer(*_: object) -> Leaders:
            self.opened += 1
            return self

        return cast(
            ClientFactory, SimpleNamespace(consumer=consumer, close_consumer=lambda _: None, address="here")
        )

    def assign(self, partitions: Sequence[KafkaPartition]) -> None:
        """Begins to read."""
        self._at = {each.partition: each.offset for each in partitions}
        self.asked += self._at

    def seek(self, partition: KafkaPartition) -> None:
        """Reads on from there."""

    def pause(self, partitions: Sequence[KafkaPartition]) -> None:
        """Reads nothing of them."""
        self._silent |= {each.partition for each in partitions}

    def resume(self, partitions: Sequence[KafkaPartition]) -> None:
        """Reads them again."""
        self._silent -= {each.partition for each in partitions}

    def consume(self, _: int, __: float) -> list[SimpleNamespace]:
        """What each leader answers: that there is nothing more to read, or that this isn't its log."""
        return [self._answer(number, at) for number, at in self._at.items() if number not in self._silent]

    def _answer(self, number: int, at: int) -> SimpleNamespace:
        lost = at > self.cut.get(number, at)
        code = KafkaError._AUTO_OFFSET_RESET if lost else KafkaError._PARTITION_EOF
        return SimpleNamespace(
            error=lambda: KafkaError(code), topic=lambda: TOPIC, partition=lambda: number, offset=lambda: at
        )

    def get_watermark_offsets(self, partition: KafkaPartition, _: float) -> tuple[int, int]:
        """From where to where the log goes."""
        return 0, END.offset


def places(count: int = COUNT) -> list[TopicPartition]:
    return [TopicPartition(TOPIC, number) for number in range(count)]


def test_no_leader_is_asked_that_was_leader_when_the_log_was_read() -> None:
    leaders = Leaders()
    ends = dict.fromkeys(places(), END)
    read = dict.fromkeys(places(), LogEnd(40, END.epoch))
    assert find_lost_tails(leaders.handles, ends, read, 5.0) == {}
    assert (leaders.opened, leaders.asked) == (0, [])


def test_one_suspicious_log_among_many_is_asked_for_alone_and_found() -> None:
    leaders = Leaders({7: 33})
    ends = dict.fromkeys(places(), END)
    read = dict.fromkeys(places(), LogEnd(40, END.epoch)) | {TopicPartition(TOPIC, 7): LogEnd(40, 2)}
    assert find_lost_tails(leaders.handles, ends, read, 5.0) == {TopicPartition(TOPIC, 7): 33}
    assert set(leaders.asked) == {7}


def test_a_log_that_is_shorter_than_what_was_read_is_asked_for_though_its_leader_is_the_same() -> None:
    leaders = Leaders({4: 50})
    ends = dict.fromkeys(places(), END)
    read = dict.fromkeys(places(), END) | {TopicPartition(TOPIC, 4): LogEnd(60, END.epoch)}
    assert find_lost_tails(leaders.handles, ends, read, 5.0) == {TopicPartition(TOPIC, 4): 50}
    assert set(leaders.asked) == {4}


def test_without_an_epoch_the_end_alone_decides_and_no_leader_is_asked() -> None:
    leaders = Leaders()
    ends = dict.fromkeys(places(), END)
    read = dict.fromkeys(places(), LogEnd(40)) | {TopicPartition(TOPIC, 9): LogEnd(51)}
    assert find_lost_tails(leaders.handles, ends, read, 5.0) == {TopicPartition(TOPIC, 9): 50}
    assert leaders.opened == 0
