"""The faults of the cluster in memory, decided by a plan that the test passes in.

Theory: nothing in this package is random. A plan is asked before each thing that can fail; a simulation's plan
draws from its seeded generator, a unit test's plan from a list.

Rules
1. The base class plans no fault.
2. A lost answer is dangerous: the request was carried out, and the caller is told that this is unknown. A late request
   is worse: it is carried out when the caller has gone on, unless its writer or member is fenced by then.
3. A plan is asked outside of all locks, so it may let other clients act before the request is carried out.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from kafka_pubsub.errors import PubSubError
from kafka_pubsub.model import Committed, TopicPartition

__all__ = ["FaultPlan", "RequestOutcome", "Step"]


class RequestOutcome(Enum):
    """What becomes of a request."""

    DONE = "done"
    #: Not done, and the caller is told so.
    REFUSED = "refused"
    #: Done, but the caller is told that no answer came.
    ANSWER_LOST = "answer lost"
    #: Not done yet but `FaultPlan.lateness` seconds later; the caller is told that no answer came.
    #: For a group's commits and a transaction's; elsewhere it is a lost answer.
    LATE = "late"


class Step(Enum):
    """The steps of a transaction, in their order; a process may die between any two."""

    #: A new producer shuts out the one before it.
    START = "start"
    #: One record is written.
    WRITE = "write"
    #: The group takes the positions, if the membership stands.
    OFFSETS = "offsets"
    #: The coordinator decides that it is committed.
    COMMIT = "commit"
    #: It is decided; its author doesn't know yet.
    ANSWER = "answer"
    #: The coordinator decides that it is aborted.
    ABORT = "abort"


class FaultPlan:
    """Plans which requests of one backend fail; override the methods of those.

    Example:
        class NoCommits(FaultPlan):
            def commit(self, group, member, positions):
                return RequestOutcome.REFUSED

        backend = MemoryBackend(faults=NoCommits())
    """

    def commit(
        self, group: str, member: str, positions: Mapping[TopicPartition, Committed]
    ) -> RequestOutcome:
        """Before a group's member commits."""
        return RequestOutcome.DONE

    def lateness(self) -> float:
        """How many seconds later a late request is done."""
        return 1.0

    def transaction(self, transactional_id: str, step: Step) -> RequestOutcome:
        """Before a step of a transaction."""
        return RequestOutcome.DONE

    def refuses(self, transactional_id: str, topic: str, key: bytes | None) -> PubSubError | None:
        """Why the log won't take this record of a transaction, whatever else is in it; None: it takes it."""
        return None

    def marker_delay(self, transactional_id: str, target: TopicPartition | str) -> float:
        """How many seconds after its end a transaction shows in a partition, or in a group (its name)."""
        return 0.0

    def append(self, topic: str, key: bytes | None, value: bytes | None) -> RequestOutcome:
        """Before a record is stored."""
        return RequestOutcome.DONE

    def report_delay(self, topic: str, key: bytes | None) -> float:
        """How many seconds later than possible a record's delivery report comes; reports keep their order."""
        return 0.0

    def read_limit(self, group: str, member: str, limit: int) -> int:
        """How many records a read may return at most, out of `limit`."""
        return limit

    def read_error(self, group: str, member: str) -> PubSubError | None:
        """Returns an error of the connection, for the listener, at a read."""
        return None

    def request(self, operation: str, name: str) -> PubSubError | None:
        """The error that a request of admin, catalog or a look-up by a reader ends with, before it is done.

        `operation` is the port's method (`"create_topic"`, `"put_subscription"`, `"committed"`).
        """
        return None
