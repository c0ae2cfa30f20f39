"""How much more may be handed out, or moved, so that both maps fit whatever finishes (I5).

Theory. A map grows by at most one run for each record that finishes. What may finish is with a holder or on its way;
so that much room is kept free, in main's map and in the retry partition's.
"""

from __future__ import annotations

from kafka_pubsub.core import ack_map
from kafka_pubsub.core.burials import Burials
from kafka_pubsub.core.leases import Lease, Leases, LeaseState
from kafka_pubsub.core.moves import Moves
from kafka_pubsub.core.offsets import Offsets
from kafka_pubsub.core.retry_books import RetryBooks

__all__ = ["Rooms"]


class Rooms:
    """The rooms of one partition with a retry partition."""

    def __init__(
        self, offsets: Offsets, books: RetryBooks, leases: Leases, moves: Moves, burials: Burials
    ) -> None:
        self._offsets = offsets
        self._books = books
        self._leases = leases
        self._moves = moves
        self._burials = burials
        self._lent: set[Lease] = set()

    def lent(self, lease: Lease) -> None:
        """A lease was made of records of the retry partition."""
        self._lent.add(lease)

    def _handed(self) -> int:
        """Records of the retry partition with holders."""
        if self._lent:
            self._lent = {lease for lease in self._lent if lease.state is not LeaseState.OVER}
        return sum(len(lease.records) - lease.done for lease in self._lent)

    def main(self) -> int:
        """Of the main partition."""
        outstanding = self._leases.handed - self._handed() + self._moves.count(main=True)
        return self._offsets.room(outstanding, ack_map.most_runs(self._offsets.span))

    def retry(self) -> int:
        """Of the retry partition."""
        outstanding = self._handed() + self._moves.count(main=False)
        if self._burials.flying:  # not while they are written, which may take for ever
            outstanding += len(self._burials.out)
        outstanding += self._books.tally is not None  # the last run that it tells may yet grow by a hole
        return ack_map.most_runs(self._books.span) - self._books.run_count - outstanding
