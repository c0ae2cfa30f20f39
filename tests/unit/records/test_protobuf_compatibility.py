"""What surely breaks between two Protobuf schemas, and what is left alone."""

from __future__ import annotations

from kafka_pubsub.records.compatibility import find_breaks
from kafka_pubsub.records.protobuf_compatibility import compare_protobuf

# Each message is a case; what breaks stands beside it. One file of each version, because the compiler is slow.
OLD = """syntax = "proto2";
message Same { optional int64 id = 1; optional string note = 2; map<string, Same> next = 3; }
message Wider { optional int32 id = 1; optional string text = 2; optional int64 count = 3; optional sfixed32 x = 4; }
message Text { optional int64 id = 1; }
message Narrow { optional int64 id = 1; }
message Zigzag { optional int64 id = 1; }
message Bytes { optional bytes note = 1; }
message Fewer { repeated int64 id = 1; }
message Line { optional int64 price = 1; }
message Lines { repeated Line lines = 1; }
message Tags { map<string, int64> tags = 1; }
message Required { optional int64 id = 1; }
message Moved { optional int64 id = 1; optional int64 total = 2; }
message Swapped { optional int64 id = 1; optional int64 total = 2; }
message Gone { optional int64 id = 1; }
"""
NEW = """syntax = "proto2";
message Same { optional int64 number = 1; map<string, Same> next = 3; optional string more = 4; }
message Wider { optional int64 id = 1; optional bytes text = 2; repeated int64 count = 3; optional fixed32 x = 4; }
message Text { optional string id = 1; }
message Narrow { optional int32 id = 1; }
message Zigzag { optional sint64 id = 1; }
message Bytes { optional string note = 1; }
message Fewer { optional int64 id = 1; }
message Line { optional string price = 1; }
message Lines { repeated Line lines = 1; }
message Tags { map<string, string> tags = 1; }
message Required { required int64 id = 1; }
message Moved { optional int64 id = 1; optional int64 total = 9; }
message Swapped { optional int64 total = 1; optional int64 id = 2; }
"""


def test_what_breaks_is_named_and_nothing_else() -> None:
    assert dict(compare_protobuf(NEW, OLD)) == {
        "Text.id": "field 1 has int64 in bodies, which can't be read as string",
        "Narrow.id": "field 1 has int64 in bodies, which can't be read as int32",
        "Zigzag.id": "field 1 has int64 in bodies, which can't be read as sint64",
        "Bytes.note": "field 1 has bytes in bodies, which can't be read as string",
        "Fewer.id": "field 1 has several values in bodies, and only the last would be read",
        "Line.price": "field 1 has int64 in bodies, which can't be read as string",
        "Lines.lines.price": "field 1 has int64 in bodies, which can't be read as string",
        "Tags.tags.value": "field 2 has int64 in bodies, which can't be read as string",
        "Required.id": "it is required, and bodies may lack it",
        "Moved.total": "it has the number 9, and 2 in bodies, whose values would be lost",
        "Swapped.id": "it has the number 2, and 1 in bodies, whose values would be read as total",
        "Swapped.total": "it has the number 1, and 2 in bodies, whose values would be read as id",
        "Gone": "the message isn't there",
    }


def test_both_directions_are_compared() -> None:
    found = find_breaks("protobuf", NEW, {1: OLD}, "full")
    assert (1, "backward", "Gone", "the message isn't there") in found
    assert {each.field for each in found if each.direction == "forward"} == {
        "Wider.count",
        "Wider.id",
        "Wider.text",
        "Text.id",
        "Zigzag.id",
        "Line.price",
        "Lines.lines.price",
        "Tags.tags.value",
        "Moved.total",
        "Swapped.id",
        "Swapped.total",
    }
