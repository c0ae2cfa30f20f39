"""The scenarios: the measurements, their data, and their targets.

The sizes are such that a row runs for some seconds after its warm-up; `quick` shrinks them until they only show
that everything works. All sizes of a scenario are in a single place and the same for all its rows, except where a row's
note says so (FastStream handles some two thousand messages a second; two million would take half an hour).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tests.benchmarks import (
    app_scenarios,
    delay_scenarios,
    lane_scenarios,
    latency_scenarios,
    multicast_scenarios,
    observed_scenarios,
    push_scenarios,
    record_scenarios,
    start_scenarios,
    worker_scenarios,
)
from tests.benchmarks.data import A_KEY_EACH
from tests.benchmarks.figures import Parameter, Row, Scenario, Target

__all__ = ["FAILING_S", "NAMES", "scenarios"]

_ROWS = "tests.benchmarks.rows."
_FILL = "tests.benchmarks.cluster:prepare"
# Only to warm the broker up, where the rows publish for themselves.
_WARMUP = 200_000
_LOG: dict[str, Parameter] = {"bootstrap": "{bootstrap}", "topic": "{topic}"}
_READ: dict[str, Parameter] = {**_LOG, "group": "{group}"}
#: Seconds for which a single key fails in `failing`, as its figure asks for.
FAILING_S = 600


def _fill(distinct: int, messages: int) -> Mapping[str, Parameter]:
    return {**_LOG, "distinct": distinct, "messages": messages}


def _publish(quick: bool) -> Scenario:
    size: dict[str, Parameter] = {
        **_LOG,
        "distinct": 1000,
        "warmup": 500 if quick else 20_000,
        "measured": 5_000 if quick else 400_000,
    }
    return Scenario(
        "publish",
        "Publish with ordering keys, all acknowledged by the broker",
        f"{size['measured']:,} messages of 1 KB, 1000 keys, 8 partitions, idempotent, acks=all, no compression",
        {"rate": "msg/s", "cpu_us": "us of CPU a message"},
        [
            Row("ours", "kafka_pubsub: a future each", f"{_ROWS}ours:publish", True, "raw", size),
            Row("many", "kafka_pubsub: publish_many", f"{_ROWS}ours:publish_many", True, "raw", size),
            Row("raw", "confluent-kafka: produce with callbacks", f"{_ROWS}raw:publish", parameters=size),
            Row(
                "floor",
                "confluent-kafka: a bare slotted future each",
                f"{_ROWS}raw:floor",
                False,
                "raw",
                parameters=size,
            ),
            Row("aiokafka", "aiokafka: a future each", f"{_ROWS}aiokafka:publish", False, "raw", size),
        ],
        [
            Target("65 % of raw confluent-kafka", "ours", "rate", at_least=0.65, beside="raw"),
            Target("publish_many: 75 %", "many", "rate", at_least=0.75, beside="raw"),
        ],
        _FILL,
        _fill(1000, 1_000 if quick else _WARMUP),
    )


def _pull(quick: bool) -> Scenario:
    warmup, measured = (2_000, 20_000) if quick else (200_000, 2_000_000)
    size: dict[str, Parameter] = {**_READ, "warmup": warmup, "measured": measured, "patience": 600}
    slow = {**size, "warmup": 200 if quick else 2_000, "measured": 1_000 if quick else 20_000}
    trial: dict[str, Parameter] = {"trial": 5_000 if quick else 400_000}
    best: dict[str, Parameter] = {**size, **trial, "threads": [16] if quick else [16, 64, 100, 200]}
    raw: dict[str, Parameter] = {**size, **trial, "batches": [500] if quick else [200, 500, 1000, 5000]}
    return Scenario(
        "pull",
        "Pull with a callback that only acknowledges",
        f"{measured:,} messages of 1 KB after a warm-up of {warmup:,}, 1000 keys, 8 partitions, individual acks",
        {"rate": "msg/s"},
        [
            Row("ours", "kafka_pubsub: ack each, order per key", f"{_ROWS}ours:pull", True, "raw", size),
            Row("raw", "confluent-kafka: consume(n), fields read", f"{_ROWS}raw:pull", parameters=raw),
            Row(
                "parallel-consumer",
                "Parallel Consumer KEY, best thread count",
                f"{_ROWS}parallel_consumer:pull",
                False,
                "raw",
                best,
            ),
            Row("aiokafka", "aiokafka: manual commit", f"{_ROWS}aiokafka:pull", False, "raw", size),
            Row("faststream", "FastStream: ack each", f"{_ROWS}faststream:pull", False, "raw", slow),
            Row("share", "ShareConsumer: no order", f"{_ROWS}share:pull", False, "raw", size),
        ],
        [
            Target("50 % of raw confluent-kafka", "ours", "rate", at_least=0.5, beside="raw"),
            Target("200,000 msg/s", "ours", "rate", at_least=200_000),
            Target("2 x Parallel Consumer", "ours", "rate", at_least=2.0, beside="parallel-consumer"),
        ],
        _FILL,
        _fill(1000, warmup + measured),
    )


def _handler(quick: bool) -> Scenario:
    warmup, measured = (500, 3_000) if quick else (20_000, 200_000)
    bare: dict[str, Parameter] = {"workers": 100, "warmup": warmup, "measured": measured, "handler": 0.005}
    size = {**_READ, **bare, "patience": 300}
    parallel = f"{_ROWS}parallel_consumer:handle"
    return Scenario(
        "handler",
        "Pull with a callback of 5 ms, 100 workers",
        f"{measured:,} messages of 1 KB after a warm-up of {warmup:,}, 100 keys, 8 partitions",
        {"rate": "msg/s"},
        [
            Row("ours-threads", "kafka_pubsub: threads", f"{_ROWS}ours:handler", True, "threads", size),
            Row("threads", "100 bare threads that sleep", f"{_ROWS}raw:bare_threads", parameters=bare),
            Row("ours-asyncio", "kafka_pubsub.aio", f"{_ROWS}ours_aio:handler", True, "tasks", size),
            Row("tasks", "100 bare asyncio tasks that sleep", f"{_ROWS}raw:bare_tasks", parameters=bare),
            Row("parallel-consumer", "Parallel Consumer KEY, 100 threads", parallel, False, "threads", size),
        ],
        [
            Target("threads: 90 % of bare threads", "ours-threads", "rate", at_least=0.9, beside="threads"),
            Target("asyncio: 90 % of bare tasks", "ours-asyncio", "rate", at_least=0.9, beside="tasks"),
        ],
        _FILL,
        # More than is measured: towards the end of a log keys run dry, and with them the concurrency.
        _fill(100, round((warmup + measured) * 1.5)),
    )


def _stuck(quick: bool) -> Scenario:
    seconds = 3 if quick else 30
    size: dict[str, Parameter] = {
        **_READ,
        "workers": 100,
        "handler": 0.005,
        "warmup": 1_000 if quick else 20_000,
        "seconds": seconds,
        "patience": 180,
    }
    return Scenario(
        "stuck",
        f"One key's callback stuck for {seconds} s",
        "1000 keys, 100 workers, callbacks of 5 ms: what the other 999 keys get done in that time",
        {"others_rate": "msg/s of the others"},
        [
            Row("ours", "one key stuck", f"{_ROWS}ours:stuck", True, "free", {**size, "stick": True}),
            Row("free", "no key stuck", f"{_ROWS}ours:stuck", True, "", {**size, "stick": False}),
        ],
        [Target("the others lose at most 10 %", "ours", "others_rate", at_least=0.9, beside="free")],
        _FILL,
        _fill(1000, 100_000 if quick else 800_000),
    )


def _latency(quick: bool) -> Scenario:
    size: dict[str, Parameter] = {
        "bootstrap": "{bootstrap}",
        "group": "{group}",
        "rate": 5000,
        "warmup_seconds": 2 if quick else 5,
        "seconds": 2 if quick else 30,
        "distinct": 1000,
    }
    return Scenario(
        "latency",
        "From publish to callback at 5,000 msg/s, open loop",
        f"{size['seconds']} s after {size['warmup_seconds']} s of warm-up; measured from the instant each message "
        "was meant to be sent; publisher and consumer in a process each",
        {"p50_ms": "p50 ms", "p99_ms": "p99 ms", "max_ms": "max ms"},
        [
            Row("ours", "kafka_pubsub to kafka_pubsub", f"{_ROWS}latency:ours", True, parameters=size),
            Row("raw", "confluent-kafka to confluent-kafka", f"{_ROWS}latency:raw", parameters=size),
        ],
        [
            Target("p50 at most 5 ms", "ours", "p50_ms", at_most=5),
            Target("p99 at most 25 ms", "ours", "p99_ms", at_most=25),
            Target("p99 at most 3 times that of raw", "ours", "p99_ms", at_most=3, beside="raw"),
        ],
        _FILL,
        _fill(1000, 1_000 if quick else _WARMUP),
    )


def _memory(quick: bool) -> Scenario:
    messages, distinct = (20_000, 2_000) if quick else (1_000_000, 100_000)
    size: dict[str, Parameter] = {**_READ, "messages": messages, "patience": 300}
    slow = {**size, "slow_seconds": 2 if quick else 20}
    return Scenario(
        "memory",
        "Memory of a consumer with a backlog",
        f"{messages:,} messages of 1 KB, {distinct:,} keys; ours handles them slowly (5 ms each, 16 workers) for "
        f"{slow['slow_seconds']} s, so that its buffers fill, then at full speed to the end",
        {"peak_mb": "peak MB"},
        [
            Row("ours", "kafka_pubsub", f"{_ROWS}ours:memory", True, parameters=slow),
            Row("raw", "confluent-kafka: consume(5000)", f"{_ROWS}raw:memory", parameters=size),
        ],
        [Target("under 300 MB resident", "ours", "peak_mb", at_most=300)],
        _FILL,
        _fill(distinct, messages),
    )


def _kill(quick: bool) -> Scenario:
    kills = 2 if quick else 20
    messages = 400_000 if quick else 3_000_000
    size: dict[str, Parameter] = {**_READ, "kills": kills, "messages": messages, "distinct": 1000}
    return Scenario(
        "kill",
        f"kill -9 of the consumer at full speed, {kills} times",
        f"{messages:,} messages, 1000 keys; each delivery and each ack is in a diary that survives the kill",
        {
            "kills": "kills",
            "deliveries": "deliveries",
            "redeliveries": "redeliveries",
            "lost": "lost",
            "disordered": "out of order",
            "excess": "redeliveries too many",
            "stale": "redelivered, acked >200 ms before",
            "rate": "msg/s at the kill",
        },
        [Row("ours", "kafka_pubsub", f"{_ROWS}kill:ours", True, parameters=size)],
        [
            Target(f"{kills} kills at full speed", "ours", "kills", at_least=kills),
            Target("nothing lost", "ours", "lost", at_most=0),
            Target("no key out of order", "ours", "disordered", at_most=0),
            Target("redelivered: in flight + acks of the last 200 ms", "ours", "excess", at_most=0),
        ],
        _FILL,
        _fill(1000, messages),
        repeatable=False,
    )


def _nacks(quick: bool, name: str = "nacks", distinct: int = 100_000, backoff: float = 1.0) -> Scenario:
    """`backoff`: seconds before each redelivery."""
    warmup, measured = (2_000, 20_000) if quick else (500_000, 2_000_000)
    distinct = min(distinct, 2_000) if quick else distinct
    size: dict[str, Parameter] = {**_READ, "warmup": warmup, "measured": measured, "patience": 600}

    def row(name: str, title: str, percent: int, beside: str) -> Row:
        return Row(name, title, f"{_ROWS}redelivery:nacks", True, beside, {**size, "percent": percent})

    return Scenario(
        name,
        f"Pull while messages are nacked, redelivered after {backoff:g} s, {distinct:,} keys",
        f"{measured:,} messages of 1 KB acknowledged after a warm-up of {warmup:,}, {distinct:,} keys, 8 partitions; "
        "a message is nacked in its first delivery; the same subscription options in all rows",
        {"rate": "msg/s acknowledged", "nacked": "nacked"},
        [
            row("none", "no nacks", 0, ""),
            row("one", "1 % nacked", 1, "none"),
            row("ten", "10 % nacked", 10, "none"),
        ],
        [
            Target("1 % nacks: 65 % of the throughput without", "one", "rate", at_least=0.65, beside="none"),
            Target("10 % nacks: 35 % of the throughput without", "ten", "rate", at_least=0.35, beside="none"),
        ],
        _FILL,
        # More than is measured, so that the log doesn't run dry while messages wait for their backoff.
        {**_fill(distinct, round((warmup + measured) * 1.2)), "backoff": backoff},
    )


def _failing(quick: bool, seconds: int) -> Scenario:
    size: dict[str, Parameter] = {
        "bootstrap": "{bootstrap}",
        "group": "{group}",
        "rate": 2_000 if quick else 20_000,
        "share": 0.2,
        "distinct": 1_000 if quick else 10_000,
        "before": 3 if quick else 20,
        "seconds": seconds,
    }
    asked = "" if seconds == FAILING_S else f" (its figure asks for {FAILING_S} s)"
    return Scenario(
        "failing",
        f"One key fails for {seconds} s{asked} while it is 20 % of the traffic",
        f"{size['rate']:,} msg/s of 1 KB in an open loop, {size['distinct']:,} keys; beside the rate of the others "
        f"in the {size['before']} s before",
        {
            "others_rate": "msg/s of the others",
            "kept": "of before",
            "growth_mb": "MB more",
            "main_map": "fullest map",
            "retry_map": "fullest retry map",
            "disordered": "out of order",
        },
        [Row("ours", "kafka_pubsub", f"{_ROWS}failing:failing", True, parameters=size)],
        [
            Target("the others lose at most 10 %", "ours", "kept", at_least=0.9),
            Target("memory grows less than 100 MB", "ours", "growth_mb", at_most=100),
            Target("the ack map below its budget", "ours", "main_map", at_most=0.99),
            Target("the retry topic's too", "ours", "retry_map", at_most=0.99),
            Target("no key out of order", "ours", "disordered", at_most=0),
        ],
        _FILL,
        _fill(1000, 1_000 if quick else _WARMUP),
        repeatable=False,
    )


def _parked(quick: bool) -> Scenario:
    messages, distinct = (5_000, 50) if quick else (1_000_000, 10_000)
    return _parked_on(
        "parked",
        f"{messages:,} messages of 1 KB on {distinct:,} keys, behind a first one each that was nacked for an hour; "
        "among twice as many on other keys",
        messages,
        3 * distinct,
        quick,
        [
            Target("less than 200 MB", "ours", "growth_mb", at_most=200),
            Target("first delivery within 10 s", "ours", "first_delivery_s", at_most=10),
        ],
    )


def _parked_keys(quick: bool) -> Scenario:
    messages = 5_000 if quick else 1_000_000
    return _parked_on(
        "parked_keys",
        f"{messages:,} messages of 1 KB, each with a key of its own and nacked for an hour; among twice as many others",
        messages,
        A_KEY_EACH,
        quick,
        [
            Target("less than 300 MB", "ours", "growth_mb", at_most=300),
            Target("first delivery within 12 s", "ours", "first_delivery_s", at_most=12),
        ],
    )


def _parked_on(
    name: str, setting: str, messages: int, distinct: int, quick: bool, targets: list[Target]
) -> Scenario:
    size: dict[str, Parameter] = {**_READ, "messages": messages, "patience": 120 if quick else 600}
    return Scenario(
        name,
        "Messages parked in the retry topic, and a restart",
        setting,
        {"growth_mb": "MB for them", "first_delivery_s": "s from restart to first delivery"},
        [Row("ours", "kafka_pubsub", f"{_ROWS}parked:parked", True, parameters=size)],
        targets,
        _FILL,
        {**_fill(distinct, 3 * messages), "backoff": 1.0},
    )


def _members(quick: bool) -> Scenario:
    size: dict[str, Parameter] = {
        "bootstrap": "{bootstrap}",
        "group": "{group}",
        "rate": 2_000 if quick else 20_000,
        "distinct": 1000,
        "step": 4 if quick else 10,
    }
    call = f"{_ROWS}members:members"

    def targets(row: str, seconds: int) -> list[Target]:
        return [
            Target(f"{row}: no key stalls longer than {seconds} s", row, "stall_s", at_most=seconds),
            Target(f"{row}: redelivered only what was in flight", row, "excess", at_most=0),
            Target(f"{row}: nothing lost", row, "lost", at_most=0),
            Target(f"{row}: no key out of order", row, "disordered", at_most=0),
        ]

    return Scenario(
        "members",
        f"Members 1 to 4 to 2 at {size['rate']:,} msg/s",
        f"one joins or goes every {size['step']} s; 1000 keys, 1 % nacked; killed: one at any moment, one inside a "
        "transaction",
        {
            "stall_s": "longest stall s",
            "redelivered": "redelivered",
            "excess": "too many",
            "lost": "lost",
            "disordered": "out of order",
        },
        [
            Row("peace", "joining and leaving in good order", call, True, parameters={**size, "kill": False}),
            Row("killed", "leaving by kill -9", call, True, parameters={**size, "kill": True}),
        ],
        [*targets("peace", 2), *targets("killed", 10)],
        _FILL,
        _fill(1000, 1_000 if quick else _WARMUP),
    )


def _exactly_once(quick: bool) -> Scenario:
    # A future for each ack: some 10,000 messages a second, so each life takes tens of thousands.
    kills, messages = (2, 100_000) if quick else (20, 600_000)
    size: dict[str, Parameter] = {**_READ, "kills": kills, "messages": messages, "distinct": 1000}
    return Scenario(
        "exactly_once",
        f"kill -9 of a consumer with exactly_once at full speed, {kills} times",
        f"{messages:,} messages, 1000 keys, 1 % nacked, each ack's answer asked for; each delivery and each ack that "
        "was told to be durable is in a diary that survives the kill",
        {
            "kills": "kills",
            "deliveries": "deliveries",
            "durable": "durable acks",
            "again": "redelivered though durable",
            "untrue": "durable of an old delivery",
            "redelivered": "redelivered, not durable",
            "lost": "lost",
            "disordered": "out of order",
            "left": "left in the end",
            "rate": "msg/s at the kill",
        },
        [Row("ours", "kafka_pubsub", f"{_ROWS}exactly_once:ours", True, parameters=size)],
        [
            Target(f"{kills} kills at full speed", "ours", "kills", at_least=kills),
            Target("nothing redelivered that had a durable ack", "ours", "again", at_most=0),
            Target("only the newest delivery's ack is durable", "ours", "untrue", at_most=0),
            Target("nothing lost", "ours", "lost", at_most=0),
            Target("no key out of order", "ours", "disordered", at_most=0),
            Target("nothing left", "ours", "left", at_most=0),
        ],
        _FILL,
        {**_fill(1000, messages), "backoff": 0.1, "exactly_once": True},
        repeatable=False,
    )


_ALL: Mapping[str, Callable[[bool], Scenario]] = {
    "publish": _publish,
    "pull": _pull,
    "handler": _handler,
    "stuck": _stuck,
    "latency": _latency,
    "memory": _memory,
    "kill": _kill,
    "nacks": _nacks,
    # A tenth of a second is the default of a `RetryPolicy`.
    "nacks_default": lambda quick: _nacks(quick, "nacks_default", backoff=0.1),
    "nacks_1000": lambda quick: _nacks(quick, "nacks_1000", 1_000, 0.1),
    "failing": lambda quick: _failing(quick, 4 if quick else FAILING_S),
    "parked": _parked,
    "parked_keys": _parked_keys,
    "members": _members,
    "exactly_once": _exactly_once,
    **app_scenarios.ALL,
    **record_scenarios.ALL,
    **push_scenarios.ALL,
    **worker_scenarios.ALL,
    **delay_scenarios.ALL,
    **lane_scenarios.ALL,
    **latency_scenarios.ALL,
    **multicast_scenarios.ALL,
    **observed_scenarios.ALL,
    **start_scenarios.ALL,
}

NAMES = tuple(_ALL)


def scenarios(quick: bool, seconds: int | None = None) -> list[Scenario]:
    """All of them, in the order of the issue's table; `seconds`: for how long a single key fails in `failing`."""
    made = {name: make(quick) for name, make in _ALL.items()}
    if seconds is not None:
        made["failing"] = _failing(quick, seconds)
    return list(made.values())
