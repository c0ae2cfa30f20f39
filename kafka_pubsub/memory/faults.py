"""The faults of the in-memory Kafka, which a test decides with a `FaultPlan`.

Nothing in this package is random. A method of the plan is called before each request that can fail; a simulation's plan
answers from its seeded generator, a unit test's plan from a list.

Rules
1. The base class plans no fault.
2. When an answer is lost, the request was done, but the caller gets an error that says that this is unknown. A late
   request is done while the caller already does something else, unless its writer or member is fenced by then.
3. A plan is called outside of all locks, so it may let other clients act before the request is done.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from kafka_pubsub.errors import PubSubError
from kafka_pubsub.model import Committed, TopicPartition

__all__ = ["FaultPlan", "RequestOutcome", "Step"]


class RequestOutcome(Enum):
    """What happens to a request."""

    DONE = "done"
    #: It isn't done, and the caller gets an error that says so.
    REFUSED = "refused"
    #: It is done, but the caller gets the error that no answer came.
    ANSWER_LOST = "answer lost"
    #: It is done `FaultPlan.lateness` seconds later; the caller gets the error that no answer came. This holds for a
    #: group's commits and for the commit of a transaction; for other requests it means a lost answer.
    LATE = "late"


class Step(Enum):
    """The steps of a transaction, in their order; a process may die between any two."""

    #: A new writer fences the one before it.
    START = "start"
    #: One record is written.
    WRITE = "write"
    #: The group accepts the positions, if the membership is current.
    OFFSETS = "offsets"
    #: The coordinator decides that the transaction is committed.
    COMMIT = "commit"
    #: The coordinator has decided; the writer has no answer yet.
    ANSWER = "answer"
    #: The coordinator decides that the transaction is aborted.
    ABORT = "abort"


class FaultPlan:
    """The plan of which requests of one backend fail; override the methods for those requests.

    Example:
        class NoCommits(FaultPlan):
            def commit(self, group, member, positions):
                return RequestOutcome.REFUSED

        backend = MemoryBackend(faults=NoCommits())
    """

    def commit(
        self, group: str, member: str, positions: Mapping[TopicPartition, Committed]
    ) -> RequestOutcome:
        """Decides what happens to a commit of a group's member."""
        return RequestOutcome.DONE

    def lateness(self) -> float:
        """Returns the number of seconds by which a late request is late."""
        return 1.0

    def transaction(self, transactional_id: str, step: Step) -> RequestOutcome:
        """Decides what happens to a step of a transaction."""
        return RequestOutcome.DONE

    def refuses(self, transactional_id: str, topic: str, key: bytes | None) -> PubSubError | None:
        """Returns why the log refuses this record in any transaction; None: it accepts the record."""
        return None

    def marker_delay(self, transactional_id: str, target: TopicPartition | str) -> float:
        """Returns the seconds from a transaction's end to its marker in a partition, or in a group (by its name)."""
        return 0.0

    def append(self, topic: str, key: bytes | None, value: bytes | None) -> RequestOutcome:
        """Decides what happens to a record of a writer."""
        return RequestOutcome.DONE

    def report_delay(self, topic: str, key: bytes | None) -> float:
        """Returns the seconds by which a record's delivery report is delayed; reports keep their order."""
        return 0.0

    def read_limit(self, group: str, member: str, limit: int) -> int:
        """Returns the most records that a read may return, up to `limit`."""
        return limit

    def read_error(self, group: str, member: str) -> PubSubError | None:
        """Returns an error of the connection that a read passes to the listener, or None."""
        return None

    def request(self, operation: str, name: str) -> PubSubError | None:
        """Returns the error with which another request ends before it is done, or None.

        `operation` is the port's method (`"create_topic"`, `"put_subscription"`, `"committed"`).
        """
        return None
