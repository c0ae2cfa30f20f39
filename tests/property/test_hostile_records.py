"""No body crashes a codec or takes too much time or memory: 100,000 in every run, half of them new each day."""

from __future__ import annotations

import json

import pytest

from kafka_pubsub.records.codec import Format
from tests.property.hostile_records import search
from tests.seeds import DEEP, fixed, of_the_day

#: JSON Schema is the slowest by far.
RECORDS: dict[Format, int] = {"avro": 50_000, "json": 12_000, "protobuf": 38_000}


@pytest.mark.parametrize("format", RECORDS)
def test_each_record_is_decoded_or_refused(format: Format) -> None:
    records = RECORDS[format] * (10 if DEEP else 1)
    for seeds in (fixed(1), of_the_day(1)):
        ran = search(format, "--seed", str(seeds[0]), "--records", str(records // 2))
        assert ran.returncode == 0, ran.stderr
        found = json.loads(ran.stdout)
        assert found["bombs"] >= 2
        assert min(found["decoded"], found["values"]) > records / 200
        assert found["refused"] > records / 10


def test_they_are_a_hundred_thousand() -> None:
    assert sum(RECORDS.values()) >= 100_000
