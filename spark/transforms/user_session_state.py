"""Keeps each key's open sessions in Spark's state, with timers that end them, by the rules of `user_sessions.fold`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pandas as pd
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from kafka_pubsub.errors import FailedPrecondition

from .user_sessions import SESSION, Session, fold, silent

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle

__all__ = ["Sessions", "sessions"]

_STATE = "sessions string"


def sessions(found: DataFrame, gap_ms: int) -> DataFrame:
    """Returns the sessions that ended, with the columns `SESSION`; `found` are events, with a watermark."""
    keyed = found.groupBy("ordering_key")
    if not hasattr(keyed, "transformWithStateInPandas"):
        raise FailedPrecondition(
            "sessions needs transformWithStateInPandas, which the client of Spark Connect lacks in 4.0: take pyspark "
            "4.1 here and on the server, or run the job with spark-submit"
        )
    return keyed.transformWithStateInPandas(
        statefulProcessor=Sessions(gap_ms),
        outputStructType=SESSION,
        outputMode="Append",
        timeMode="EventTime",
    )


class Sessions(StatefulProcessor):
    """The state of a key's open sessions, with a timer for the end of each. `gap` is in milliseconds."""

    def __init__(self, gap: int) -> None:
        self._gap = gap

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Prepares the state; Spark calls this before the first key."""
        self._handle = handle
        self._state = handle.getValueState("sessions", _STATE)

    def handleInputRows(
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any
    ) -> Iterator[pd.DataFrame]:
        """Adds a key's events to its sessions; Spark calls this for each batch."""
        batch = pd.concat(list(rows)).sort_values("time", kind="stable")
        found, ended = self._load(), []
        for kind, time in zip(batch["type"], batch["time"], strict=True):
            found, over = fold(found, kind, int(time.timestamp() * 1000), self._gap)
            if over is not None:
                ended.append(_row(key[0], over, "logout"))
        self._keep(found)
        if ended:
            yield pd.DataFrame(ended)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:
        """Ends the sessions that had no event for `gap`; Spark calls this when the watermark has passed a timer."""
        found, over = silent(self._load(), timerValues.getCurrentWatermarkInMs(), self._gap)
        if over:
            self._keep(found)
            yield pd.DataFrame([_row(key[0], each, "silence") for each in over])

    def close(self) -> None:
        """Does nothing; Spark calls this after the last key."""

    def _load(self) -> list[Session]:
        found = self._state.get() if self._state.exists() else None
        return [] if found is None else [Session(*each) for each in json.loads(found[0])]

    def _keep(self, found: list[Session]) -> None:
        for timer in list(self._handle.listTimers()):
            self._handle.deleteTimer(timer)
        if not found:
            self._state.clear()
            return
        self._state.update((json.dumps(found),))
        for end in {each.ended for each in found}:
            self._handle.registerTimer(end + self._gap)


def _row(key: str, session: Session, why: str) -> dict[str, Any]:
    told = json.dumps(session.types)
    return {
        "ordering_key": key,
        "started": session.started,
        "ended": session.ended,
        "events": session.events,
        "types": told,
        "why": why,
    }
