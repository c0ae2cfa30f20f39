"""A released schema is never edited, and the records of every version stay readable.

Each version has its schema in `schemas/`, its checksum here, and a few of its records beside this file. Who
needs a field more writes the next version: another schema, another line here, other records.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import fastavro
import pytest

from kafka_pubsub.delays import records as delays
from kafka_pubsub.multicast import records as multicast
from kafka_pubsub.multicast.values import Alive, Gone, Proposal, Stage, Timestamp
from kafka_pubsub.subscribe.formats.checkpoint import Checkpoint, Log, Part, joined, split
from kafka_pubsub.subscribe.formats.notes import Notes
from kafka_pubsub.subscribe.retry_topic import checkpoint_records as checkpoints
from tests.unit.house.repository import ROOT

SCHEMAS = ROOT / "schemas"
RECORDS = Path(__file__).parent / "records"

#: Of every schema file; a released schema is never changed.
CHECKSUMS = {
    "alive/v1.avsc": "21cf60daa4bef4882f9a0a604face07802ecfa9798b27eeb2776d11ec27ee752",
    "checkpoint/v1.avsc": "39e9fa31fd5bf241c90d5ccffdcbec97749e196c1f0dd30e291c461adb3ffa81",
    "delay_cancel/v1.avsc": "0ae44404880e59debc498e0478abfa122a87d3948af0adcc5f5ba79bec166d65",
    "delay_request/v1.avsc": "07d061c5b53a81a496926444b5f5fe3399b50f2041e4b0b4863e1ee9d206efd0",
    "delayed/v1.avsc": "9876041f2f5f42cf1363ca60678123796d2fb1691d8d0900658acfbaec44b941",
    "gone/v1.avsc": "c4ede4dd0d1f0244d674486b98e1792eba98f13a1004482da1e312f0f45a385b",
    "proposal/v1.avsc": "fc34f2f1348b0dda478a673dc0adf433261af7d2dc9e0f6e76ad99f956a2dcf3",
    "receipt/v1.avsc": "5da5ae2a644818b009450edc9cd750fb46ef4ed11f0fa0f6b6d1f1cd4cece713",
    "stage/v1.avsc": "23d0e41fda00ad718ff40e9fee461bd74b3b84b909dabf0a6da3cbac76b39a24",
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


#: The data of each kind of the delays' records, and how they are written and read.
REQUEST = delays.DelayRequest("orders.eu", None, 2**28 * 1000 - 1)
ABSOLUTE = delays.DelayRequest("orders.eu", 1_700_000_000_123, None)
DELAYED = delays.Delayed("orders.eu", 1_700_000_000_123, 1_700_000_000_000, 2**27 + 5, 2**40)
CANCEL = delays.DelayCancel(1_700_000_000_123, 2**40, 2**40 + 7, 1_700_000_000_000, 2**27 + 5)
KEPT: dict[str, tuple[bytes, Callable[[bytes], bool]]] = {
    "delay_cancel/v1-0": (delays.encode_cancel(CANCEL), lambda value: delays.decode_cancel(value) == CANCEL),
    "delay_request/v1-0": (
        delays.encode_request(REQUEST),
        lambda value: delays.decode_request(value) == REQUEST,
    ),
    "delay_request/v1-1": (
        delays.encode_request(ABSOLUTE),
        lambda value: delays.decode_request(value) == ABSOLUTE,
    ),
    "delayed/v1-0": (delays.encode_delayed(DELAYED), lambda value: delays.decode_delayed(value) == DELAYED),
}


@pytest.mark.parametrize("name", sorted(KEPT))
def test_what_is_kept_of_the_delays_is_readable_and_written_so_now(name: str) -> None:
    written, is_read = KEPT[name]
    kept = (RECORDS / f"{name}.avro").read_bytes()
    assert is_read(kept)
    assert kept == written


def test_the_header_of_a_tier_is_avro_of_its_schema() -> None:
    schema = json.loads((SCHEMAS / "delayed" / "v1.avsc").read_text("ascii"))
    for home in ("orders.eu", "o" * 249):
        value = delays.encode_delayed(DELAYED._replace(home=home))
        body = io.BytesIO(value[1:-4])
        assert fastavro.schemaless_reader(body, schema, None) == DELAYED._replace(home=home)._asdict()
        assert not body.read(1)
        assert delays.decode_delayed(value) == DELAYED._replace(home=home)


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_header_of_numbers_that_are_none_says_nothing(number: float) -> None:
    odd = DELAYED._replace(due=number)  # type: ignore[arg-type]
    assert delays.decode_delayed(delays.encode_delayed(odd)) is None


def test_all_that_is_kept_of_the_delays_is_tested() -> None:
    kinds = ("delay_cancel", "delay_request", "delayed")
    kept = {f"{kind}/{path.stem}" for kind in kinds for path in (RECORDS / kind).iterdir()}
    assert kept == set(KEPT)


@pytest.mark.parametrize("decode", [delays.decode_request, delays.decode_delayed, delays.decode_cancel])
def test_a_damaged_or_foreign_delay_header_says_nothing(
    decode: Callable[[bytes | None], object],
) -> None:
    kept = (delays.encode_request(REQUEST), delays.encode_delayed(DELAYED), delays.encode_cancel(CANCEL))
    for written in kept:
        for at in range(len(written)):
            assert decode(written[:at] + bytes([written[at] ^ 1]) + written[at + 1 :]) is None
        assert decode(written[:-1]) is None
    for value in (None, b"", b"1", b"12345", b"{}" * 100):
        assert decode(value) is None


def test_a_tick_is_told_by_its_header() -> None:
    assert delays.is_tick([("a", b"b"), delays.TICK_HEADER])
    assert delays.is_tick([("ps-schema", b"tick/v1")]), "what routers wrote before"
    assert not delays.is_tick([("ps-schema", b"checkpoint/v1"), ("tick/v1", b"")])


TIMESTAMP = Timestamp(2**40, "orders/0@7fGh2kQz")
DESTINATIONS = ("billing/1@8aBc3dEf", "orders/0@7fGh2kQz")
#: The records of inboxes and of receipts, by the header in which they lie.
MULTICAST: dict[str, tuple[str, object]] = {
    "alive/v1-0": ("ps-alive", Alive("7fGh2kQzR0-x_Yz1234567")),
    "gone/v1-0": ("ps-gone", Gone("orders/0@7fGh2kQz")),
    "proposal/v1-0": ("ps-proposal", Proposal("3b1e-5", TIMESTAMP, True, 2**33)),
    "receipt/v1-0": (
        "ps-receipt",
        multicast.Receipt("3b1e-5", TIMESTAMP, (), "billing/1@8aBc3dEf", (0, 7), "too large"),
    ),
    "receipt/v1-1": ("ps-receipt", multicast.Receipt("3b1e-6", None, DESTINATIONS[:1], DESTINATIONS[1])),
    "stage/v1-0": (
        "ps-stage",
        multicast.StageRecord(Stage("3b1e-5", DESTINATIONS, ("audit/0@9xYz8wVu",), "", 2**39), 12),
    ),
    "stage/v1-1": (
        "ps-stage",
        multicast.StageRecord(Stage("3b1e-7", DESTINATIONS[:1], (), "orders@7fGh2kQzR0-x_Yz1234567"), 0),
    ),
}


def read_multicast(name: str, value: bytes) -> object:
    header = (MULTICAST[name][0], value)
    return (
        multicast.decode_receipt([header]) if header[0] == "ps-receipt" else multicast.decode_inbox([header])
    )


@pytest.mark.parametrize("name", sorted(MULTICAST))
def test_what_is_kept_of_causal_topics_is_readable_and_written_so_now(name: str) -> None:
    header, said = MULTICAST[name]
    kept = (RECORDS / f"{name}.avro").read_bytes()
    write = getattr(multicast, f"encode_{name.partition('/')[0]}")
    assert read_multicast(name, kept) == said
    assert write(said) == (header, kept)


@pytest.mark.parametrize("name", sorted(MULTICAST))
def test_a_damaged_record_of_a_causal_topic_says_nothing(name: str) -> None:
    kept = (RECORDS / f"{name}.avro").read_bytes()
    for at in range(len(kept)):
        assert read_multicast(name, kept[:at] + bytes([kept[at] ^ 1]) + kept[at + 1 :]) is None
    assert read_multicast(name, kept[:-1]) is None


def test_records_of_every_version_of_every_schema_are_kept_and_tested() -> None:
    kept = {f"{path.parent.name}/{path.stem}" for path in RECORDS.glob("*/*.avro")}
    versions = {name.rpartition("-")[0] for name in kept}
    assert versions == {name.removesuffix(".avsc") for name in CHECKSUMS}
    assert kept == {*KEPT, *MULTICAST, *(name for name in kept if name.startswith("checkpoint/"))}


@pytest.mark.parametrize("folder", sorted(path.name for path in SCHEMAS.iterdir() if path.is_dir()))
def test_a_page_of_every_record_names_what_writes_and_reads_it(folder: str) -> None:
    page = (SCHEMAS / folder / "README.md").read_text(encoding="utf-8")
    for row in ("| lies in | ", "| is written by | ", "| is read by | "):
        assert row in page
    for version in (path.name for path in (SCHEMAS / folder).glob("*.avsc")):
        assert f"`{version}` is released" in page
    modules = re.findall(r"`((?:kafka_pubsub|spark)/[a-z_/]+\.py)`", page)
    assert len(modules) >= 3
    assert [name for name in modules if not (ROOT / name).is_file()] == []
