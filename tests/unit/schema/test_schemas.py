"""A released schema is never edited, and the records of every version stay readable.

Each version has its schema in `kafka_pubsub/schema/`, its checksum here, and a few of its records beside this file. Who
needs a field more writes the next version: another schema, another line here, other records.
"""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path

import fastavro
import pytest

from kafka_pubsub.core.commit.checkpoint import Checkpoint, Log, Part, joined, split
from kafka_pubsub.core.commit.notes import Notes
from kafka_pubsub.schema import checkpoints
from tests.unit.house.repository import ROOT

SCHEMAS = ROOT / "kafka_pubsub" / "schema"
RECORDS = Path(__file__).parent / "records"

#: Of every schema file; a released one is never changed.
CHECKSUMS = {
    "checkpoint/v1.avsc": "39e9fa31fd5bf241c90d5ccffdcbec97749e196c1f0dd30e291c461adb3ffa81",
}

SMALL = Checkpoint(
    nonce=7,
    writer=2**60 - 1,
    time=1_700_000_000_123,
    main=Log("main-id", 12, ((14, 15), (20, 31)), 40, 3, Notes(((12, 13), (33, 35)), 33)),
    retry=Log("retry-id", 5),
)
LARGE = SMALL._replace(retry=Log("retry-id", 5, tuple((at, at + 1) for at in range(7, 600, 3)), 601))


def test_no_schema_was_changed() -> None:
    found = {
        str(path.relative_to(SCHEMAS)): sha256(path.read_bytes()).hexdigest()
        for path in SCHEMAS.rglob("*.avsc")
    }
    assert found == CHECKSUMS


@pytest.mark.parametrize("name", sorted(CHECKSUMS))
def test_every_schema_is_avro_and_explains_its_fields(name: str) -> None:
    schema = json.loads((SCHEMAS / name).read_text(encoding="utf-8"))
    fastavro.parse_schema(schema)
    assert schema["doc"]
    assert all(field.get("doc") for field in schema["fields"])


def records_of(version: int) -> list[Part]:
    paths = sorted((RECORDS / "checkpoint").glob(f"v{version}-*.avro"))
    assert paths, f"no records of version {version} are kept"
    found = [checkpoints.decode(path.read_bytes(), version) for path in paths]
    return [part for part in found if part is not None]


@pytest.mark.parametrize("version", range(1, checkpoints.VERSION + 1))
def test_the_records_of_every_version_are_readable(version: int) -> None:
    small, *large = records_of(version)
    assert joined([small]) == SMALL
    assert joined(large) == LARGE


def test_what_is_written_now_is_what_is_kept() -> None:
    kept = sorted((RECORDS / "checkpoint").glob(f"v{checkpoints.VERSION}-*.avro"))
    assert [path.read_bytes() for path in kept] == [
        checkpoints.encode(part) for part in (*split(SMALL), *split(LARGE, 100))
    ]


def test_a_record_says_its_version() -> None:
    assert checkpoints.version_of([("a", b"b"), checkpoints.header()]) == checkpoints.VERSION
    assert checkpoints.version_of([checkpoints.header(99)]) == 99
    assert checkpoints.version_of([]) is None
    assert checkpoints.version_of([(checkpoints.SCHEMA_HEADER, b"another/v1")]) is None
    assert checkpoints.version_of([(checkpoints.SCHEMA_HEADER, b"checkpoint/vx")]) is None
    assert checkpoints.version_of([(checkpoints.SCHEMA_HEADER, None)]) is None


def test_a_record_of_a_version_that_is_not_known_is_not_guessed() -> None:
    assert checkpoints.decode(checkpoints.encode(split(SMALL)[0]), 99) is None
