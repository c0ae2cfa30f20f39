"""A checkpoint's records in Avro, with the schemas in `schemas/checkpoint/`.

Rules
1. A record is written with the newest schema, whose version is stored in the header `ps-schema`. It is read with the
   schema with which it was written, so records of every earlier version stay readable.
2. `decode` returns None for a record that is damaged or of an unknown version; `version_of` returns that version.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, cast

from kafka_pubsub.log.sealed import schema_text
from kafka_pubsub.model import Header, Run
from kafka_pubsub.subscribe.formats.checkpoint import Checkpoint, Log, Part
from kafka_pubsub.subscribe.formats.notes import Notes

__all__ = ["SCHEMA_HEADER", "VERSION", "decode", "encode", "header", "version_of"]

#: The header that holds the version of a record's schema.
SCHEMA_HEADER = "ps-schema"
#: The version with which records are written.
VERSION = 1

_KIND = "checkpoint"


def header(version: int = VERSION) -> Header:
    """Returns the header of a record of that version."""
    return SCHEMA_HEADER, f"{_KIND}/v{version}".encode()


def version_of(headers: Sequence[Header]) -> int | None:
    """Returns the schema version of a record with these headers; None if the record is no checkpoint."""
    said = next((value for name, value in reversed(headers) if name == SCHEMA_HEADER), None)
    kind, _, number = (said or b"").decode("utf-8", "replace").partition("/v")
    return int(number) if kind == _KIND and number.isascii() and number.isdigit() else None


@cache
def _schema(version: int) -> dict[str, Any]:
    import fastavro

    return cast("dict[str, Any]", fastavro.parse_schema(json.loads(schema_text(_KIND, version))))


def encode(part: Part) -> bytes:
    """Returns the record's value."""
    import fastavro

    checkpoint = part.checkpoint
    body = io.BytesIO()
    fastavro.schemaless_writer(
        body,
        _schema(VERSION),
        {
            "nonce": checkpoint.nonce,
            "number": part.number,
            "count": part.total,
            "checksum": part.checksum,
            "writer": checkpoint.writer,
            "time": checkpoint.time,
            "main": _written(checkpoint.main),
            "retry": _written(checkpoint.retry),
        },
    )
    return body.getvalue()


def decode(value: bytes | None, version: int | None = VERSION) -> Part | None:
    """Returns the part of a checkpoint that the record holds, or None if the record can't be decoded."""
    import fastavro

    if value is None or version is None or not 1 <= version <= VERSION:
        return None
    body = io.BytesIO(value)
    try:
        said = cast("dict[str, Any]", fastavro.schemaless_reader(body, _schema(version), None))
        if body.read(1):
            return None
        time = round(said["time"].timestamp() * 1000)
        checkpoint = Checkpoint(
            said["nonce"], said["writer"], time, _read(said["main"]), _read(said["retry"])
        )
        return Part(checkpoint, said["number"], said["count"], said["checksum"])
    except (EOFError, ValueError, IndexError, OverflowError, TypeError, KeyError):
        return None  # fastavro raises any of these for damaged records


def _written(log: Log) -> dict[str, Any]:
    return {
        "topic_id": log.topic_id,
        "position": log.position,
        "end": log.end,
        "epoch": log.epoch,
        "finished": _counts(log.runs, log.position),
        "started": _counts(log.notes.started, log.position),
        "trial": log.notes.trial,
    }


def _read(said: dict[str, Any]) -> Log:
    position = said["position"]
    notes = Notes(_runs(said["started"], position), said["trial"])
    return Log(
        said["topic_id"], position, _runs(said["finished"], position), said["end"], said["epoch"], notes
    )


def _counts(runs: Iterable[Run], at: int) -> list[int]:
    counts: list[int] = []
    for start, end in runs:
        counts += (start - at, end - start)
        at = end
    return counts


def _runs(counts: Sequence[int], at: int) -> tuple[Run, ...]:
    runs: list[Run] = []
    for gap, length in zip(counts[::2], counts[1::2], strict=True):
        runs.append((at + gap, at + gap + length))
        at += gap + length
    return tuple(runs)
