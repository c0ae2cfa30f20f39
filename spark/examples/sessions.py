"""Groups users' events into sessions, and publishes each session to another topic.

    python sessions.py --bootstrap localhost:9092 --topic user-events --to user-sessions --checkpoint /data/sessions

An event is JSON like {"type": "page_view"}, published with the user as ordering key. A session ends with a logout, or
after GAP without an event. It is published when the watermark has passed its end, and at least once: a session that is
published again has the same `ps-id`. What isn't an event is left out, and so are events that come later than LATE after
the newest one; the program says how many.
"""

from __future__ import annotations

import argparse
from collections import Counter
from typing import Any

from kafka_pubsub_spark import decoded, messages, session, write_stream
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

#: The fields of an event, and when it happened: SQL over a message and its `record`.
SCHEMA, TIME = "type string, timestamp bigint", "publish_time"
GAP, LATE = "30 minutes", "5 minutes"
#: A session that has ended; times are milliseconds.
SESSION = "started bigint, ended bigint, events int, types map<string,int>, why string"


@F.udf(f"array<struct<{SESSION.replace(' ', ':', 1).replace(', ', ',')}>>")
def pieces(events: list[Any]) -> list[Any]:
    """Splits a session's events (in order) behind each logout."""
    found: list[list[Any]] = [[]]
    for event in events:
        found[-1].append(event)
        if event.type == "logout":
            found.append([])
    return [
        (part[0].at, part[-1].at, len(part), dict(Counter(each.type for each in part)), why(part[-1].type))
        for part in found
        if part
    ]


def why(last: str) -> str:
    """Returns the reason for which a session ended, by the type of its last event."""
    return "logout" if last == "logout" else "silence"


def sessions(found: DataFrame, time: str = TIME, gap: str = GAP, late: str = LATE) -> DataFrame:
    """Makes a message of each session that has ended; `found` are messages."""
    events = (
        decoded(found, SCHEMA)
        .select("ordering_key", "offset", "record.type", F.expr(time).alias("time"))
        .where("ordering_key is not null and type is not null")
        .withWatermark("time", late)
    )
    # Spark ends a session by silence only, so the session's events are kept, and split when it has ended.
    # Events of the same millisecond are in the order of their offsets.
    event = F.struct(F.unix_millis("time").alias("at"), "offset", "type")
    ended = events.groupBy("ordering_key", F.session_window("time", gap)).agg(
        F.sort_array(F.collect_list(event)).alias("events")
    )
    each = ended.select("ordering_key", F.explode(pieces("events")).alias("session"))
    return each.select(
        "ordering_key",
        F.to_json("session").alias("data"),
        F.create_map(F.lit("kind"), F.lit("session")).alias("attributes"),
        F.col("session.started").alias("started"),
    )


def main() -> None:
    """Runs until all is read or, with --follow, until it is stopped."""
    parser = argparse.ArgumentParser(description="Group users' events into sessions.")
    parser.add_argument("--bootstrap", required=True, help="Kafka's address, HOST:PORT")
    parser.add_argument("--topic", required=True, help="the topic of events")
    parser.add_argument("--to", required=True, help="the topic that sessions are published to; it must exist")
    parser.add_argument("--checkpoint", required=True, help="the directory that keeps how far it has come")
    parser.add_argument("--follow", action="store_true", help="stay, and take what is published from now on")
    options = parser.parse_args()
    # Without `max_per_batch` a backlog is one batch, so no event is late only because the program was late.
    found = messages(session("sessions"), options.topic, bootstrap=options.bootstrap, stream=True)
    query = write_stream(
        sessions(found),
        options.to,
        query="sessions",
        checkpoint=options.checkpoint,
        order_by=["started"],
        bootstrap=options.bootstrap,
        available_now=not options.follow,
    )
    query.awaitTermination()
    states = [state for told in query.recentProgress for state in told["stateOperators"]]
    print(f"{sum(state['numRowsDroppedByWatermark'] for state in states):,} events came too late")


if __name__ == "__main__":
    main()
