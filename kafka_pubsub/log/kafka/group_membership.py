"""A membership in a group, as librdkafka gives it: opaque bytes, of which only the generation is read.

Theory: the broker fences commits by generation and member id, not by ownership. A membership without a generation
(before joining, and after being removed) isn't fenced at all: the broker takes it for a commit from outside the group.
So it is never sent; librdkafka may give one at any moment, also inside a rebalance callback. The bytes are those of
`rd_kafka_consumer_group_metadata_write`: a tag, the generation as a native int32, group and member id.
tests/integration/kafka/test_transactions.py notices when that changes.

Under the protocol `consumer` the generation is the member's epoch. It rises with every change of the group, also when
the member's own partitions stay the same, and no callback runs then. Brokers 4.0 to 4.2 refuse a transaction that
names an older epoch; 4.3 compares with the epoch in which the partition was assigned. So a reader takes over a newer
epoch (`renewed`). It may do so between two callbacks only: a broker raises the epoch of a member that has to give
something up only after the member has reported that this is done, and librdkafka joins again only after `lost` has
returned. So an epoch seen between two callbacks never covers the loss of a partition that the client still counts as
its own.
"""

from __future__ import annotations

import struct

from confluent_kafka import Consumer

from kafka_pubsub.model import Membership

__all__ = ["in_force", "membership_of", "renewed"]

_TAG = b"CGMDv2:"
_GENERATION = struct.Struct("=i")


def membership_of(consumer: Consumer, group: str) -> Membership | None:
    """Returns the consumer's membership now; None while it has none."""
    found = Membership(group, consumer.consumer_group_metadata())
    return found if in_force(found) else None


def renewed(consumer: Consumer, membership: Membership) -> Membership:
    """Returns the membership with the epoch that it has now, if that is newer; never call it inside a callback."""
    found = Membership(membership.group, consumer.consumer_group_metadata())
    return found if _generation(found) > _generation(membership) else membership


def in_force(membership: Membership) -> bool:
    """Returns whether it has a generation: whether the broker would fence what is sent under it."""
    return _generation(membership) >= 0


def _generation(membership: Membership) -> int:
    """Returns the generation; -1: the membership has none, or names no member."""
    token = membership.token
    if not isinstance(token, bytes) or not token.startswith(_TAG):
        return -1
    body = token[len(_TAG) :]
    if len(body) < _GENERATION.size:
        return -1
    (generation,) = _GENERATION.unpack_from(body)
    _, _, rest = body[_GENERATION.size :].partition(b"\0")
    return -1 if rest.startswith(b"\0") else int(generation)
