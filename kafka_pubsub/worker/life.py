"""The state of a unit, and when it starts again: values without a clock or a thread.

Rules
1. RUNNING is said only of a unit that works. One that has failed is FAILED, then RESTARTING, until it works again.
2. The pause before a start grows from `PAUSE` to `LONGEST_PAUSE` seconds with each failure in a row. A unit that worked
   for `STEADY` seconds begins anew.
3. A unit starts again for ever, unless `max_restarts` failures in a row are all that it may have.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

__all__ = ["LONGEST_PAUSE", "PAUSE", "STEADY", "Life", "UnitState"]

PAUSE, LONGEST_PAUSE, STEADY = 1.0, 60.0, 60.0


class UnitState(Enum):
    """How a unit is."""

    STARTING = "STARTING"
    RUNNING = "RUNNING"
    FAILED = "FAILED"
    RESTARTING = "RESTARTING"
    STOPPED = "STOPPED"


@dataclass(frozen=True)
class Life:
    """A unit's state. Times are seconds of one clock that only goes forward."""

    state: UnitState = UnitState.STARTING
    #: How often it may start again after failures in a row; None: always.
    max_restarts: int | None = None
    #: What is wrong; empty: nothing.
    error: str = ""
    #: The trace of the last failure, until it works again.
    trace: str = ""
    #: Failures in a row, and starts after failures in all.
    failures: int = 0
    restarts: int = 0
    #: Since when it works without a break; None: it doesn't.
    works_since: float | None = None
    #: When it starts again; None: it doesn't wait for that.
    restart_at: float | None = None

    def looked(self, ok: bool, error: str, now: float) -> Life:
        """Returns its state after a look: `ok`: it works; `error`: what is wrong, as the unit says."""
        if not ok:
            before = self.state
            state = UnitState.STARTING if before is UnitState.RUNNING else before
            return replace(self, state=state, error=error or self.error, works_since=None)
        since = now if self.works_since is None else self.works_since
        failures = 0 if now - since >= STEADY else self.failures
        return replace(
            self, state=UnitState.RUNNING, error=error, trace="", failures=failures, works_since=since
        )

    def failed(self, error: str, trace: str, now: float) -> Life:
        """Returns its state after a failure."""
        steady = self.works_since is not None and now - self.works_since >= STEADY
        failures = 1 if steady else self.failures + 1
        may_restart = self.max_restarts is None or failures <= self.max_restarts
        return replace(
            self,
            state=UnitState.FAILED,
            error=error,
            trace=trace,
            failures=failures,
            works_since=None,
            restart_at=now + min(LONGEST_PAUSE, PAUSE * 2.0 ** min(failures - 1, 10))
            if may_restart
            else None,
        )

    def restarted(self) -> Life:
        """Returns its state when it starts again; its error and trace stay until it works."""
        return replace(self, state=UnitState.RESTARTING, restarts=self.restarts + 1, restart_at=None)

    def stopped(self) -> Life:
        """Returns its state after its end."""
        return replace(self, state=UnitState.STOPPED, works_since=None, restart_at=None)
