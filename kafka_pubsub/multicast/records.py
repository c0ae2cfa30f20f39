"""What lies in inboxes, and receipts, as Avro, by the schemas in the folders beside this file.

Rules
1. Each travels in a header of its own, the only one, sealed (`sealed.py`). A stage's record has the messages of its
   batch as its value (`batch.py`), at destinations; the others have nothing else.
2. What isn't ours is None. What is of a newer version is an error: it must be neither skipped nor guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from kafka_pubsub.errors import FailedPrecondition
from kafka_pubsub.log.sealed import newer_version, open_sealed, seal
from kafka_pubsub.model import Header
from kafka_pubsub.multicast.values import Alive, Gone, Proposal, Stage, Timestamp

__all__ = [
    "CLOCK_HEADER",
    "DEAD_REASON_HEADER",
    "DEAD_TOPIC_HEADER",
    "HANDLES_HEADER",
    "STAGE_HEADER",
    "Receipt",
    "StageRecord",
    "decode_inbox",
    "decode_receipt",
    "decode_stage",
    "encode_alive",
    "encode_gone",
    "encode_proposal",
    "encode_receipt",
    "encode_stage",
]

#: The headers that carry what we say.
STAGE_HEADER = "ps-stage"
_PROPOSAL_HEADER = "ps-proposal"
_RECEIPT_HEADER = "ps-receipt"
_GONE_HEADER = "ps-gone"
_ALIVE_HEADER = "ps-alive"
#: What a message has at home: its place in the order, and those of its handles whose topics are there.
CLOCK_HEADER = "ps-clock"
HANDLES_HEADER = "ps-handles"
#: What a dead letter says beside what it had: the topic to which it should have come, and why it didn't.
DEAD_TOPIC_HEADER = "ps-multicast-topic"
DEAD_REASON_HEADER = "ps-multicast-dead"
#: The version that is written, of all of them.
_VERSION = 1


class StageRecord(NamedTuple):
    """A batch's stage, and the partition of the topic of receipts in which its publisher waits."""

    stage: Stage
    receipts: int


class Receipt(NamedTuple):
    """A batch has its place in the order, and came home at a destination.

    `refused`: the destinations that were deleted before or are gone; then none got it, and in the last case there is no
    timestamp. `destination`: the one that wrote this. `buried`: the numbers of the messages that its topic refused, for
    this `reason`.
    """

    message: str
    timestamp: Timestamp | None
    refused: tuple[str, ...] = ()
    destination: str = ""
    buried: tuple[int, ...] = ()
    reason: str = ""


def encode_stage(record: StageRecord) -> Header:
    """Returns the header of a stage."""
    return STAGE_HEADER, seal("stage", {**record.stage._asdict(), "receipts": record.receipts}, _VERSION)


def decode_stage(headers: Sequence[Header]) -> StageRecord | None:
    """Returns the stage of a record with these headers; None: it isn't one."""
    said = decode_inbox(headers) if headers and headers[0][0] == STAGE_HEADER else None
    return said if isinstance(said, StageRecord) else None


def decode_inbox(headers: Sequence[Header]) -> StageRecord | Proposal | Gone | Alive | None:
    """Returns what a record of an inbox says; None: it isn't ours. Raises `FailedPrecondition` for a newer version."""
    name, value = headers[0] if headers else ("", None)
    kind, make = _KINDS.get(name, ("", None))
    if make is None:
        return None
    said = open_sealed(kind, _VERSION, value)
    if said is None and newer_version(_VERSION, value):
        raise FailedPrecondition("is of a newer version: run a sequencer of that version")
    return None if said is None else make(said)


def _stage_of(said: dict[str, Any]) -> StageRecord | None:
    if not said["message"] or not said["destinations"] or said["receipts"] < 0:
        return None
    receipts = said.pop("receipts")
    destinations, handles = tuple(said.pop("destinations")), tuple(said.pop("handles"))
    return StageRecord(Stage(**said, destinations=destinations, handles=handles), receipts)


def _proposal_of(said: dict[str, Any]) -> Proposal:
    return Proposal(said["message"], Timestamp(said["clock"], said["topic"]), said["deleted"], said["cause"])


#: By the header: the schema, and what is made of its fields.
_KINDS: Mapping[str, tuple[str, Callable[[dict[str, Any]], StageRecord | Proposal | Gone | Alive | None]]] = {
    STAGE_HEADER: ("stage", _stage_of),
    _PROPOSAL_HEADER: ("proposal", _proposal_of),
    _GONE_HEADER: ("gone", lambda said: Gone(said["participant"])),
    _ALIVE_HEADER: ("alive", lambda said: Alive(said["topic_id"])),
}


def encode_gone(gone: Gone) -> Header:
    """Returns the header that says that a participant is gone."""
    return _GONE_HEADER, seal("gone", gone._asdict(), _VERSION)


def encode_alive(alive: Alive) -> Header:
    """Returns the header that says that a topic was made."""
    return _ALIVE_HEADER, seal("alive", alive._asdict(), _VERSION)


def encode_proposal(proposal: Proposal) -> Header:
    """Returns the header of a proposal."""
    message, (clock, topic), deleted, cause = proposal
    fields = {"message": message, "clock": clock, "topic": topic, "deleted": deleted, "cause": cause}
    return _PROPOSAL_HEADER, seal("proposal", fields, _VERSION)


def encode_receipt(receipt: Receipt) -> Header:
    """Returns the header of a receipt."""
    clock, topic = receipt.timestamp or Timestamp(0, "")
    fields = {**receipt._asdict(), "clock": clock, "topic": topic}
    return _RECEIPT_HEADER, seal("receipt", fields, _VERSION)


def decode_receipt(headers: Sequence[Header]) -> Receipt | None:
    """Returns the receipt of a record with these headers; None: it isn't one."""
    if not headers or headers[0][0] != _RECEIPT_HEADER:
        return None
    said = open_sealed("receipt", _VERSION, headers[0][1])
    if said is None:
        return None
    clock, topic = said.pop("clock"), said.pop("topic")
    said |= {"refused": tuple(said["refused"]), "buried": tuple(said["buried"])}
    return Receipt(timestamp=Timestamp(clock, topic) if topic else None, **said)
