"""What a message says of its schema: round trips, and what isn't taken for one."""

from __future__ import annotations

import struct
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_pubsub import BadRecord, InvalidArgument
from kafka_pubsub.records.frames import (
    CONFLUENT_HEADER,
    RECORD_HEADER,
    SchemaId,
    check_subject,
    frame,
    is_framed,
    split,
)

NUMBERS = st.integers(0, 2**31 - 1)
SUBJECTS = st.from_regex(r"\A[A-Za-z0-9._-]{1,50}\Z").filter(lambda each: each not in {".", ".."})


@given(NUMBERS, st.binary(max_size=20))
def test_a_frame_is_read_back(number: int, body: bytes) -> None:
    assert split([], frame(number) + body) == (SchemaId(number), body, True)
    assert is_framed([], frame(number) + body)


@given(NUMBERS, st.none() | SUBJECTS, st.binary(max_size=20))
def test_a_header_is_read_back_and_goes_before_the_body(
    number: int, subject: str | None, body: bytes
) -> None:
    headers = [(CONFLUENT_HEADER, b"?"), (RECORD_HEADER, str(SchemaId(number, subject)).encode())]
    assert split(headers, body) == (SchemaId(number, subject), body, False)
    assert is_framed(headers, body)


def test_confluents_header_is_read() -> None:
    guid = uuid4()
    headers = [(CONFLUENT_HEADER, b"\x01" + guid.bytes)]
    assert split(headers, b"body") == (SchemaId(0, guid=str(guid)), b"body", False)
    assert split([(CONFLUENT_HEADER, frame(17))], b"body")[0] == SchemaId(17)


def test_confluents_header_has_the_place_of_a_protobuf_message_behind_the_schema() -> None:
    guid = uuid4()
    headers = [(CONFLUENT_HEADER, b"\x01" + guid.bytes + b"\2\2")]
    assert split(headers, b"body") == (SchemaId(0, guid=str(guid)), b"\2\2body", True)


@pytest.mark.parametrize(
    ("headers", "body", "said"),
    [
        ([], b"", "its body is empty"),
        ([], b'{"a": 1}', "begins with b'{\"a\": 1}'"),
        ([], b"\0\0\0\1", "begins with"),
        ([], struct.pack(">bI", 1, 7), "begins with"),
        ([], b"\0\xff\xff\xff\xffx", "its schema's number is 4294967295"),
        ([(RECORD_HEADER, b"9999999999")], b"x", "more than registries have"),
        ([(RECORD_HEADER, None)], b"x", "its header record-schema is ''"),
        ([(RECORD_HEADER, b"-1")], b"x", "is '-1'"),
        ([(RECORD_HEADER, b"12345678901")], b"x", "neither a number"),
        ([(RECORD_HEADER, b"../1")], b"x", "is '../1'"),
        ([(RECORD_HEADER, b"a/b/1")], b"x", "is 'a/b/1'"),
        ([(RECORD_HEADER, b"/etc/1")], b"x", "is '/etc/1'"),
        ([(RECORD_HEADER, b"a\0/1")], b"x", "neither"),
        ([(RECORD_HEADER, b"\xff/1")], b"x", "neither"),
        ([(CONFLUENT_HEADER, b"\x01short")], b"x", "has 6 bytes"),
        ([(CONFLUENT_HEADER, None)], b"x", "has 0 bytes"),
    ],
)
def test_what_names_no_schema_is_a_bad_record(
    headers: list[tuple[str, bytes | None]], body: bytes, said: str
) -> None:
    with pytest.raises(BadRecord, match="it") as refused:
        split(headers, body)
    assert said in refused.value.message


@given(st.lists(st.tuples(st.sampled_from([RECORD_HEADER, CONFLUENT_HEADER, "x"]), st.binary())), st.binary())
def test_any_message_is_read_or_refused(headers: list[tuple[str, bytes | None]], body: bytes) -> None:
    try:
        schema, bare, _ = split(headers, body)
    except BadRecord:
        return
    assert body.endswith(bare)
    assert schema.subject is None or check_subject(schema.subject)


@pytest.mark.parametrize("subject", ["", "..", ".", "a/b", "a\0", "x" * 250, "ä"])
def test_a_subject_that_is_no_folder_is_refused(subject: str) -> None:
    with pytest.raises(InvalidArgument, match="can't be a subject"):
        check_subject(subject)
