"""Functions for both topics and subscriptions: retrying conflicting changes, comparing settings, checking a layout.

Rules
1. A resource is made in steps, and its record is stored before the first one: a record that is `creating` or `deleting`
   tells the next call what a crashed call left to finish. Only `ready` records are returned.
2. Every change is a function that reads the latest record and acts on it. If another process changes the record
   meanwhile (`Conflict`), the function runs again from the start, so it must work whatever its last run has done.
3. A process that was overtaken while it makes a resource lets the others finish first (`settle_making`). If each of
   them continued from the record that it finds, each would make another one fail, and in the end all would fail.
4. Settings that you didn't give are not compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, TypeVar

from kafka_pubsub.config import SubscriptionOptions, SubscriptionRecord, TopicOptions, TopicRecord
from kafka_pubsub.errors import AlreadyExists, Call, FailedPrecondition, PubSubError
from kafka_pubsub.model import TopicInfo

__all__ = [
    "EXIST_OK",
    "Conflict",
    "changed",
    "check_identity",
    "check_layout",
    "check_same_settings",
    "conflicts",
    "dead_letters_of",
    "options_of",
    "repartition_call",
    "same_settings",
    "settle",
    "settle_making",
    "unless_overtaken",
]

T = TypeVar("T")
Options = TypeVar("Options", TopicOptions, SubscriptionOptions)
Record = TypeVar("Record", TopicRecord, SubscriptionRecord)

#: The argument with which a call accepts a resource that exists.
EXIST_OK: Final = ("exist_ok", True)

#: The most runs of one change. A run is repeated if another process changed the same resource at the same time, which
#: is rare.
ATTEMPTS = 5

#: Seconds without a change after which a `creating` record is taken as left by a crash (a step takes milliseconds, or
#: some seconds on a cluster in trouble); and seconds between two reads of it.
STANDS, LOOK = 5.0, 0.1


class Conflict(Exception):
    """Another process changed the record first. Callers never see this error: `settle` catches it."""

    def __init__(self, cause: PubSubError) -> None:
        super().__init__(cause.message)
        self.cause = cause


@contextmanager
def conflicts() -> Iterator[None]:
    """Turns the refusal of a write to the catalog into a `Conflict`, to tell it from other refusals."""
    try:
        yield
    except FailedPrecondition as error:
        raise Conflict(error) from error


def settle(change: Callable[[], T], attempts: int = ATTEMPTS) -> T:
    """Runs a change, and again while another process interferes with it, up to `attempts` times."""
    for _ in range(attempts - 1):
        try:
            return change()
        except Conflict:
            continue
    try:
        return change()
    except Conflict as conflict:
        raise conflict.cause from None


def settle_making(
    make: Callable[[], T],
    find: Callable[[], TopicRecord | SubscriptionRecord | None],
    sleep: Callable[[float], None],
) -> T:
    """Does the same for a resource that other processes may be making too; `find` returns its record."""

    def after(conflict: bool) -> T:
        if conflict:
            _give_way(find, sleep)
        return make()

    attempts = iter(range(ATTEMPTS))
    return settle(lambda: after(next(attempts) > 0))


def _give_way(
    find: Callable[[], TopicRecord | SubscriptionRecord | None], sleep: Callable[[float], None]
) -> None:
    """Waits while another process makes the resource, until its record hasn't changed for `STANDS` seconds."""
    found, waited = find(), 0.0
    while found is not None and found.state == "creating" and waited < STANDS:
        sleep(LOOK)
        before, found = found, find()
        waited = waited + LOOK if found == before else 0.0


@contextmanager
def unless_overtaken(seen: Record | None, find: Callable[[], Record | None]) -> Iterator[None]:
    """Turns a refusal into a `Conflict` if another process has changed the resource's record since `seen`."""
    try:
        yield
    except (AlreadyExists, FailedPrecondition) as error:
        if find() != seen:
            raise Conflict(error) from error
        raise


def options_of(kind: type[Options], fields: Mapping[str, object]) -> Options:
    """Builds options from the fields that aren't None; `model_fields_set` then tells which were given."""
    return kind.model_validate({name: value for name, value in fields.items() if value is not None})


def changed(options: Options, changes: Mapping[str, object]) -> Options:
    """Returns the options with these fields changed, and checks them; None returns a field to its default."""
    fields = {name: getattr(options, name) for name in type(options).model_fields}
    changed = {name: value for name, value in {**fields, **changes}.items() if value is not None}
    return type(options).model_validate(changed)


def dead_letters_of(topic: str, subscriptions: Iterable[SubscriptionRecord]) -> list[str]:
    """Returns the names of the subscriptions whose dead letters go to `topic`."""
    return sorted(
        each.name
        for each in subscriptions
        if (policy := each.options.dead_letter) is not None
        and policy.topic == topic
        and not each.detached
        and each.state != "deleting"
    )


def check_same_settings(
    what: str, existing: Options, wanted: Options, more: Mapping[str, tuple[object, object]]
) -> None:
    """Raises `AlreadyExists`, which names each field that differs between `existing` and `wanted`.

    `more` holds settings that aren't options: name -> (existing, wanted).
    """
    pairs = dict(more)
    for field in sorted(wanted.model_fields_set):
        name = "schema" if field == "record_schema" else field
        pairs[name] = (getattr(existing, field), getattr(wanted, field))
    different = [f"{name} is {old!r}, not {new!r}" for name, (old, new) in pairs.items() if old != new]
    if different:
        raise AlreadyExists(
            f"{what} already exists with other settings: {'; '.join(different)}. Ask for the settings that it "
            "has, change it with update, or choose another name"
        )


def same_settings(what: str, accept: Call) -> AlreadyExists:
    """Makes the error for a resource that exists with the wanted settings; `accept` is the call that accepts it."""
    return AlreadyExists(
        f"{what} already exists, with the same settings: use it as it is; {accept} accepts it",
        calls=(accept,),
    )


def check_identity(record: TopicRecord, info: TopicInfo) -> None:
    """Raises `FailedPrecondition` if Kafka's topic isn't the one in the catalog."""
    if info.topic_id != record.topic_id:
        adopt = Call("adopt_topic", record.name)
        raise FailedPrecondition(
            f"topic {record.name!r} was deleted and made again by another client: its messages are other ones. "
            f"{adopt} takes the new one; subscriptions of the old one must be made again",
            calls=(adopt,),
        )


def repartition_call(topic: str, partitions: int) -> Call:
    """Returns the call that changes a topic's number of partitions, or continues such a change."""
    return Call("repartition_topic", topic, (("partitions", partitions),))


def check_layout(record: TopicRecord, info: TopicInfo) -> None:
    """Raises `FailedPrecondition` if keys have moved to other partitions, or are about to."""
    if record.repartition is not None:
        go_on = repartition_call(record.name, record.repartition.partitions)
        raise FailedPrecondition(
            f"topic {record.name!r} is being repartitioned from {record.options.partitions} to "
            f"{record.repartition.partitions} partitions: until that is through, only messages without a key can be "
            f"published, and no subscription made. If that call has stopped, {go_on} goes on with it",
            calls=(go_on,),
        )
    if info.partitions != record.options.partitions:
        drain = repartition_call(record.name, info.partitions)
        raise FailedPrecondition(
            f"topic {record.name!r} was made with {record.options.partitions} partitions and has "
            f"{info.partitions} now, so keys have moved and order would be lost: {drain} drains the old layout and "
            "takes the new one; until then only messages without a key can be published",
            calls=(drain,),
        )
