"""What a service counts, and what is wrong with it; written by its thread, read by any."""

from __future__ import annotations

from dataclasses import dataclass, field

from kafka_pubsub.services.troubles import Troubles

__all__ = ["ServiceMetrics"]


@dataclass
class ServiceMetrics:
    """Counts what a service has done since it started, and says how it is now."""

    #: How many partitions are held now.
    partitions: int = 0
    #: Whether there is no topic yet that it could serve.
    unneeded: bool = False
    #: Transactions that were stored, and the records in them.
    transactions: int = 0
    records: int = 0
    #: Transactions that weren't.
    aborted: int = 0
    #: The last thing that went wrong; empty: nothing did.
    error: str = ""
    #: What holds it up that isn't its own; empty: nothing does.
    waits_for: str = ""
    #: Seconds by which the time of a log is ahead of its broker's clock; 0 below a second.
    log_ahead: float = 0.0
    #: What is wrong with single partitions; it outlives an engine.
    troubles: Troubles = field(default_factory=Troubles)
    #: What this kind of service counts besides.
    counts: dict[str, int] = field(default_factory=dict)
    #: How what this kind of service does is now, by the names of metrics.
    gauges: dict[str, float] = field(default_factory=dict)

    def stored(self, records: int) -> None:
        """A transaction was stored."""
        self.transactions += 1
        self.records += records

    def count(self, name: str, more: int = 1) -> None:
        """Counts something of this kind of service's."""
        self.counts[name] = self.counts.get(name, 0) + more
