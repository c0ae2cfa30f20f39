"""Every error that reaches a user, under one root.

Each error carries a `code` (the canonical RPC code, as a number) and a message that says what happened and what
to do about it. No exception of librdkafka ever reaches a user: `kafka_pubsub.log.kafka.errors` translates them.

Rule: an error whose text advises a call of this package carries that call as a `Call` too. So the advice is written
once, and the command line can name its own command instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import EllipsisType
from typing import ClassVar, NamedTuple

__all__ = [
    "AckError",
    "AlreadyExists",
    "BadRecord",
    "BrokerUnavailable",
    "Call",
    "DeadlineExceeded",
    "FailedPrecondition",
    "InvalidArgument",
    "InvariantViolated",
    "NotFound",
    "OrderingKeyPaused",
    "PermissionDenied",
    "PubSubError",
    "PublishError",
    "RegistryUnavailable",
    "ResourceExhausted",
    "SchemaError",
    "StaleAck",
    "UnknownAck",
]


class Call(NamedTuple):
    """A method of `PubSub` that an error advises you to call; `str()` gives the call in Python."""

    method: str
    name: str
    #: Further arguments by name; `...` leaves the value to the reader.
    options: tuple[tuple[str, str | int | EllipsisType], ...] = ()

    def __str__(self) -> str:
        options = (f"{name}={'...' if value is ... else repr(value)}" for name, value in self.options)
        return f"{self.method}({', '.join([repr(self.name), *options])})"


class PubSubError(Exception):
    """The root of all errors of this package.

    `code` is the canonical RPC code (3 invalid argument, 5 not found, ...); `message` is the text for a person;
    `calls` are the calls that the message advises, as they are written in it.
    """

    default_code: ClassVar[int] = 2

    def __init__(self, message: str, *, code: int | None = None, calls: Sequence[Call] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.code = self.default_code if code is None else code
        self.calls = tuple(calls)

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.message, self.code, self.calls))


def _rebuild(kind: type[PubSubError], message: str, code: int, calls: Sequence[Call]) -> PubSubError:
    return kind(message, code=code, calls=calls)


class InvalidArgument(PubSubError):
    """An argument is wrong, whatever the state of the system (code 3)."""

    default_code = 3


class TooFewBrokers(InvalidArgument):
    """A topic needs more replicas than brokers are there now."""


class DeadlineExceeded(PubSubError):
    """The cluster answered, but not in time (code 4)."""

    default_code = 4


class NotFound(PubSubError):
    """A topic, subscription or other resource doesn't exist (code 5)."""

    default_code = 5


class AlreadyExists(PubSubError):
    """A resource of that name exists, perhaps with other settings (code 6)."""

    default_code = 6


class PermissionDenied(PubSubError):
    """The cluster's access rules forbid the call (code 7)."""

    default_code = 7


class ResourceExhausted(PubSubError):
    """A limit was reached: flow control, memory, disk (code 8)."""

    default_code = 8


class FailedPrecondition(PubSubError):
    """The system isn't in the state that the call needs (code 9)."""

    default_code = 9


class PublishError(PubSubError):
    """A message couldn't be published; it isn't in the topic, unless the text says that this is unknown (code 13)."""

    default_code = 13


class OrderingKeyPaused(PublishError):
    """An earlier message of this key failed; `topic.resume(key)` allows publishing again (code 9)."""

    default_code = 9


class AckError(PubSubError):
    """An ack, nack or extension had no effect, or it isn't known whether it had one (code 9).

    `ack_ids`: those of the ids given to one call that the error concerns.
    """

    default_code = 9
    ack_ids: tuple[str, ...] = ()

    def __reduce__(self) -> tuple[object, ...]:
        return (*super().__reduce__(), {"ack_ids": self.ack_ids})


class StaleAck(AckError):
    """The lease of the ack is over: it expired, was nacked or acked before, or has another owner (code 9)."""


class UnknownAck(AckError):
    """This process didn't hand out the ack id (code 3)."""

    default_code = 3


class SchemaError(PubSubError):
    """A value, or a message, doesn't fit its schema; or the schema itself is wrong (code 3)."""

    default_code = 3


class BadRecord(SchemaError):
    """A message's body can't be read by its schema (code 3).

    A callback that lets it pass makes the message a dead letter at once: another delivery wouldn't help. `message_id`:
    the message's, if `message.record()` raised it.
    """

    message_id: str | None = None

    def __reduce__(self) -> tuple[object, ...]:
        return (*super().__reduce__(), {"message_id": self.message_id})


class RegistryUnavailable(PubSubError):
    """The schema registry can't be reached, or it doesn't answer (code 14)."""

    default_code = 14


class BrokerUnavailable(PubSubError):
    """No broker could be reached, or it stopped answering (code 14).

    `outage`: no broker of the cluster can be reached. The log says so too, once for the process and then once a minute.
    """

    default_code = 14
    outage: bool = False

    def __reduce__(self) -> tuple[object, ...]:
        return (*super().__reduce__(), {"outage": self.outage})


class InvariantViolated(PubSubError):
    """The package broke one of its own guarantees in this process: a defect to report (code 13)."""

    default_code = 13
