"""The path of a Protobuf message in Confluent's frame."""

from __future__ import annotations

import pytest

from kafka_pubsub.records.message_index import join_index, split_index


@pytest.mark.parametrize(
    ("path", "written"),
    [([0], b"\x00"), ([1], b"\x02\x02"), ([0, 0], b"\x04\x00\x00"), ([2, 100], b"\x04\x04\xc8\x01")],
)
def test_a_path_is_written_as_confluent_writes_it(path: list[int], written: bytes) -> None:
    assert join_index(path) == written
    assert split_index(written + b"body") == (path, b"body")


@pytest.mark.parametrize(
    "body", [b"", b"\x02", b"\x04\x02", b"\x80", b"\xff" * 9, b"\x01", b"\xfe\xff\xff\xff\x0f" + bytes(99)]
)
def test_a_broken_path_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match="broken"):
        split_index(body)
