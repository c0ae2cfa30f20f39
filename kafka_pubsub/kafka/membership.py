"""A place in a group, as librdkafka hands it over: opaque bytes, of which we read the generation only.

Theory: the broker fences commits by generation and member id, not by ownership. A place without a generation (before
joining, and after being thrown out) isn't fenced at all: the broker takes it for a commit from outside the group. So
nobody may send one, and librdkafka gives one at any moment, also inside a rebalance callback. The bytes are those of
`rd_kafka_consumer_group_metadata_write`: a tag, the generation as a native int32, group and member id.
tests/integration/kafka/test_transactions.py notices when that changes.
"""

from __future__ import annotations

import struct

from confluent_kafka import Consumer

from kafka_pubsub.model import Membership

__all__ = ["in_force", "membership_of"]

_TAG = b"CGMDv2:"
_GENERATION = struct.Struct("=i")


def membership_of(consumer: Consumer, group: str) -> Membership | None:
    """The consumer's place now; None while it has none."""
    found = Membership(group, consumer.consumer_group_metadata())
    return found if in_force(found) else None


def in_force(membership: Membership) -> bool:
    """Whether it has a generation: whether the broker would fence what is sent under it."""
    token = membership.token
    if not isinstance(token, bytes) or not token.startswith(_TAG):
        return False
    body = token[len(_TAG) :]
    if len(body) < _GENERATION.size:
        return False
    (generation,) = _GENERATION.unpack_from(body)
    _, _, rest = body[_GENERATION.size :].partition(b"\0")
    return generation >= 0 and not rest.startswith(b"\0")
