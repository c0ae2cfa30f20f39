"""What Spark keeps of each key's session, and the timer that ends it; the rules are those of `sessions.fold`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pandas as pd
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from .sessions import Session, fold

if TYPE_CHECKING:
    from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle

__all__ = ["Sessions"]

_STATE = "started bigint, ended bigint, events int, types string"


class Sessions(StatefulProcessor):
    """One key's session in state, and a timer at the end of its silence. `gap` in milliseconds."""

    def __init__(self, gap: int) -> None:
        self._gap = gap

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Spark's, before the first key."""
        self._handle = handle
        self._state = handle.getValueState("session", _STATE)

    def handleInputRows(
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any
    ) -> Iterator[pd.DataFrame]:
        """Spark's, for a key's events of a batch."""
        batch = pd.concat(list(rows)).sort_values("time", kind="stable")
        session, ended = self._load(), []
        for kind, time in zip(batch["type"], batch["time"], strict=True):
            session, over, why = fold(session, kind, int(time.timestamp() * 1000), self._gap)
            if over is not None:
                ended.append(_row(key[0], over, why))
        self._keep(session)
        if ended:
            yield pd.DataFrame(ended)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:
        """Spark's, when the watermark has passed the silence."""
        session = self._load()
        if session is not None and timerValues.getCurrentWatermarkInMs() >= session.ended + self._gap:
            self._keep(None)
            yield pd.DataFrame([_row(key[0], session, "silence")])

    def close(self) -> None:
        """Spark's, after the last key."""

    def _load(self) -> Session | None:
        found = self._state.get() if self._state.exists() else None
        if found is None:
            return None
        started, ended, count, types = found
        return Session(started, ended, count, json.loads(types))

    def _keep(self, session: Session | None) -> None:
        for timer in list(self._handle.listTimers()):
            self._handle.deleteTimer(timer)
        if session is None:
            self._state.clear()
            return
        self._state.update((session.started, session.ended, session.events, json.dumps(session.types)))
        self._handle.registerTimer(session.ended + self._gap)


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
