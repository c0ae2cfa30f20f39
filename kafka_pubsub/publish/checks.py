"""The checks of `publish`: the call itself checks every argument before it queues a message.

Rules
1. The fast path is one type test per argument; texts are made only for an error.
2. A message's size is its size in the broker's format. We refuse a message that the broker would refuse, so that
   the broker can't refuse one in the middle of a key's messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kafka_pubsub.errors import FailedPrecondition, InvalidArgument, OrderingKeyPaused, PubSubError
from kafka_pubsub.model import RESERVED_HEADER_PREFIX, Header

__all__ = [
    "MAX_KEY_BYTES",
    "SIZE_SLACK",
    "check_size",
    "encode_attributes",
    "encode_key",
    "headers_size",
    "refuse_closed",
    "refuse_data",
    "refuse_forked",
    "refuse_keys",
    "refuse_paused",
    "stored_size",
]

#: Bytes of an ordering key in UTF-8, as in the seed.
MAX_KEY_BYTES: Final = 1024

# A record alone in its batch: the batch's header (61), and attributes, timestamp and offset deltas (a byte each).
_BATCH_OVERHEAD: Final = 61
_RECORD_FIXED: Final = 3
# More than a record's length fields can ever take beside its parts: below limit - slack nothing is computed.
SIZE_SLACK: Final = 128


def refuse_data(data: object) -> InvalidArgument:
    """Returns the error for `data` that isn't bytes."""
    kind = type(data).__name__
    if isinstance(data, str):
        hint = "encode it first, or use publish_json"
    elif isinstance(data, bytearray | memoryview):
        hint = "pass bytes(data)"
    else:
        hint = "publish_json(data) publishes it as JSON"
    return InvalidArgument(f"data must be bytes, not {kind}: {hint}")


def refuse_keys() -> InvalidArgument:
    """Returns the error for an ordering key on a topic that takes none."""
    return InvalidArgument("Message ordering must be enabled on topic to use ordering keys")


def refuse_closed(topic: str) -> FailedPrecondition:
    """Returns the error for a message after `close`."""
    return FailedPrecondition(f"publishing to topic {topic!r} has been closed: make a new PubSub")


def refuse_paused(key: bytes, failure: PubSubError) -> OrderingKeyPaused:
    """Returns the error for a message of a key that the `failure` of an earlier message has paused."""
    return OrderingKeyPaused(
        f"ordering key {key.decode()!r:.200} is paused since an earlier message of it failed "
        f"({failure.message}); decide about that message, then call topic.resume(ordering_key)"
    )


def refuse_forked(topic: str) -> FailedPrecondition:
    """Returns the error for a message in a forked child of a process that had published."""
    return FailedPrecondition(
        f"topic {topic!r} was published to before fork(), and its connections don't exist in the child "
        "process; create PubSub in the child (gunicorn: post_fork; Celery: worker_process_init)"
    )


def encode_key(key: object) -> bytes:
    """Returns the record's key; raises `InvalidArgument` if `key` can't be an ordering key."""
    if not isinstance(key, str):
        raise InvalidArgument(
            f"ordering_key must be a string, not {type(key).__name__}; None means that the message has no order"
        )
    if not key:
        raise InvalidArgument("Ordering key cannot be empty")
    try:
        encoded = key.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgument(
            f"ordering_key can't be encoded as UTF-8: character {error.start} is the lone surrogate "
            f"{key[error.start]!r}; use a key of valid Unicode text"
        ) from None
    if len(encoded) > MAX_KEY_BYTES:
        raise InvalidArgument("Ordering key exceeds maximum length of 1024 bytes")
    return encoded


def encode_attributes(attributes: object) -> list[Header]:
    """Returns the record's headers; raises `InvalidArgument`, which names the wrong attribute."""
    if not isinstance(attributes, Mapping):
        raise InvalidArgument(f"attributes must be a mapping of str to str, not {type(attributes).__name__}")
    return [(_attribute_name(name), _attribute_value(name, value)) for name, value in attributes.items()]


def _attribute_name(name: object) -> str:
    if not isinstance(name, str):
        raise InvalidArgument(
            f"attributes: the name {name!r:.60} must be a string, not {type(name).__name__}"
        )
    if name.startswith(RESERVED_HEADER_PREFIX):
        raise InvalidArgument(
            f"attributes: the name {name!r:.60} begins with {RESERVED_HEADER_PREFIX!r}, which is reserved; "
            "choose another name"
        )
    if "\0" in name:
        raise InvalidArgument(f"attributes: the name {name!r:.60} contains a NUL character")
    _encodable(name, f"the name {name!r:.60}")
    return name


def _attribute_value(name: object, value: object) -> bytes:
    if not isinstance(value, str):
        raise InvalidArgument(
            f"attributes: the value of {name!r:.60} must be a string, not {type(value).__name__}"
        )
    return _encodable(value, f"the value of {name!r:.60}")


def _encodable(text: str, what: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgument(
            f"attributes: {what} can't be encoded as UTF-8: character {error.start} is a lone surrogate"
        ) from None


def headers_size(headers: list[Header]) -> int:
    """Returns an upper bound of the bytes that the headers take, framing included."""
    # A name's length takes 3 bytes at most, a value's 5.
    return sum(len(name.encode()) + len(value or b"") + 8 for name, value in headers)


def refuse_causal(topic: str) -> FailedPrecondition:
    """Makes the error of a message to a causal topic that can't go through a sequencer."""
    return FailedPrecondition(
        f"topic {topic!r} is causal: a sequencer orders its messages, so they have no delay, priority or class: "
        "leave these out; publish_many can't be used"
    )


def check_size(topic: str, data: bytes, key: bytes | None, headers: list[Header] | None, limit: int) -> None:
    """Raises `InvalidArgument` if the message, alone in a batch, is larger than the topic takes."""
    size = stored_size(data, key, headers)
    if size > limit:
        raise InvalidArgument(
            f"message of {size} bytes (data {len(data)}, ordering key {len(key or b'')}, attributes "
            f"{sum(len(name) + len(value or b'') for name, value in headers or ())}, the rest is Kafka's framing) "
            f"exceeds the limit of topic {topic!r}, max.message.bytes={limit}: make it smaller or raise the limit"
        )


def stored_size(data: bytes, key: bytes | None, headers: list[Header] | None) -> int:
    """Returns the bytes of the message as Kafka stores it, uncompressed and alone in its batch."""
    body = _RECORD_FIXED + _field(len(data)) + (1 if key is None else _field(len(key)))
    body += _varint_size(len(headers or ()))
    for name, value in headers or ():
        body += _field(len(name.encode())) + _field(len(value or b""))
    return _BATCH_OVERHEAD + _field(body)


def _field(length: int) -> int:
    return _varint_size(length) + length


def _varint_size(number: int) -> int:
    # Kafka's lengths are zigzag encoded: one bit of the first byte goes to the sign.
    return max(1, (number.bit_length() + 1 + 6) // 7)
