"""A record of the in-memory Kafka, with the methods of a message of librdkafka's Python client."""

from __future__ import annotations

from collections.abc import Sequence

from kafka_pubsub.model import Header

__all__ = ["MemoryRecord"]

#: The kinds of timestamp: a publisher's (Kafka's CreateTime), and the broker's (LogAppendTime).
_CREATE_TIME, _LOG_APPEND_TIME = 1, 2


class MemoryRecord:
    """A record; `offset` is None for one that was never stored."""

    __slots__ = (
        "_epoch",
        "_headers",
        "_key",
        "_kind",
        "_milliseconds",
        "_offset",
        "_partition",
        "_topic",
        "_value",
    )

    def __init__(
        self,
        topic: str,
        partition: int | None,
        offset: int | None,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[Header] | None,
        milliseconds: int,
        epoch: int | None = None,
        stamped: bool = False,
    ) -> None:
        self._topic = topic
        self._partition = partition
        self._offset = offset
        self._key = key
        self._value = value
        self._headers = tuple(headers) if headers else None
        self._milliseconds = milliseconds
        self._epoch = epoch
        self._kind = _LOG_APPEND_TIME if stamped else _CREATE_TIME

    def topic(self) -> str:
        """Returns the topic's name."""
        return self._topic

    def partition(self) -> int | None:
        """Returns the partition's number."""
        return self._partition

    def offset(self) -> int | None:
        """The offset in the partition."""
        return self._offset

    def key(self) -> bytes | None:
        """Returns the key's bytes; an empty key is not None."""
        return self._key

    def value(self) -> bytes | None:
        """Returns the value's bytes; None for a tombstone."""
        return self._value

    def headers(self) -> list[Header] | None:
        """Returns the headers in their order; None if there are none."""
        return list(self._headers) if self._headers else None

    def timestamp(self) -> tuple[int, int]:
        """Returns the kind of the timestamp, and the milliseconds since 1970."""
        return (self._kind, self._milliseconds)

    def leader_epoch(self) -> int | None:
        """The epoch of the leader that took it; None for one that was never stored."""
        return self._epoch

    def __len__(self) -> int:
        return len(self._value) if self._value is not None else 0

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        return f"<MemoryRecord {self._topic}:{self._partition}:{self._offset} key={self._key!r}>"
