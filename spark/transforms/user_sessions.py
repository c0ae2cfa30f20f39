"""Sessions of users: what belongs together in one key's events, ended by a logout or by silence.

Theory. An event is JSON with a type and a time (`{"type": "login", "timestamp": 1700000000000}`), published
with the user as key. Spark keeps a little state for each key, and a timer of event time: silence is known when
the watermark has passed it. Spark's own `session_window` knows no end but silence, so it can't serve for a logout.

Rules
1. An event belongs to a session when at most `gap` of event time lies between them, before or after; else it begins
   another one. An event between two open sessions that is near enough to both makes one of them.
2. A session ends with `logout`, or when the watermark has passed its last event by `gap`.
3. Events of one batch are taken in the order of their time. One that comes later than the watermark allows is left
   out by Spark, which counts it. One that comes late but in time counts, and may move a session's beginning.
4. What isn't an event (no JSON, no time) is no part of a session.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["SESSION", "Session", "as_messages", "events", "fold", "silent", "timed_events"]

#: The columns of a session that has ended; times are milliseconds.
SESSION = "ordering_key string, started bigint, ended bigint, events int, types string, why string"


class Session(NamedTuple):
    """One that goes on. `types`: how often each type of event came."""

    started: int
    ended: int
    events: int
    types: dict[str, int]


def timed_events(messages: DataFrame, *, time: str) -> DataFrame:
    """The events among the messages, with all columns, `type` and `time`; `time` is a SQL expression."""
    from pyspark.sql import functions as F

    from .times import timed

    kind = F.get_json_object(F.col("data").cast("string"), "$.type").alias("type")
    found = timed(messages, time, *messages.columns, kind)
    return found.where("ordering_key is not null AND type is not null AND time is not null")


def events(messages: DataFrame, *, late: str, time: str) -> DataFrame:
    """Key, type and time of the events, with a watermark."""
    known = timed_events(messages, time=time).select("ordering_key", "type", "time")
    return known.withWatermark("time", late)


def fold(open_ones: Sequence[Session], kind: str, at: int, gap: int) -> tuple[list[Session], Session | None]:
    """Takes one event in: the sessions that are open then, and the one that it ended by a logout."""
    near = [each for each in open_ones if each.started - gap <= at <= each.ended + gap]
    others = [each for each in open_ones if each not in near]
    whole = Session(at, at, 1, {kind: 1})
    for each in near:
        types = {
            name: each.types.get(name, 0) + whole.types.get(name, 0) for name in each.types | whole.types
        }
        whole = Session(
            min(each.started, whole.started), max(each.ended, whole.ended), each.events + whole.events, types
        )
    if kind == "logout" and at == whole.ended:
        return others, whole
    return sorted([*others, whole], key=lambda each: each.started), None


def silent(open_ones: Sequence[Session], until: int, gap: int) -> tuple[list[Session], list[Session]]:
    """The sessions that are still open when no event before `until` can come, and those that silence has ended."""
    over = [each for each in open_ones if each.ended + gap <= until]
    return [each for each in open_ones if each not in over], over


def as_messages(ended: DataFrame) -> DataFrame:
    """Sessions as messages to publish."""
    from pyspark.sql import functions as F

    body = F.struct(
        "started", "ended", "events", F.from_json("types", "map<string,int>").alias("types"), "why"
    )
    return ended.select(
        "ordering_key",
        F.to_json(body).cast("binary").alias("data"),
        F.create_map(F.lit("kind"), F.lit("session")).alias("attributes"),
        "started",
    )
