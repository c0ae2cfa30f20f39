"""Finds in Kafka which keys wait for messages in other lanes, whatever process receives the subscription.

A message that waits for another lane is unfinished in its own lane, and names a message that is unfinished in the other
one: at home, or in its retry topic. So the positions of all lanes show it, as of the last commits.

Rules
1. The first unfinished messages of each lane's partition are looked at (`backlog.LOOK`): what waits stays there, while
   what others finish lies behind it. Once many of a key wait, they move to the retry topic, which `key_states` reads.
2. A name counts only in the log that it names: of a copied topic nothing is listed.
3. Nothing is listed while a retry topic is lost: the subscription receives nothing, and says so where it is pulled.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing

from kafka_pubsub.config import SubscriptionRecord
from kafka_pubsub.lane_names import Lane
from kafka_pubsub.lanes.following import comes_after
from kafka_pubsub.lanes.headers import Name, read_lane_headers
from kafka_pubsub.log.ports import Backend
from kafka_pubsub.model import StoredRecord, message_id_of
from kafka_pubsub.partition_id import PartitionId
from kafka_pubsub.subscribe.backlog import Backlog, read_backlogs
from kafka_pubsub.subscribe.retry_topic.key_states import KeyState, noted
from kafka_pubsub.subscribe.retry_topic.layout import Layout

__all__ = ["waiting_followers"]

#: By Kafka topic, partition and key: the offset of the key's first message in a retry topic.
_Firsts = Mapping[tuple[str, int, bytes | None], int]


def waiting_followers(
    backend: Backend, record: SubscriptionRecord, states: Sequence[KeyState]
) -> list[KeyState]:
    """Returns the keys whose next message waits for another lane; `states`: the keys that retry topics hold up."""
    layout = Layout(record, backend.catalog.topics().get(record.topic))
    if not layout.laned or not record.options.message_ordering:
        return []
    needed = {view.retry_topic.name for view in layout.views.values() if view.retry_topic is not None}
    if not needed <= set(backend.admin.topic_names()):
        return []
    with closing(backend.record_fetch()) as fetch:
        backlogs = read_backlogs(backend, layout, fetch, 0, alive=True)
    firsts = {(each.topic, each.partition, each.key): each.offset for each in states}
    return [state for number in sorted(backlogs) for state in _followers(layout, number, backlogs, firsts)]


def _followers(
    layout: Layout, number: PartitionId, backlogs: Mapping[PartitionId, Backlog], firsts: _Firsts
) -> Iterator[KeyState]:
    topic, partition = layout.home(number)
    begun, seen = noted(backlogs[number].pair.home), set[bytes]()
    for record in backlogs[number].first:
        key, offset = record.key(), record.offset() or 0
        if key is None or key in seen:
            continue
        seen.add(key)
        if offset in begun or (topic, partition, key) in firsts:
            continue
        for lane, name in read_lane_headers(record.headers())[1].items():
            if _is_unfinished(layout, lane, name, record, backlogs, firsts):
                reason = comes_after(layout, lane, name)
                identity = message_id_of(record)
                yield KeyState(key, partition, offset, "waiting", reason, 1, topic=topic, message_id=identity)
                break


def _is_unfinished(
    layout: Layout,
    lane: Lane,
    name: Name,
    record: StoredRecord,
    backlogs: Mapping[PartitionId, Backlog],
    firsts: _Firsts,
) -> bool:
    """Whether a message that a record names is unfinished, or an earlier one of its key in that lane."""
    partition = record.partition() or 0
    other = layout.number_in(lane, partition)
    if other is None or layout.view(other).topic_id != name.log:
        return False
    first = firsts.get((layout.home(other).topic, other.partition, record.key()), name.offset + 1)
    return first <= name.offset or backlogs[other].is_unfinished(name.offset)
