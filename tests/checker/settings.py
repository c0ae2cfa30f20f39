"""How much time the checker grants, where only time can tell."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Settings"]


@dataclass(frozen=True)
class Settings:
    """All in seconds."""

    #: The largest difference between the wall clocks of two hosts. Between processes of a host there is none.
    skew: float = 0.5
    #: How long a thread may need from "may I?" to the line in the file, on a busy machine; a process that goes on
    #: after SIGSTOP has as long to find out that its ownership is over.
    grace: float = 0.5
    #: An ack older than this has been committed when its owner ends: ten times the interval of commits.
    max_lag: float = 1.0
    #: How long after a takeover an owner may learn that its partitions are lost: five sessions.
    late_loss: float = 30.0
    #: The difference that a due time and a delivery may have: milliseconds are rounded, and wall clocks are slewed.
    due_slack: float = 0.1
    #: Whether everything that was published should have been acked in the end.
    drained: bool = True

    @property
    def grace_ns(self) -> int:
        return round(self.grace * 1e9)

    @property
    def due_slack_ns(self) -> int:
        return round(self.due_slack * 1e9)
