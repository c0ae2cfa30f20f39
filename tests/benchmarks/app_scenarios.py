"""The scenario of handlers, for `scenarios`: what an `App` costs beside the client that it uses."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tests.benchmarks.figures import Parameter, Row, Scenario, Target

__all__ = ["ALL"]

_APPS = "tests.benchmarks.rows.apps:"
_READ: dict[str, Parameter] = {
    "bootstrap": "{bootstrap}",
    "topic": "{topic}",
    "group": "{group}",
    "patience": 300,
}


def _apps(quick: bool) -> Scenario:
    warmup, measured = (1_000, 10_000) if quick else (50_000, 400_000)
    size: dict[str, Parameter] = {**_READ, "warmup": warmup, "measured": measured}
    slow: dict[str, Parameter] = {**_READ, "warmup": 200, "measured": 1_000 if quick else 20_000}
    faststream = "tests.benchmarks.rows.faststream:models"
    return Scenario(
        "apps",
        "Handlers with a pydantic model",
        f"{measured:,} messages of some 200 bytes of JSON after a warm-up of {warmup:,}, 1000 keys, 8 partitions; "
        "a model of five fields",
        {"rate": "msg/s"},
        [
            Row("app", "App: a handler with a model", f"{_APPS}handlers", True, "pull", size),
            Row("pull", "pull, with validate_json in the callback", f"{_APPS}callbacks", True, "", size),
            Row("app-async", "App: an async handler with a model", f"{_APPS}coroutines", True, "aio", size),
            Row("aio", "kafka_pubsub.aio, with validate_json", f"{_APPS}aio_callbacks", True, "", size),
            Row("faststream", "FastStream: AckPolicy.ACK, the same model", faststream, False, "", slow),
        ],
        [
            Target("60 % of pull", "app", "rate", at_least=0.6, beside="pull"),
            Target("20 times FastStream", "app", "rate", at_least=20, beside="faststream"),
            Target("async: 90 % of kafka_pubsub.aio", "app-async", "rate", at_least=0.9, beside="aio"),
        ],
        "tests.benchmarks.rows.apps:prepare",
        {"bootstrap": "{bootstrap}", "topic": "{topic}", "distinct": 1000, "messages": warmup + measured},
    )


ALL: Mapping[str, Callable[[bool], Scenario]] = {"apps": _apps}
