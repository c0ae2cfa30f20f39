"""The arguments of `publish_multi`, checked against what is known of the topics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kafka_pubsub.config import TopicRecord
from kafka_pubsub.errors import FailedPrecondition, InvalidArgument, NotFound
from kafka_pubsub.log.ports import Admin
from kafka_pubsub.model import Header, TopicInfo
from kafka_pubsub.multicast.batch import BatchMessage
from kafka_pubsub.multicast.routes import Route, Target
from kafka_pubsub.publish.checks import (
    SIZE_SLACK,
    check_size,
    encode_attributes,
    encode_key,
    headers_size,
    refuse_data,
)
from kafka_pubsub.topics.names import inbox_topic

__all__ = [
    "MOST_TOPICS",
    "check_inbox",
    "check_message",
    "check_names",
    "check_publish",
    "check_route",
    "target_of",
]

#: Topics that one message may go to, handles included: each proposal goes to all of them.
MOST_TOPICS = 64
#: What to do about an inbox that isn't there.
_LOST = (
    "if another client has deleted it, delete the topic and make it again: then what waits for it is refused"
)
#: Bytes of the headers that a message gets at home.
_OURS = 512


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
    if not record.inbox_id:
        raise FailedPrecondition(
            f"{field}: topic {record.name!r} is of an earlier version: delete it and make it again"
        )
    partitions = record.options.partitions
    return Target(record.name, partitions, info.max_message_bytes, record.inbox_id, record.topic_id)


def check_inbox(admin: Admin, target: Target) -> None:
    """Raises if the topic's inbox isn't the one that the catalog names."""
    inbox = inbox_topic(target.name)
    try:
        made_again = admin.topic(inbox).topic_id != target.inbox_id
    except NotFound as away:
        raise NotFound(f"no broker finds inbox {inbox!r}: publish again; {_LOST}") from away
    if made_again:
        raise FailedPrecondition(f"inbox {inbox!r} isn't the one of topic {target.name!r}: {_LOST}")


def check_route(route: Route) -> None:
    """Raises what is wrong with the number of topics."""
    targets, handles = route.targets, route.handles
    if not targets:
        raise InvalidArgument("topics: name at least one topic")
    if len(targets) + len(handles) > MOST_TOPICS:
        raise InvalidArgument(
            f"topics: {len(targets)} and {len(handles)} handles, and at most {MOST_TOPICS} topics can take part in a "
            "message: send several messages"
        )


def check_publish(
    route: Route, data: object, ordering_key: str | None, attributes: Mapping[str, str] | None, now: float
) -> BatchMessage:
    """Returns what is to be delivered; raises what is wrong with it. `now`: seconds since the epoch."""
    if not isinstance(data, bytes):
        raise refuse_data(data)
    key = None if ordering_key is None else encode_key(ordering_key)
    return check_message(route, data, key, [] if attributes is None else encode_attributes(attributes), now)


def check_message(
    route: Route, data: bytes, key: bytes | None, headers: list[Header], now: float
) -> BatchMessage:
    """Does the same for a key and attributes that are encoded."""
    carried = sum([len(each.name) + 1 for each in route.handles]) if route.handles else 0
    size = len(data) + len(key or b"") + _OURS + carried + SIZE_SLACK
    if headers:
        size += headers_size(headers)
    if size > route.room:
        for target in route.targets:
            # The inbox takes more than the topic itself (`companion_topics.py`).
            ours = ("ps-id", bytes(_OURS + carried))
            check_size(target.name, data, key, [ours, *headers], target.max_message_bytes)
    return BatchMessage(int(now * 1000), key, data, headers)
