"""Sessions of users: what belongs together in one key's events, ended by a logout or by silence.

Theory. An event is JSON with a type and a time (`{"type": "login", "timestamp": 1700000000000}`), published
with the user as key. Spark keeps a little state for each key, and a timer of event time: silence is known when
the watermark has passed it.

Rules
1. A session begins with its first event and ends with `logout`, or when nothing came for `gap` of event time.
2. Events of one batch are taken in the order of their time; one that comes later than the watermark allows is
   left out, by Spark. One that comes late but in time counts, and may move a session's beginning.
3. What isn't an event (no JSON, no time) is no part of a session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["SESSION", "Session", "as_messages", "events", "fold", "sessions"]

#: The columns of a session that has ended; times are milliseconds.
SESSION = "ordering_key string, started bigint, ended bigint, events int, types string, why string"


class Session(NamedTuple):
    """One that goes on. `types`: how often each type of event came."""

    started: int
    ended: int
    events: int
    types: dict[str, int]


def events(messages: DataFrame, *, late: str, time: str) -> DataFrame:
    """The events among the messages; `time` is a SQL expression."""
    from pyspark.sql import functions as F

    text = F.col("data").cast("string")
    found = messages.select(
        "ordering_key",
        F.get_json_object(text, "$.type").alias("type"),
        F.expr(time).cast("timestamp").alias("time"),
    )
    known = found.where("ordering_key is not null AND type is not null AND time is not null")
    return known.withWatermark("time", late)


def fold(session: Session | None, kind: str, at: int, gap: int) -> tuple[Session | None, Session | None, str]:
    """One event into a session: the one that goes on, the one that ended (if any) and why."""
    over = None
    why = ""
    if session is not None and at - session.ended > gap:
        over, session, why = session, None, "silence"
    if session is None:
        session = Session(at, at, 0, {})
    types = {**session.types, kind: session.types.get(kind, 0) + 1}
    session = Session(min(session.started, at), max(session.ended, at), session.events + 1, types)
    if kind == "logout" and over is None:
        return None, session, "logout"
    return session, over, why


def sessions(found: DataFrame, gap_ms: int) -> DataFrame:
    """The sessions that ended, as `SESSION`."""
    from .session_state import Sessions

    return found.groupBy("ordering_key").transformWithStateInPandas(
        statefulProcessor=Sessions(gap_ms),
        outputStructType=SESSION,
        outputMode="Append",
        timeMode="EventTime",
    )


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
