"""The records of ingest and of the tiers, as a router reads them.

Rules
1. Nothing that another program writes there raises, or the partition would stop: it is a record that isn't ours.
2. What a newer version of ours wrote raises `FailedPrecondition`: the partition waits for a router that can read it.
"""

from __future__ import annotations

from kafka_pubsub.delays.records import (
    CANCEL_HEADER,
    DELAY_HEADER,
    VERSION,
    DelayCancel,
    decode_cancel,
    decode_request,
    is_tick,
    open_delayed,
)
from kafka_pubsub.delays.stamps import stamp_of
from kafka_pubsub.delays.values import Came, Tick, Waiting
from kafka_pubsub.errors import FailedPrecondition
from kafka_pubsub.log.sealed import newer_version
from kafka_pubsub.model import Header, StoredRecord

__all__ = ["cancel_of", "others_of", "read_delayed", "read_ingest", "read_tier", "why_dead"]


def header_of(record: StoredRecord) -> bytes | None:
    """What we say of the message: the first header, as we write it."""
    headers = record.headers()
    if not headers:
        return None
    name, value = headers[0]
    if name == DELAY_HEADER:
        return value
    return next((value for name, value in headers if name == DELAY_HEADER), None)


def read_delayed(record: StoredRecord) -> tuple[str, int, int, int, int] | None:
    """Reads what the header of a tier's record says of its message; None: it says nothing."""
    header = header_of(record)
    return None if header is None else open_delayed(header)


def others_of(record: StoredRecord) -> list[Header]:
    """The publisher's own headers."""
    headers = record.headers() or []
    if headers and headers[0][0] == DELAY_HEADER:
        return headers[1:]
    return [header for header in headers if header[0] != DELAY_HEADER]


def read_ingest(record: StoredRecord) -> Came | Tick:
    """Reads a record of ingest."""
    offset, stamp = record.offset() or 0, stamp_of(record)
    try:
        found = _read_ingest(record, offset, stamp)
    except Exception:
        found = None
    if found is None:
        _refuse_newer(record)
    return found or Came(offset, None, None, None, record, stamp=stamp)


def _read_ingest(record: StoredRecord, offset: int, stamp: int | None) -> Came | Tick | None:
    said = decode_request(header_of(record))
    if said is not None:
        return Came(offset, said.home, said.due, said.delay, record, stamp=stamp)
    if is_tick(record.headers() or ()):
        return Tick(offset, stamp)
    cancel = cancel_of(record)
    return cancel and Came(offset, "", cancel.due, None, record, cancel.target, stamp)


def read_tier(record: StoredRecord, tier: int) -> Waiting | None:
    """Reads a record of a tier; returns None if it isn't ours. What is left is less than a tier holds."""
    try:
        said = read_delayed(record)
        if said is None:
            found = read_cancel(record)
        else:
            home, due, leaves, left, came = said
            found = Waiting(leaves, came, due, left, home, record.offset() or 0, record)
    except Exception:
        found = None
    if found is None:
        _refuse_newer(record)
    return None if found is None or found.left >> tier else found


def _refuse_newer(record: StoredRecord) -> None:
    for name, value in record.headers() or ():
        version = newer_version(VERSION, value) if name in (DELAY_HEADER, CANCEL_HEADER) else None
        if version is not None:
            raise FailedPrecondition(
                f"delay router: record {record.offset()} of partition {record.partition()} of {record.topic()!r} is of "
                f"version {version}, and this router reads version {VERSION}: a newer kafka_pubsub has written it. "
                "Nothing of this partition is delivered until a router of that version runs; update this process"
            )


def cancel_of(record: StoredRecord) -> DelayCancel | None:
    """Returns what a request to cancel says; None: the record isn't one."""
    values = [value for name, value in record.headers() or () if name == CANCEL_HEADER]
    return decode_cancel(values[0]) if values else None


def read_cancel(record: StoredRecord) -> Waiting | None:
    """Reads a tier's record as a request to cancel; returns None if it isn't one."""
    said = cancel_of(record)
    if said is None:
        return None
    return Waiting(
        said.leaves, said.offset, said.due, said.left, "", record.offset() or 0, record, said.target
    )


def why_dead(record: StoredRecord) -> str:
    """Returns why a record that isn't ours, or is too long for the tiers, becomes a dead letter."""
    if header_of(record) is None:
        return f"a record without the header {DELAY_HEADER}: it wasn't written by kafka_pubsub"
    if decode_request(header_of(record)) is not None:
        return "its delay is longer than the tiers of this cluster can hold"
    return f"its header {DELAY_HEADER} can't be read"
