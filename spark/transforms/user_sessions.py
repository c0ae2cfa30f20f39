"""Groups a user's events into sessions, which end with a logout or after a time without events.

Theory. An event is JSON with a type and a time (`{"type": "login", "timestamp": 1700000000000}`), published with the
user as key. Spark keeps a small state for each key, and a timer of event time for the end without a logout: the
watermark must have passed it. Spark's own `session_window` has only this second end, so it can't be used here.

Rules
1. An event belongs to a session if at most `gap` of event time lies between them, before or after; otherwise it begins
   another session. An event that belongs to two open sessions joins them into one.
2. A session ends with `logout`, or when the watermark has passed its last event by `gap`.
3. Events of a batch are taken in the order of their time. Spark leaves out and counts an event that comes later than
   the watermark allows. An event that is late but within that limit counts, and may move a session's beginning.
4. A message that isn't an event (no JSON, no time) isn't part of a session.
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
    """A session. `types` says how often each type of event came; times are milliseconds."""

    started: int
    ended: int
    events: int
    types: dict[str, int]


def timed_events(messages: DataFrame, *, time: str) -> DataFrame:
    """Returns the messages that are events, with `type` and `time` added; the argument `time` is a SQL expression."""
    from pyspark.sql import functions as F

    from .times import timed

    kind = F.get_json_object(F.col("data").cast("string"), "$.type").alias("type")
    found = timed(messages, time, *messages.columns, kind)
    return found.where("ordering_key is not null AND type is not null AND time is not null")


def events(messages: DataFrame, *, late: str, time: str) -> DataFrame:
    """Returns key, type and time of the events, with a watermark."""
    known = timed_events(messages, time=time).select("ordering_key", "type", "time")
    return known.withWatermark("time", late)


def fold(open_ones: Sequence[Session], kind: str, at: int, gap: int) -> tuple[list[Session], Session | None]:
    """Adds one event; returns the sessions that are open then, and the session that it ended as a logout, if any."""
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
    """Splits sessions into those that stay open and those that end, when no event before `until` can come any more."""
    over = [each for each in open_ones if each.ended + gap <= until]
    return [each for each in open_ones if each not in over], over


def as_messages(ended: DataFrame) -> DataFrame:
    """Makes messages of sessions, to publish them."""
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
