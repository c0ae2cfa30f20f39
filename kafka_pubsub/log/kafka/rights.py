"""The rights that a request needs on a cluster with access rules, so that an error can name the missing one.

Theory. A broker refuses with the kind of the resource only ("topic authorization failed"). Which operation was missing
follows from the request, so each request names its rights together with what it does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal, NamedTuple

__all__ = [
    "Doing",
    "Kind",
    "Right",
    "creating",
    "id_of",
    "looking_at",
    "of_group",
    "on_topics",
    "publishing_to",
]

#: The ids of streams, services and publishers end in random digits; what a stream adds for dead letters comes behind.
_MADE_UP = re.compile(r"(?P<stable>.*-)(\d{6,}|[0-9a-f]{16,})(-dead)?")

Kind = Literal["topic", "group", "transactional id", "cluster"]


class Right(NamedTuple):
    """An operation on a resource, by the names that Kafka's tools use; the cluster has no name."""

    operation: str
    kind: Kind
    name: str = ""
    #: Whether the right is to all resources whose names begin so.
    begins_so: bool = False

    def __str__(self) -> str:
        if self.kind == "cluster":
            return f"{self.operation} on the cluster"
        if self.begins_so:
            return f"{self.operation} on {self.kind}s that begin with {self.name!r}"
        either = " or on the cluster" if self.operation == "CREATE" else ""
        return f"{self.operation} on {self.kind} {self.name!r}{either}"


class Doing(str):
    """The name of an action for the text of an error, "delete topic 'orders'", with the rights that it needs."""

    needs: tuple[Right, ...]

    def __new__(cls, text: str, *needs: Right) -> Doing:
        """`needs`: all of them; an error names those of the kind of resource that the broker refused."""
        made = super().__new__(cls, text)
        made.needs = needs
        return made


def creating(topic: str) -> Doing:
    """Returns the name of a topic's creation, which ends when the topic can be seen."""
    return Doing(f"create topic {topic!r}", Right("CREATE", "topic", topic), *on_topics("DESCRIBE", topic))


def looking_at(topics: Iterable[str], doing: str) -> Doing:
    """Returns the name of a request that only looks at topics; `{}` in `doing` stands for their names."""
    names = sorted(set(topics))
    return Doing(doing.replace("{}", ", ".join(map(repr, names))), *on_topics("DESCRIBE", *names))


def of_group(group: str, doing: str, *topics: str) -> Doing:
    """Returns the name of a request that a group makes about topics: "commit of group 'billing'"."""
    return Doing(f"{doing} of group {group!r}", Right("READ", "group", group), *on_topics("READ", *topics))


def publishing_to(topic: str) -> Doing:
    """Returns the name of a publish.

    An idempotent producer needs the right to write to a topic before it sends anything; before Kafka 3.0 a right on the
    cluster. The broker calls both the cluster's.
    """
    if not topic:
        return Doing("publish", Right("IDEMPOTENT_WRITE", "cluster"))
    either = Right(f"WRITE on topic {topic!r} or IDEMPOTENT_WRITE", "cluster")
    return Doing("publish", either, *on_topics("WRITE", topic))


def id_of(transactional_id: str) -> Right:
    """Returns the right to write under a transactional id; under all that begin alike, if its end is random."""
    made_up = _MADE_UP.fullmatch(transactional_id)
    name = transactional_id if made_up is None else made_up["stable"]
    return Right("WRITE", "transactional id", name, made_up is not None)


def on_topics(operation: str, *names: str) -> tuple[Right, ...]:
    """Returns the right to an operation on each of the topics."""
    return tuple(Right(operation, "topic", name) for name in sorted(set(names)))
