"""The headers of messages in lanes: which publisher sent a message as which, and which message it comes after.

`ps-seq` is `1.PUBLISHER.NUMBER`: the number counts the messages of one publisher to one topic, all lanes together.
Where brokers give two messages the same time, it says which came first. `ps-after` is `1.PARTITION.OFFSET.LANE`: the
last message of the same key that its publisher knows in another lane, named by that lane's Kafka topic.

Rule: a header of another version, or one that can't be read, says nothing. Another program may have written it.
"""

from __future__ import annotations

from kafka_pubsub.model import Header, Position

__all__ = [
    "AFTER_HEADER",
    "SEQUENCE_HEADER",
    "after_header",
    "read_after",
    "read_sequence",
    "sequence_header",
]

SEQUENCE_HEADER = "ps-seq"
AFTER_HEADER = "ps-after"

_VERSION = "1"


def sequence_header(publisher: str, number: int) -> Header:
    """Returns the header of a publisher's message; `publisher` contains no dot."""
    return SEQUENCE_HEADER, f"{_VERSION}.{publisher}.{number}".encode()


def after_header(earlier: Position) -> Header:
    """Returns the header of a message that comes after an earlier one in another lane."""
    return AFTER_HEADER, f"{_VERSION}.{earlier.partition}.{earlier.offset}.{earlier.topic}".encode()


def read_sequence(value: bytes | None) -> tuple[str, int] | None:
    """Returns the publisher and the number; None: the header says nothing."""
    version, _, rest = (value or b"").partition(b".")
    publisher, _, number = rest.partition(b".")
    if version != _VERSION.encode() or not publisher or not number.isdigit():
        return None
    return publisher.decode("utf-8", "surrogateescape"), int(number)


def read_after(value: bytes | None) -> Position | None:
    """Returns the place of the earlier message; None: the header says nothing."""
    version, _, rest = (value or b"").partition(b".")
    partition, _, rest = rest.partition(b".")
    offset, _, topic = rest.partition(b".")
    if version != _VERSION.encode() or not partition.isdigit() or not offset.isdigit() or not topic:
        return None
    return Position(topic.decode("utf-8", "surrogateescape"), int(partition), int(offset))
