"""Where the lease runners of a simulated process report to."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from kafka_pubsub.subscribe.inbox import Inbox
from kafka_pubsub.subscribe.partition.events import LeaseReport
from kafka_pubsub.subscribe.partition.leases import Lease, Settlement

if TYPE_CHECKING:
    from tests.simulation.process import Process

__all__ = ["SimulatedInbox"]


class SimulatedInbox(Inbox):
    """Tells the ledger which acks came."""

    owner: Process

    def released(self, *releases: LeaseReport) -> None:
        for release in releases:
            self._acked(release.lease, range(release.done))
        super().released(*releases)

    def settled(self, settlement: Settlement) -> None:
        if settlement.acked:
            self._acked(settlement.lease, [settlement.done])
        super().settled(settlement)

    def _acked(self, lease: Lease, done: Iterable[int]) -> None:
        reported = self.owner.ownership_of(lease).reported
        reported.update(lease.records[at].offset() for at in done)
