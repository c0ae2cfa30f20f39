"""The arguments of `publish_multi`, checked against what is known of the topics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from kafka_pubsub.client.publish.checks import check_size, encode_attributes, encode_key, refuse_data
from kafka_pubsub.config import TopicRecord
from kafka_pubsub.errors import FailedPrecondition, InvalidArgument
from kafka_pubsub.model import Header, TopicInfo

__all__ = ["MOST_TOPICS", "Parcel", "Target", "check_names", "check_publish", "target_of"]

#: Topics that one message may go to, handles included: each proposal goes to all of them.
MOST_TOPICS = 64
#: Bytes of the headers that a message gets at home.
_OURS = 512


class Target(NamedTuple):
    """A causal topic that takes part in a message."""

    name: str
    partitions: int
    max_message_bytes: int


class Parcel(NamedTuple):
    """What is delivered."""

    data: bytes
    key: bytes | None
    headers: Sequence[Header]


def check_names(field: str, topics: Iterable[object]) -> list[str]:
    """Returns the names; raises what is wrong with the argument `field`."""
    if isinstance(topics, (str, bytes)):
        raise InvalidArgument(f"{field}: give a list of topics' names, not the text {topics!r:.80}")
    names: list[str] = []
    for name in topics:
        if not isinstance(name, str):
            raise InvalidArgument(f"{field}: must be topics' names, and {name!r:.80} isn't one")
        if name in names:
            raise InvalidArgument(f"{field}: {name!r} is there twice; name each topic once")
        names.append(name)
    return names


def target_of(field: str, record: TopicRecord, info: TopicInfo) -> Target:
    """Returns the topic; `FailedPrecondition` if it isn't causal."""
    if not record.options.causal:
        raise FailedPrecondition(
            f"{field}: topic {record.name!r} isn't causal, so its messages have no place in the order of others: make "
            "it with create_topic(..., causal=True)"
        )
    return Target(record.name, info.partitions, info.max_message_bytes)


def check_publish(
    targets: Sequence[Target],
    handles: Sequence[Target],
    data: object,
    ordering_key: str | None,
    attributes: Mapping[str, str] | None,
) -> Parcel:
    """Returns what is to be delivered; raises what is wrong with it."""
    if not targets:
        raise InvalidArgument("topics: name at least one topic")
    if len(targets) + len(handles) > MOST_TOPICS:
        raise InvalidArgument(
            f"topics: {len(targets)} and {len(handles)} handles, and at most {MOST_TOPICS} topics can take part in a "
            "message: send several messages"
        )
    if not isinstance(data, bytes):
        raise refuse_data(data)
    key = None if ordering_key is None else encode_key(ordering_key)
    headers = [] if attributes is None else encode_attributes(attributes)
    carried = sum(len(each.name) + 1 for each in handles)
    for target in targets:
        # The inbox takes more than the topic itself (`companion_topics.py`).
        check_size(
            target.name, data, key, [("ps-id", bytes(_OURS + carried)), *headers], target.max_message_bytes
        )
    return Parcel(data, key, headers)
