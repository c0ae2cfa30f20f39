"""Makes, changes and deletes subscriptions, over the ports.

Rules
1. `create` makes all its checks first. Then it writes the record (`creating`, with the planned retry topic), makes the
   retry topic, commits the group's positions in one request (`starts.py`; by default each partition's last stable
   offset, so that the subscription receives all messages published from then on), and writes the record (`ready`, with
   a copy of the positions). After a crash the next `create` continues and sets new positions, because the first one
   never returned.
2. A consumer group of that name that isn't in the catalog belongs to another application, and isn't changed.
3. `delete` writes the record (`deleting`, which ends the streams of all processes with `NotFound`). When the members
   have left, it removes the retry topic, the group and the record. If they don't leave, an error says so, and you can
   call `delete` again. If the cluster refuses to delete the retry topic, the record becomes what it was before.
4. No stream opens while a topic grows: `usable` waits for the end of that phase.
5. A subscription has a retry topic for each lane of its topic, and begins in a lane where it begins in the topic.
   Lanes that come later are added to it (`lane_parts.py`).
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Mapping
from typing import Literal

from kafka_pubsub.config import (
    RetryTopic,
    SubscriptionLane,
    SubscriptionOptions,
    SubscriptionRecord,
    TopicRecord,
)
from kafka_pubsub.errors import (
    Call,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    PermissionDenied,
    PubSubError,
    ResourceExhausted,
)
from kafka_pubsub.log.ports import Backend
from kafka_pubsub.model import TopicInfo, TopicPartition
from kafka_pubsub.options import Start
from kafka_pubsub.subscribe.admin.exclusive_session import forget_session
from kafka_pubsub.subscribe.admin.lane_parts import LaneParts
from kafka_pubsub.subscribe.admin.starts import Beginnings
from kafka_pubsub.subscribe.retry_topic.lost_tails import LostTail, Recovery
from kafka_pubsub.subscribe.retry_topic.retry_topics import RetryTopics
from kafka_pubsub.subscribe.takeover.metadata_limit import MetadataLimit
from kafka_pubsub.topics.catalog_changes import (
    EXIST_OK,
    changed,
    check_layout,
    check_same_settings,
    conflicts,
    repartition_call,
    same_settings,
    settle,
    settle_making,
    unless_overtaken,
)
from kafka_pubsub.topics.dead_letter_topics import check_dead_letter_name, prepare_dead_letters
from kafka_pubsub.topics.names import check_subscription_name, look_alike, not_found, retry_topic
from kafka_pubsub.topics.topics import TopicAdmin

__all__ = ["SubscriptionAdmin"]

_log = logging.getLogger("kafka_pubsub.subscriber")

#: Seconds to wait for the members to leave at a deletion. The broker notices a killed member after 6 s; a live one
#: reads the catalog every second (`deletion_watch.py`) and then lets its callbacks end.
LEAVE_TIMEOUT = 15.0

#: Seconds between two counts of the members.
LEAVE_POLL = 0.2

#: Seconds to wait before receiving until a topic has grown: the cluster adds partitions in well below a second, and
#: the catalog is written twice.
GROW_TIMEOUT = 10.0

#: Errors with which a cluster refuses to make or delete a topic: nothing was changed.
_REFUSALS = (FailedPrecondition, InvalidArgument, PermissionDenied)


class SubscriptionAdmin:
    """Manages the subscriptions of one cluster."""

    def __init__(
        self,
        backend: Backend,
        topics: TopicAdmin,
        lanes: LaneParts,
        *,
        may_create: bool,
        now: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._backend = backend
        self._topics = topics
        self._may_create = may_create
        self._now = now
        self._sleep = sleep
        self._retry = RetryTopics(backend.admin, may_create=may_create)
        self._lanes = lanes
        self._metadata_limit = MetadataLimit(backend.admin)

    def record(self, name: str) -> SubscriptionRecord:
        """Returns the subscription's record; raises `NotFound` if the subscription isn't ready for use."""
        record = self._find(name)
        if record is None:
            make = Call("create_subscription", name, (("topic", ...),))
            missing = not_found("subscription", name, self._backend.catalog.subscriptions())
            raise NotFound(f"{missing} {make} makes it", calls=(make,))
        if record.state == "creating":
            make = Call("create_subscription", name, (("topic", record.topic),))
            raise NotFound(f"subscription {name!r} is half made: {make} finishes it", calls=(make,))
        if record.state == "deleting":
            finish = Call("delete_subscription", name)
            raise NotFound(
                f"subscription {name!r} is deleted, or half so: {finish} finishes it", calls=(finish,)
            )
        return record

    def usable(self, name: str) -> SubscriptionRecord:
        """Returns the record of a subscription that can be pulled from now; raises `FailedPrecondition` otherwise."""
        record = self.record(name)
        delete = Call("delete_subscription", name)
        if record.detached:
            raise FailedPrecondition(
                f"subscription {name!r} is detached: its topic {record.topic!r} was deleted, so it receives nothing "
                f"any more; {delete}, then create it anew on a topic that exists",
                calls=(delete,),
            )
        topic, info = self._grown(record.topic)
        record = self.record(name)
        if topic.topic_id != record.topic_id:
            raise FailedPrecondition(
                f"subscription {name!r} belongs to an earlier topic {record.topic!r}, which was deleted and made "
                f"again; {delete}, then create it anew",
                calls=(delete,),
            )
        if topic.repartition is None:
            check_layout(topic, info)
        if record.partitions != topic.options.partitions:
            go_on = repartition_call(record.topic, info.partitions)
            raise FailedPrecondition(
                f"subscription {name!r} was made for {record.partitions} partitions and topic {record.topic!r} has "
                f"{info.partitions} now; {go_on} carries it over",
                calls=(go_on,),
            )
        self._retry.check(record, info, info.partitions)
        for lane in topic.lanes:
            if lane.topic_id:
                self._lanes.check_lane(topic, lane)
        self._metadata_limit.check()
        return record

    def _grown(self, name: str) -> tuple[TopicRecord, TopicInfo]:
        """Waits until the topic isn't growing (its layout is neither the old nor the new one), and returns it."""
        waited = 0.0
        while True:
            topic, info = self._topics.found(name)
            change = topic.repartition
            if change is None or change.phase != "growing":
                return topic, info
            if waited >= GROW_TIMEOUT:
                go_on = repartition_call(name, change.partitions)
                raise FailedPrecondition(
                    f"topic {name!r} is half way between {topic.options.partitions} and {change.partitions} "
                    f"partitions, and the call that changes it seems to have stopped: {go_on} finishes it",
                    calls=(go_on,),
                )
            self._sleep(LEAVE_POLL)
            waited += LEAVE_POLL

    def records(self) -> list[SubscriptionRecord]:
        """Returns all subscriptions that are ready, by name."""
        subscriptions = self._backend.catalog.subscriptions()
        return [subscriptions[name] for name in sorted(subscriptions) if subscriptions[name].state == "ready"]

    def create(
        self,
        name: str,
        topic: str,
        wanted: SubscriptionOptions,
        *,
        exist_ok: bool,
        start: Start = "latest",
    ) -> SubscriptionRecord:
        """Makes a subscription, which receives the messages from `start` on; one that exists stays where it is."""
        check_subscription_name(name)
        beginnings = Beginnings(self._backend.admin, name, start, self._now)
        return settle_making(
            lambda: self._create(name, topic, wanted, exist_ok, beginnings),
            lambda: self._find(name),
            self._sleep,
        )

    def passed_over(self, name: str) -> int:
        """Returns how many messages, at most, lie before the position at which the subscription was made."""
        record = self.record(name)
        begun = _places(record.topic, record.positions, None, record.lanes)
        places = [place for place in begun if place.topic == record.topic or place.topic in record.lanes]
        first = self._backend.admin.log_ranges(places)
        return sum(max(0, begun[place] - first[place][0]) for place in places)

    def update(self, name: str, changes: Mapping[str, object]) -> SubscriptionRecord:
        """Changes the given options, and only these; open streams keep their options."""
        return settle(lambda: self._update(name, changes))

    def remake_retry_topic(self, name: str) -> SubscriptionRecord:
        """Gives the subscription a correct retry topic when its own is gone or has changed.

        The messages of a topic that is gone are lost. A topic that still holds messages isn't changed.
        """
        return settle(lambda: self._remake(name))

    def recover(self, name: str, start: Literal["oldest", "end"]) -> list[LostTail]:
        """Continues the subscription after a log has lost its end (`lost_tails`)."""
        if start not in ("oldest", "end"):
            raise InvalidArgument(f'start: {start!r} is neither "oldest" nor "end"')
        return Recovery(self._backend, self.usable(name)).run(start)

    def delete(self, name: str, on_marked: Callable[[], None] = lambda: None) -> None:
        """Deletes a subscription and its position; open streams end with `NotFound`.

        `on_marked` is called when no stream can be opened any more; it ends the streams of this process.
        """
        settle(lambda: self._delete(name, on_marked))

    # -- one attempt each ------------------------------------------------------------------------------------

    def _create(
        self, name: str, topic: str, wanted: SubscriptionOptions, exist_ok: bool, beginnings: Beginnings
    ) -> SubscriptionRecord:
        previous = self._find(name)
        if previous is not None and previous.state == "deleting":
            self._delete(name)
            previous = None
        if previous is not None and previous.state == "ready":
            return self._existing(previous, topic, wanted, exist_ok)
        if not self._may_create:
            raise FailedPrecondition(
                f"subscription {name!r} doesn't exist, and with create=False (KAFKA_PUBSUB_CREATE) no groups are "
                "made: have it made by a client that may"
            )
        home, info = self._topics.current(topic)
        self._metadata_limit.check()
        with unless_overtaken(previous, lambda: self._find(name)):
            if previous is None:
                self._check_name_is_free(name, topic)
            self._check_group_is_free(name, topic, ours=previous is not None)
        self._check_dead_letters(wanted, info)
        self._lanes.check(name, home)
        begun = None if previous is None else previous.retry_topic
        plan = self._retry.plan(name, info, begun)
        if begun is not None and begun.name != retry_topic(topic, name):
            self._retry.remove(begun)
        intent = SubscriptionRecord(
            name=name,
            topic=topic,
            topic_id=home.topic_id,
            partitions=info.partitions,
            options=wanted,
            retry_topic=plan,
            created=self._now(),
            state="creating",
        )
        self._put(intent, previous)
        retry = self._make_retry(intent, plan, info)
        # Read again, because a lane that was added since the intent was stored isn't in `home`.
        intent = self._lanes.join(intent, self._topics.record(topic))
        positions = beginnings.of(topic)
        lanes = self._lanes.begin(intent, beginnings.of)
        with unless_overtaken(intent, lambda: self._find(name)):
            self._check_nobody_was_faster(intent)
            self._backend.admin.set_positions(name, _places(topic, positions, retry, lanes))
        # A repartition that began meanwhile doesn't wait for this subscription, so this raises an error.
        self._topics.current(topic)
        record = intent.model_copy(
            update={"positions": positions, "retry_topic": retry, "lanes": lanes, "state": "ready"}
        )
        self._put(record, intent)
        return record

    def _check_nobody_was_faster(self, intent: SubscriptionRecord) -> None:
        """Raises if the record has changed: positions set now would skip messages published since that change."""
        if self._find(intent.name) != intent:
            raise FailedPrecondition(
                f"subscription {intent.name!r} is being made by another client at this moment: try again"
            )

    def _make_retry(self, intent: SubscriptionRecord, plan: RetryTopic, home: TopicInfo) -> RetryTopic:
        try:
            return self._retry.make(plan, home)
        except (*_REFUSALS, ResourceExhausted):
            # No topic was made, so the record goes. After any other error the next `create` continues.
            with contextlib.suppress(PubSubError):
                self._backend.catalog.remove_subscription(intent)
            raise

    def _check_dead_letters(self, options: SubscriptionOptions, home: TopicInfo) -> None:
        if options.dead_letter is not None:
            check_dead_letter_name(options.dead_letter, home.name)
            prepare_dead_letters(self._backend.admin, self._topics, options.dead_letter, home)

    def _existing(
        self, record: SubscriptionRecord, topic: str, wanted: SubscriptionOptions, exist_ok: bool
    ) -> SubscriptionRecord:
        what = f"subscription {record.name!r}"
        check_same_settings(what, record.options, wanted, {"topic": (record.topic, topic)})
        if not exist_ok:
            accept = Call("create_subscription", record.name, (("topic", topic), EXIST_OK))
            raise same_settings(what, accept)
        if record.retry_topic is None and not record.detached:
            self._remake(record.name)
        return self.usable(record.name)

    def _update(self, name: str, changes: Mapping[str, object]) -> SubscriptionRecord:
        record = self.record(name)
        options = changed(record.options, changes)
        if options == record.options:
            return record
        if options.dead_letter is not None and options.dead_letter != record.options.dead_letter:
            _, home = self._topics.found(record.topic)
            self._check_dead_letters(options, home)
        after = record.model_copy(update={"options": options})
        self._put(after, record)
        return after

    def _remake(self, name: str) -> SubscriptionRecord:
        record = self.record(name)
        _, home = self._topics.current(record.topic)
        known = record.retry_topic
        info = None if known is None else self._retry.find(known.name)
        if known is not None and info is not None and info.topic_id == known.topic_id:
            if info.partitions == record.partitions:
                return record
            waiting = self._retry.waiting(record)
            if waiting:
                raise FailedPrecondition(
                    f"up to {waiting} messages wait in the retry topic {known.name!r} of subscription {name!r}, which "
                    f"has {info.partitions} partitions instead of {record.partitions}: copy what you need of it (any "
                    "Kafka client can read it), delete it, and call again",
                )
            self._retry.remove(known)
        plan = self._retry.plan(name, home, known if known is not None and not known.topic_id else None)
        if known is not None and known.topic_id:
            _log.error(
                "subscription %r: its retry topic %r is made again; what may have waited in the old one is lost",
                name,
                known.name,
            )
        # The positions are stored only in the record: a group with members accepts no commit from outside, and without
        # a committed position the streams use the record's.
        begun = record.model_copy(update={"retry_topic": plan})
        if begun != record:
            self._put(begun, record)
        after = begun.model_copy(update={"retry_topic": self._retry.make(plan, home)})
        self._put(after, begun)
        return after

    def _delete(self, name: str, on_marked: Callable[[], None] = lambda: None) -> None:
        record = self._find(name)
        if record is None:
            missing = not_found("subscription", name, self._backend.catalog.subscriptions())
            raise NotFound(f"{missing} there is nothing to delete")
        going = record.model_copy(update={"state": "deleting"})
        if record.state != "deleting":
            self._put(going, record)
        on_marked()
        self._wait_for_members_to_leave(name)
        self._remove_retry(going, record)
        with contextlib.suppress(NotFound):
            self._backend.admin.delete_group(name)
        forget_session(self._backend.admin, name)
        with conflicts():
            self._backend.catalog.remove_subscription(going)

    def _remove_retry(self, going: SubscriptionRecord, before: SubscriptionRecord) -> None:
        try:
            self._retry.remove(going.retry_topic)
            self._lanes.remove(going)
        except _REFUSALS:
            # Nothing was deleted. After any other error the topic may be gone, and the next `delete` continues.
            with contextlib.suppress(PubSubError):
                self._backend.catalog.put_subscription(before, going)
            raise

    # -- parts -----------------------------------------------------------------------------------------------

    def _find(self, name: str) -> SubscriptionRecord | None:
        return self._backend.catalog.subscriptions().get(name)

    def _put(self, record: SubscriptionRecord, previous: SubscriptionRecord | None) -> None:
        with conflicts():
            self._backend.catalog.put_subscription(record, previous)

    def _check_name_is_free(self, name: str, topic: str) -> None:
        others = {each.name: each for each in self._backend.catalog.subscriptions().values()}
        similar = look_alike(name, others)
        if similar is None:
            similar = look_alike(retry_topic(topic, name), self._backend.admin.topic_names())
        if similar is not None:
            raise InvalidArgument(
                f"subscription name {name!r} can't be told from {similar!r} in Kafka's metrics, which take `.` and "
                "`_` for the same: choose another name"
            )

    def _check_group_is_free(self, name: str, topic: str, *, ours: bool) -> None:
        members = self._backend.admin.group_members(name)
        if members:
            raise FailedPrecondition(
                f"subscription {name!r} can't be made: a consumer group of that name has {members} members, which "
                "aren't ours; choose another name, or stop them"
            )
        if ours:
            return
        committed = self._backend.admin.group_offsets(name, topic)
        if any(each.offset is not None for each in committed.values()):
            raise FailedPrecondition(
                f"subscription {name!r} can't be made: a consumer group of that name has committed offsets in "
                f"topic {topic!r} which aren't ours; choose another name, or delete the group"
            )

    def _wait_for_members_to_leave(self, name: str) -> None:
        waited = 0.0
        while members := self._backend.admin.group_members(name):
            if waited >= LEAVE_TIMEOUT:
                again = Call("delete_subscription", name)
                raise FailedPrecondition(
                    f"subscription {name!r} is marked as deleted, but {members} members are still connected after "
                    f"{LEAVE_TIMEOUT:g} s: close their streams, then {again} again",
                    calls=(again,),
                )
            self._sleep(LEAVE_POLL)
            waited += LEAVE_POLL


def _places(
    topic: str, positions: Mapping[int, int], retry: RetryTopic | None, lanes: Mapping[str, SubscriptionLane]
) -> dict[TopicPartition, int]:
    """Returns the position of every partition of the home topic, its lanes, and their retry topics."""
    found = {topic: positions, **{name: part.positions for name, part in lanes.items()}}
    for each in (retry, *(part.retry_topic for part in lanes.values())):
        if each is not None:
            found[each.name] = each.positions
    return {
        TopicPartition(name, number): offset
        for name, some in found.items()
        for number, offset in some.items()
    }
