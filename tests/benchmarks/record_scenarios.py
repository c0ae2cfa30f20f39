"""The scenario of records, for `scenarios`: what a schema costs beside Confluent's serializers, and beside JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tests.benchmarks.figures import Parameter, Row, Scenario, Target

__all__ = ["ALL"]

_ROWS = "tests.benchmarks.rows.records:"
_READ: dict[str, Parameter] = {
    "bootstrap": "{bootstrap}",
    "topic": "{topic}",
    "group": "{group}",
    "patience": 300,
}
_FORMATS = ("avro", "json", "protobuf")


def _records(quick: bool) -> Scenario:
    warmup, measured = (1_000, 10_000) if quick else (50_000, 400_000)
    size: dict[str, Parameter] = {**_READ, "warmup": warmup, "measured": measured}
    return Scenario(
        "records",
        "Records: bodies by a schema",
        f"encoding and decoding without Kafka; handlers: {measured:,} messages of 5 fields after a warm-up of "
        f"{warmup:,}, 1000 keys, 8 partitions; the registry is in memory",
        {"encode": "encoded/s", "decode": "decoded/s", "rate": "msg/s", "requests": "requests"},
        [
            *(row for each in _FORMATS for row in _pair(each, 20_000 if quick else 50_000)),
            Row(
                "handler-avro",
                "App: a handler with a model, on Avro",
                f"{_ROWS}on_avro",
                True,
                "handler-json",
                size,
            ),
            Row("handler-json", "App: the same on JSON", f"{_ROWS}on_json", True, "", size),
        ],
        [
            *(
                Target(
                    f"{each}: 85 % of the bare serializer", each, metric, at_least=0.85, beside=f"{each}-bare"
                )
                for each in _FORMATS
                for metric in ("encode", "decode")
            ),
            Target("60 % of a handler on JSON", "handler-avro", "rate", at_least=0.6, beside="handler-json"),
            Target("no request per message", "handler-avro", "requests", at_most=0),
        ],
        f"{_ROWS}prepare",
        {"bootstrap": "{bootstrap}", "topic": "{topic}", "distinct": 1000, "messages": warmup + measured},
    )


def _pair(format_: str, count: int) -> list[Row]:
    size: dict[str, Parameter] = {"format_": format_, "count": count}
    bare = f"{format_}-bare"
    return [
        Row(format_, f"publish_record's and record()'s work, {format_}", f"{_ROWS}ours", True, bare, size),
        Row(bare, f"confluent-kafka's serializer, {format_}", f"{_ROWS}bare", False, "", size),
    ]


ALL: Mapping[str, Callable[[bool], Scenario]] = {"records": _records}
