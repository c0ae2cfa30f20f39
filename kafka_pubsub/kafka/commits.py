"""Commits cut into requests that the broker can store.

Rules
1. A request becomes one batch in the broker's offsets topic; one that is too large fails as a whole, so a commit
   of many full maps is cut into several requests.
2. What can't be stored at all (no offset, a NUL, half a surrogate pair) is refused for its partition alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from confluent_kafka import TopicPartition as KafkaPartition

from kafka_pubsub.errors import InvalidArgument, PubSubError
from kafka_pubsub.kafka.places import kafka_partition
from kafka_pubsub.model import Committed, TopicPartition

__all__ = ["requests"]

#: Bytes of metadata in one commit request. A request becomes one batch in the broker's offsets topic, which takes
#: 1 MiB: 84 full maps of 12 kB pass, 86 fail as a whole. Half leaves room for group and topic names.
_REQUEST_BYTES = 512 * 1024

#: Bytes that a partition costs in that batch beside its metadata: topic (up to 249), group (up to 249), numbers.
_OVERHEAD = 600


def _weight(metadata: str) -> int:
    """Bytes in the broker's batch; `InvalidArgument` if the text can't be stored."""
    if "\0" in metadata:
        raise InvalidArgument("the text beside an offset can't hold a NUL character")
    try:
        return _OVERHEAD + len(metadata.encode())
    except UnicodeEncodeError as failure:
        raise InvalidArgument(f"the text beside an offset can't be encoded: {failure.reason}") from None


def requests(
    positions: Mapping[TopicPartition, Committed], answers: dict[TopicPartition, PubSubError | None]
) -> Iterator[list[KafkaPartition]]:
    """The positions in requests that the broker can store; what can't be stored at all goes to `answers`."""
    request: list[KafkaPartition] = []
    weight = 0
    for partition, to in positions.items():
        try:
            if to.offset is None or to.offset < 0:
                raise InvalidArgument(f"{to.offset} isn't an offset that can be committed")
            adding = _weight(to.metadata)
        except InvalidArgument as refused:
            answers[partition] = refused
            continue
        if request and weight + adding > _REQUEST_BYTES:
            yield request
            request, weight = [], 0
        request.append(kafka_partition(partition, to))
        weight += adding
    if request:
        yield request
