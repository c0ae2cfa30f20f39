"""Changes a topic's number of partitions without reordering a key (I12).

More partitions move keys. A key's messages in the new partition must not be received before those in the old one are
finished. So every ordered subscription must finish the old layout before a key is published in the new one. The change
has three phases. The topic's record names a phase before it begins, so any process can continue an interrupted change:

fencing   Publishers that see the phase in the record refuse messages with a key. They read the record every `RENEW_S`,
          and before the first message after a pause, so after `FENCE` all of them have seen it. Then the ends of the
          partitions are stored in the record: the barrier.
draining  Waits until every ordered subscription has finished all messages below the barrier, in its retry topic too.
          Receiving continues, and so does publishing without keys.
growing   Adds the partitions to the home topic and the retry topics, then stores the new number in the records of the
          subscriptions and of the topic. No stream opens meanwhile. Then each group is made to rebalance at once.

Rules
1. Every step may be done twice. A call that was interrupted, or that ran beside another, can be repeated.
2. Until the topic grows, you can cancel the change: ask for the number of partitions that the topic has.
3. A publisher that sees the new number waits until its queue is empty, then makes its writer learn the number before it
   accepts a key again (`publisher.py`). Otherwise librdkafka would use the old number for minutes.
4. The change waits for an unreadable record in a retry topic if the record can go to a dead-letter topic. Without such
   a topic the wait would never end: once only such records are left, an error names them, and you can continue later.
5. A topic with lanes in use isn't changed. Until a change ends, no lane is made.
6. A topic to which another tool has added partitions is changed in the same way. Its keys have already moved, so order
   is kept among the messages published before that, and among those published after this change.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from kafka_pubsub.config import Repartition, SubscriptionRecord, TopicRecord
from kafka_pubsub.errors import (
    Call,
    DeadlineExceeded,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    PubSubError,
)
from kafka_pubsub.log.ports import Backend
from kafka_pubsub.model import TopicPartition
from kafka_pubsub.publish.writer_pool import RENEW_S
from kafka_pubsub.repartition.drain import Drain, UnreadableRecord
from kafka_pubsub.topics.catalog_changes import conflicts, repartition_call, settle
from kafka_pubsub.topics.topics import TopicAdmin

__all__ = ["FENCE", "RepartitionProgress", "Repartitioner"]

#: Seconds after which every publisher refuses keys: two renewals of its settings, and half an interval for a publisher
#: that first waits for a broker.
FENCE = 2.5 * RENEW_S

#: Seconds between two counts of unfinished messages; a count takes several requests for each subscription.
POLL = 1.0

#: Seconds to wait for a group's rebalance. After that its members find the new partitions themselves, within minutes.
NOTIFY_WAIT = 10.0

log = logging.getLogger("kafka_pubsub.repartition")


@dataclass(frozen=True)
class RepartitionProgress:
    """The progress of a change of a topic's partitions.

    `seconds`: how long `fencing` still lasts. `waiting`: the subscriptions that the change waits for, each with its
    number of messages. `idle`: those of them that no process receives. `unreadable`: the records in their retry topics
    that aren't messages. `stuck`: the subscriptions that have only such records left, and no dead-letter topic.
    """

    topic: str
    partitions: int
    phase: str
    seconds: float = 0.0
    waiting: Mapping[str, int] = field(default_factory=dict)
    idle: frozenset[str] = frozenset()
    unreadable: Mapping[str, Sequence[UnreadableRecord]] = field(default_factory=dict)
    stuck: frozenset[str] = frozenset()


class Repartitioner:
    """Changes the layout of one cluster's topics."""

    def __init__(
        self,
        backend: Backend,
        topics: TopicAdmin,
        *,
        may_create: bool,
        fence: float = FENCE,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._backend = backend
        self._topics = topics
        self._may_create = may_create
        self._fence_seconds = fence
        self._clock = clock
        self._sleep = sleep

    def run(
        self,
        name: str,
        partitions: int,
        *,
        timeout: float | None = None,
        on_progress: Callable[[RepartitionProgress], object] = lambda progress: None,
    ) -> TopicRecord:
        """Gives the topic this number of partitions, or continues such a change; returns the topic's new record.

        Raises `DeadlineExceeded` after `timeout` seconds; the progress made so far is kept.
        """
        _check_count(partitions)
        until = None if timeout is None else self._clock() + timeout
        record = settle(lambda: self._announce(name, partitions))
        while (change := record.repartition) is not None:
            step = {"fencing": self._fence, "draining": self._drain, "growing": self._grow}[change.phase]
            record = step(record, change, until, on_progress)
        return record

    def foresee(self, name: str, partitions: int) -> RepartitionProgress | None:
        """Returns the first state of the change that `run` would begin; None: it would begin none. Changes nothing.

        `seconds` is the length of `fencing`, `waiting` what isn't finished now. Raises why the topic can't be changed.
        """
        _check_count(partitions)
        record, info = self._topics.found(name)
        if record.repartition is not None or not self._changes(record, partitions, info.partitions):
            return None
        change = Repartition(partitions=partitions, started=0.0, barrier=self._ends(record))
        drain = Drain(self._backend)
        try:
            found = self._waiting(drain, record, change)
        finally:
            drain.close()
        return replace(found, phase="fencing", seconds=self._fence_seconds)

    def look(self, name: str) -> RepartitionProgress | None:
        """Returns the progress of the topic's change; None: it isn't being changed. Changes nothing."""
        record = self._topics.record(name)
        change = record.repartition
        if change is None or change.phase != "draining":
            return None if change is None else RepartitionProgress(name, change.partitions, change.phase)
        drain = Drain(self._backend)
        try:
            return self._waiting(drain, record, change)
        finally:
            drain.close()

    def _waiting(self, drain: Drain, record: TopicRecord, change: Repartition) -> RepartitionProgress:
        ordered = self._ordered(record)
        left = {each.name: drain.look(each, change.barrier) for each in ordered}
        waiting = {name: found.total for name, found in left.items() if found.total}
        return RepartitionProgress(
            record.name,
            change.partitions,
            "draining",
            waiting=waiting,
            idle=frozenset(name for name in waiting if not self._backend.admin.group_members(name)),
            unreadable={name: found.named for name, found in left.items() if found.named},
            stuck=frozenset(
                each.name for each in ordered if left[each.name].stuck and each.options.dead_letter is None
            ),
        )

    # -- announcing --------------------------------------------------------------------------------------------

    def _announce(self, name: str, partitions: int) -> TopicRecord:
        record, info = self._topics.found(name)
        if record.repartition is not None:
            return self._go_on(record, record.repartition, partitions, info.partitions)
        if not self._changes(record, partitions, info.partitions):
            return record
        # If another tool added partitions, the retry topics get them too: one member must own a home partition and its
        # retry partition to drain them.
        self._add(record, info.partitions, home=False)
        after = record.model_copy(
            update={"repartition": Repartition(partitions=partitions, started=time.time())}
        )
        self._topics.replace(after, record)
        return after

    def _changes(self, record: TopicRecord, partitions: int, there: int) -> bool:
        """Returns whether the topic gets another number of partitions; raises why it can't."""
        name = record.name
        if partitions < there:
            raise InvalidArgument(
                f"topic {name!r} has {there} partitions, and Kafka takes none away: ask for more, or publish "
                "to a new topic"
            )
        if partitions == there == record.options.partitions:
            return False
        if record.options.causal:
            raise FailedPrecondition(
                f"partitions: topic {name!r} is causal, and the order of its messages is that of its partitions: "
                "publish to a new topic with more partitions instead"
            )
        if record.lanes:
            raise FailedPrecondition(
                f"partitions: topic {name!r} has lanes ({', '.join(each.name for each in record.lanes)}), and such a "
                "topic can't be repartitioned: publish to a new topic with more partitions instead"
            )
        self._check_rights(record, partitions)
        return True

    def _go_on(self, record: TopicRecord, change: Repartition, wanted: int, there: int) -> TopicRecord:
        if wanted == change.partitions:
            return record
        may_give_up = change.phase != "growing" and there == record.options.partitions
        if may_give_up and wanted == there:
            after = record.model_copy(update={"repartition": None})
            self._topics.replace(after, record)
            return after
        go_on, give_up = (repartition_call(record.name, each) for each in (change.partitions, there))
        raise FailedPrecondition(
            f"topic {record.name!r} is being given {change.partitions} partitions already: {go_on} goes on with that"
            + (f", {give_up} gives it up" if may_give_up else ""),
            calls=(go_on, give_up) if may_give_up else (go_on,),
        )

    def _check_rights(self, record: TopicRecord, partitions: int) -> None:
        """Raises an error if this client may not create, and a topic lacks partitions that an operator must add."""
        if self._may_create:
            return
        small = [name for name, count in self._counts(record).items() if count < partitions]
        if small:
            raise FailedPrecondition(
                f"topic {record.name!r} can't be repartitioned with create=False (KAFKA_PUBSUB_CREATE): have the "
                f"topics {', '.join(map(repr, small))} given {partitions} partitions, then call again, or have it done "
                "by a client that may"
            )

    # -- fencing -----------------------------------------------------------------------------------------------

    def _fence(
        self,
        record: TopicRecord,
        change: Repartition,
        until: float | None,
        tell: Callable[[RepartitionProgress], object],
    ) -> TopicRecord:
        # The wait begins now and not at `started`, which may be the time of another machine's clock.
        end = self._clock() + self._fence_seconds
        while (left := end - self._clock()) > 0:
            tell(RepartitionProgress(record.name, change.partitions, "fencing", seconds=left))
            record = self._still(record.name, change.partitions)
            if record.repartition is None or record.repartition.phase != "fencing":
                return record
            self._wait(record, until, min(left, POLL))
        drains = change.model_copy(update={"phase": "draining", "barrier": self._ends(record)})
        return self._advance(record.name, change, drains)

    def _ends(self, record: TopicRecord) -> dict[int, int]:
        places = [TopicPartition(record.name, number) for number in range(record.options.partitions)]
        ends = self._backend.admin.high_watermarks(places)
        return {place.partition: offset for place, offset in ends.items()}

    # -- draining ----------------------------------------------------------------------------------------------

    def _drain(
        self,
        record: TopicRecord,
        change: Repartition,
        until: float | None,
        tell: Callable[[RepartitionProgress], object],
    ) -> TopicRecord:
        drain = Drain(self._backend)
        try:
            while True:
                record = self._still(record.name, change.partitions)
                if record.repartition is None or record.repartition.phase != "draining":
                    return record
                progress = self._waiting(drain, record, change)
                tell(progress)
                if not progress.waiting:
                    break
                if progress.stuck == progress.waiting.keys():
                    raise _only_unreadable(record, change, progress)
                self._wait(record, until, POLL, progress)
        finally:
            drain.close()
        return self._advance(record.name, change, change.model_copy(update={"phase": "growing"}))

    # -- growing -----------------------------------------------------------------------------------------------

    def _grow(
        self,
        record: TopicRecord,
        change: Repartition,
        until: float | None,
        tell: Callable[[RepartitionProgress], object],
    ) -> TopicRecord:
        tell(RepartitionProgress(record.name, change.partitions, "growing"))
        self._add(record, change.partitions, home=True)
        for name in [each.name for each in self._subscriptions(record)]:
            settle(partial(self._carry_over, name, record.topic_id, change.partitions))
        done = settle(lambda: self._finish(record.name, change))
        for each in self._subscriptions(done):
            self._notify(each)
        return done

    def _add(self, record: TopicRecord, partitions: int, *, home: bool) -> None:
        for name, count in self._counts(record).items():
            if count < partitions and (home or name != record.name):
                try:
                    self._backend.admin.add_partitions(name, partitions)
                except InvalidArgument:
                    # Another process may have added them first.
                    if self._backend.admin.topic(name).partitions < partitions:
                        raise

    def _carry_over(self, name: str, topic_id: str, partitions: int) -> None:
        record = self._backend.catalog.subscriptions().get(name)
        if record is None or record.topic_id != topic_id or record.partitions == partitions:
            return
        # The subscription is older than the new partitions, so it receives them from offset 0.
        young = dict.fromkeys(range(record.partitions, partitions), 0)
        retry = record.retry_topic
        if retry is not None:
            retry = retry.model_copy(update={"positions": {**young, **retry.positions}})
        after = record.model_copy(
            update={
                "partitions": partitions,
                "positions": {**young, **record.positions},
                "retry_topic": retry,
            }
        )
        with conflicts():
            self._backend.catalog.put_subscription(after, record)

    def _finish(self, name: str, change: Repartition) -> TopicRecord:
        record = self._still(name, change.partitions)
        if record.repartition is None:
            return record
        options = record.options.model_copy(update={"partitions": change.partitions})
        after = record.model_copy(update={"options": options, "repartition": None})
        self._topics.replace(after, record)
        return after

    def _notify(self, record: SubscriptionRecord) -> None:
        """Joins the group for a moment, so that a rebalance assigns the new partitions too."""
        try:
            if not self._backend.admin.group_members(record.name):
                return
            bystander = _Bystander()
            reader = self._backend.reader(record.name, "kafka_pubsub-repartition")
            try:
                retry = [] if record.retry_topic is None else [record.retry_topic.name]
                reader.subscribe([record.topic, *retry], bystander)
                end = self._clock() + NOTIFY_WAIT
                while not bystander.joined and self._clock() < end:
                    reader.read(1, 0.1)
            finally:
                reader.close()
        except PubSubError as error:
            log.warning(
                "subscription %r wasn't notified of its new partitions (%s): it finds them by itself, within minutes",
                record.name,
                error.message,
            )

    # -- parts -------------------------------------------------------------------------------------------------

    def _still(self, name: str, partitions: int) -> TopicRecord:
        """Returns the current record; raises an error if the change was cancelled or replaced by another one."""
        record = self._topics.record(name)
        there = record.options.partitions
        if record.repartition is None and there != partitions:
            raise FailedPrecondition(
                f"topic {name!r}: the change to {partitions} partitions was given up by another client; it has {there}"
            )
        if record.repartition is not None and record.repartition.partitions != partitions:
            raise FailedPrecondition(
                f"topic {name!r}: another client has begun a change to {record.repartition.partitions} partitions"
            )
        return record

    def _advance(self, name: str, before: Repartition, after: Repartition) -> TopicRecord:
        def change() -> TopicRecord:
            record = self._still(name, before.partitions)
            if record.repartition != before:
                return record  # another process continues the same change and was faster
            moved = record.model_copy(update={"repartition": after})
            self._topics.replace(moved, record)
            return moved

        return settle(change)

    def _wait(
        self,
        record: TopicRecord,
        until: float | None,
        seconds: float,
        progress: RepartitionProgress | None = None,
    ) -> None:
        change = record.repartition
        if until is not None and self._clock() + seconds > until and change is not None:
            go_on = repartition_call(record.name, change.partitions)
            give_up = repartition_call(record.name, record.options.partitions)
            what = "publishers to notice"
            if progress is not None:
                these = ", ".join(
                    f"{name!r} ({count} message{'s' * (count != 1)}{', no process receives' * (name in progress.idle)})"
                    for name, count in progress.waiting.items()
                )
                what = f"subscriptions that haven't finished the old layout: {these}"
            raise DeadlineExceeded(
                f"topic {record.name!r} isn't repartitioned yet, it waits for {what}. Until then messages with a key "
                f"are refused: {go_on} goes on, {give_up} gives it up",
                calls=(go_on, give_up),
            )
        self._sleep(seconds)

    def _subscriptions(self, record: TopicRecord) -> Sequence[SubscriptionRecord]:
        """Returns the subscriptions that receive from the topic."""
        return [
            each
            for each in self._backend.catalog.subscriptions().values()
            if each.topic == record.name
            and each.topic_id == record.topic_id
            and each.state == "ready"
            and not each.detached
        ]

    def _ordered(self, record: TopicRecord) -> Sequence[SubscriptionRecord]:
        return [each for each in self._subscriptions(record) if each.options.message_ordering]

    def _counts(self, record: TopicRecord) -> Mapping[str, int]:
        """Returns the number of partitions of the topic and of each retry topic beside it."""
        names = [record.name]
        names += [each.retry_topic.name for each in self._subscriptions(record) if each.retry_topic]
        counts = {}
        for name in names:
            try:
                counts[name] = self._backend.admin.topic(name).partitions
            except NotFound:
                if name == record.name:
                    raise
                log.warning("retry topic %r is gone; going on without it", name)
        return counts


def _only_unreadable(
    record: TopicRecord, change: Repartition, progress: RepartitionProgress
) -> FailedPrecondition:
    """Makes the error for a change that waits only for unreadable records, which need a dead-letter topic."""
    calls = [Call("update_subscription", name, (("dead_letter", ...),)) for name in sorted(progress.stuck)]
    go_on, give_up = (
        repartition_call(record.name, each) for each in (change.partitions, record.options.partitions)
    )
    named = [
        f"{each.topic}, partition {each.partition}, offset {each.offset}: {each.reason}"
        for some in progress.unreadable.values()
        for each in some
    ]
    more = sum(progress.waiting.values()) - len(named)
    return FailedPrecondition(
        f"topic {record.name!r} isn't repartitioned yet: what is left of the old layout are records with a key "
        f"that can't be read, in retry topics ({'; '.join(named)}{f'; and {more} more' if more else ''}). They go to "
        f"the dead letters as they are, once there are any: {', '.join(map(str, calls))}, then open its streams anew. "
        f"Until then messages with a key are refused: {go_on} goes on afterwards, {give_up} gives it up",
        calls=(*calls, go_on, give_up),
    )


def _check_count(partitions: object) -> None:
    if type(partitions) is not int or not 1 <= partitions <= 10_000:
        raise InvalidArgument(f"partitions must be a whole number from 1 to 10000, not {partitions!r}")


class _Bystander:
    """The listener of a member that joins a group for a moment and uses no record."""

    def __init__(self) -> None:
        self.joined = False

    def assigned(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        self.joined = True
        return {}

    def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """Does nothing: no record was used."""

    def lost(self, partitions: Sequence[TopicPartition]) -> None:
        """Does nothing: no record was used."""

    def failed(self, partition: TopicPartition | None, error: PubSubError, fatal: bool) -> None:
        if fatal:
            raise error
