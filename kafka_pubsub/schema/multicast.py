"""Stages, proposals and receipts as Avro, by the schemas in the folders beside this file.

Rules
1. Each travels in a header of its own, the only one, sealed (`sealed.py`). A stage's record has the messages of its
   batch as its value (`batch.py`), at destinations; the others have nothing else.
2. What can't be decoded is None, and so is what is of an unknown version.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from kafka_pubsub.core.multicast.values import Proposal, Stage, Timestamp
from kafka_pubsub.model import Header
from kafka_pubsub.schema.sealed import open_sealed, seal

__all__ = [
    "DEAD_REASON_HEADER",
    "DEAD_TOPIC_HEADER",
    "STAGE_HEADER",
    "Receipt",
    "StageRecord",
    "decode_proposal",
    "decode_receipt",
    "decode_stage",
    "encode_proposal",
    "encode_receipt",
    "encode_stage",
]

#: The headers that carry what we say.
STAGE_HEADER = "ps-stage"
_PROPOSAL_HEADER = "ps-proposal"
_RECEIPT_HEADER = "ps-receipt"
#: What a dead letter says beside what it had: the topic to which it should have come, and why it didn't.
DEAD_TOPIC_HEADER = "ps-multicast-topic"
DEAD_REASON_HEADER = "ps-multicast-dead"
#: The version that is written, of all three.
_VERSION = 1


class StageRecord(NamedTuple):
    """A batch's stage, and the partition of the topic of receipts in which its publisher waits."""

    stage: Stage
    receipts: int


class Receipt(NamedTuple):
    """A batch has its place in the order. `refused`: the destinations that were deleted before; none got it."""

    message: str
    timestamp: Timestamp
    refused: tuple[str, ...] = ()


def encode_stage(record: StageRecord) -> Header:
    """Returns the header of a stage."""
    return STAGE_HEADER, seal("stage", {**record.stage._asdict(), "receipts": record.receipts}, _VERSION)


def decode_stage(headers: Sequence[Header]) -> StageRecord | None:
    """Returns the stage of a record with these headers; None: it isn't one."""
    said = _said("stage", STAGE_HEADER, headers)
    if said is None or not said["message"] or not said["destinations"] or said["receipts"] < 0:
        return None
    receipts = said.pop("receipts")
    destinations, handles = tuple(said.pop("destinations")), tuple(said.pop("handles"))
    return StageRecord(Stage(**said, destinations=destinations, handles=handles), receipts)


def encode_proposal(proposal: Proposal) -> Header:
    """Returns the header of a proposal."""
    message, (clock, topic), deleted, cause = proposal
    fields = {"message": message, "clock": clock, "topic": topic, "deleted": deleted, "cause": cause}
    return _PROPOSAL_HEADER, seal("proposal", fields, _VERSION)


def decode_proposal(headers: Sequence[Header]) -> Proposal | None:
    """Returns the proposal of a record with these headers; None: it isn't one."""
    said = _said("proposal", _PROPOSAL_HEADER, headers)
    if said is None:
        return None
    return Proposal(said["message"], Timestamp(said["clock"], said["topic"]), said["deleted"], said["cause"])


def encode_receipt(receipt: Receipt) -> Header:
    """Returns the header of a receipt."""
    message, (clock, topic), refused = receipt
    fields = {"message": message, "clock": clock, "topic": topic, "refused": refused}
    return _RECEIPT_HEADER, seal("receipt", fields, _VERSION)


def decode_receipt(headers: Sequence[Header]) -> Receipt | None:
    """Returns the receipt of a record with these headers; None: it isn't one."""
    said = _said("receipt", _RECEIPT_HEADER, headers)
    if said is None:
        return None
    return Receipt(said["message"], Timestamp(said["clock"], said["topic"]), tuple(said["refused"]))


def _said(kind: str, name: str, headers: Sequence[Header]) -> dict[str, Any] | None:
    if not headers or headers[0][0] != name:
        return None
    return open_sealed(kind, _VERSION, headers[0][1])
