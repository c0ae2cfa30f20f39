"""The faults of the in-memory Kafka, which a test decides with a `FaultPlan`.

Theory: nothing in this package is random. A plan is asked before each request that can fail; a simulation's plan
draws from its seeded generator, a unit test's plan from a list.

Rules
1. The base class plans no fault.
2. With a lost answer the request was carried out, and its caller learns that the outcome is unknown. A late request
   is carried out when the caller has gone on, unless its writer or member is fenced by then.
3. A plan is asked outside of all locks, so it may let other clients act before the request is carried out.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from kafka_pubsub.errors import PubSubError
from kafka_pubsub.model import Committed, TopicPartition

__all__ = ["FaultPlan", "RequestOutcome", "Step"]


class RequestOutcome(Enum):
    """The outcome of a request."""

    DONE = "done"
    #: Not done, and the caller learns that.
    REFUSED = "refused"
    #: Done, but the caller gets no answer.
    ANSWER_LOST = "answer lost"
    #: Done `FaultPlan.lateness` seconds later; the caller gets no answer.
    #: For a group's commits and a transaction's; elsewhere it is a lost answer.
    LATE = "late"


class Step(Enum):
    """The steps of a transaction, in their order; a process may die between any two."""

    #: A new producer fences the one before it.
    START = "start"
    #: One record is written.
    WRITE = "write"
    #: The group takes the positions, if the membership is valid.
    OFFSETS = "offsets"
    #: The coordinator decides that the transaction is committed.
    COMMIT = "commit"
    #: It is decided, and its author has no answer yet.
    ANSWER = "answer"
    #: The coordinator decides that the transaction is aborted.
    ABORT = "abort"


class FaultPlan:
    """A plan of the requests of one backend that fail; override the methods for these.

    Example:
        class NoCommits(FaultPlan):
            def commit(self, group, member, positions):
                return RequestOutcome.REFUSED

        backend = MemoryBackend(faults=NoCommits())
    """

    def commit(
        self, group: str, member: str, positions: Mapping[TopicPartition, Committed]
    ) -> RequestOutcome:
        """Returns the outcome of a commit of a group's member."""
        return RequestOutcome.DONE

    def lateness(self) -> float:
        """Returns how many seconds later a late request is done."""
        return 1.0

    def transaction(self, transactional_id: str, step: Step) -> RequestOutcome:
        """Returns the outcome of a step of a transaction."""
        return RequestOutcome.DONE

    def refuses(self, transactional_id: str, topic: str, key: bytes | None) -> PubSubError | None:
        """Returns why the log refuses this record of a transaction; None: it takes it."""
        return None

    def marker_delay(self, transactional_id: str, target: TopicPartition | str) -> float:
        """Returns how many seconds after its end a transaction shows in a partition, or in a group (its name)."""
        return 0.0

    def append(self, topic: str, key: bytes | None, value: bytes | None) -> RequestOutcome:
        """Returns the outcome of storing a record."""
        return RequestOutcome.DONE

    def report_delay(self, topic: str, key: bytes | None) -> float:
        """Returns by how many seconds a record's delivery report is late; reports keep their order."""
        return 0.0

    def read_limit(self, group: str, member: str, limit: int) -> int:
        """Returns how many records a read may return at most, out of `limit`."""
        return limit

    def read_error(self, group: str, member: str) -> PubSubError | None:
        """Returns an error of the connection that a read passes to the listener, or None."""
        return None

    def away(self, partition: TopicPartition) -> PubSubError | None:
        """Returns why the partition's leader doesn't answer; None: it does."""
        return None

    def request(self, operation: str, name: str) -> PubSubError | None:
        """Returns the error with which a request of admin, catalog or reader fails before it is done; None: it doesn't.

        `operation` is the port's method (`"create_topic"`, `"put_subscription"`, `"committed"`), `name` what it is for:
        a topic or a group.
        """
        return None
