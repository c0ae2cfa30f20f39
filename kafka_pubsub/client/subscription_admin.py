"""Subscriptions: made, changed and deleted, over the ports.

Rules
1. Making: the record (`creating`), the group's offsets (the last stable offset of each partition, so that what is
   published from then on is received), the record (`ready`, with a copy of those offsets). After a crash the
   next `create` goes on and takes the position anew: the first one never returned.
2. A consumer group of that name that the catalog knows nothing about is somebody else's: it is left alone.
3. Deleting: the record (`deleting`, which ends the streams with `NotFound` wherever they run), the group once
   its members have left, the record. If they don't leave, the error says so and `delete` can be called again.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping

from kafka_pubsub.client.names import check_subscription_name, look_alike, retry_topic
from kafka_pubsub.client.ports import Backend
from kafka_pubsub.client.resources import (
    EXIST_OK,
    changed,
    check_same_settings,
    conflicts,
    same_settings,
    settle,
)
from kafka_pubsub.client.topic_admin import TopicAdmin
from kafka_pubsub.config import SubscriptionOptions, SubscriptionRecord
from kafka_pubsub.errors import Call, FailedPrecondition, InvalidArgument, NotFound

__all__ = ["SubscriptionAdmin"]

#: Seconds that a deletion waits for the members to leave: a killed one is noticed after the session's 6 s, a
#: live one looks at the catalog every second (`watch.py`) and then lets its handlers end.
LEAVE_TIMEOUT = 15.0

#: Seconds between two looks at the members.
LEAVE_POLL = 0.2


class SubscriptionAdmin:
    """Manages the subscriptions of one cluster."""

    def __init__(
        self,
        backend: Backend,
        topics: TopicAdmin,
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

    def record(self, name: str) -> SubscriptionRecord:
        """The subscription as the catalog has it; `NotFound` if it isn't ready for use."""
        record = self._find(name)
        if record is None:
            make = Call("create_subscription", name, (("topic", ...),))
            raise NotFound(f"subscription {name!r} not found: {make} makes it", calls=(make,))
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
        """The record of a subscription that can be pulled from now; `FailedPrecondition` if it can't."""
        record = self.record(name)
        delete = Call("delete_subscription", name)
        if record.detached:
            raise FailedPrecondition(
                f"subscription {name!r} is detached: its topic {record.topic!r} was deleted, so it receives nothing "
                f"any more; {delete}, then create it anew on a topic that exists",
                calls=(delete,),
            )
        topic, info = self._topics.current(record.topic)
        if topic.topic_id != record.topic_id:
            raise FailedPrecondition(
                f"subscription {name!r} belongs to an earlier topic {record.topic!r}, which was deleted and made "
                f"again; {delete}, then create it anew",
                calls=(delete,),
            )
        if info.partitions != record.partitions:
            raise FailedPrecondition(
                f"subscription {name!r} was made for {record.partitions} partitions and topic {record.topic!r} has "
                f"{info.partitions} now; `kafka-pubsub topic repartition` will carry it over (it is coming)"
            )
        return record

    def records(self) -> list[SubscriptionRecord]:
        """All subscriptions that are ready, by name."""
        subscriptions = self._backend.catalog.subscriptions()
        return [subscriptions[name] for name in sorted(subscriptions) if subscriptions[name].state == "ready"]

    def create(
        self, name: str, topic: str, wanted: SubscriptionOptions, *, exist_ok: bool
    ) -> SubscriptionRecord:
        """Makes a subscription that receives what is published from now on."""
        check_subscription_name(name)
        return settle(lambda: self._create(name, topic, wanted, exist_ok))

    def update(self, name: str, changes: Mapping[str, object]) -> SubscriptionRecord:
        """Changes the given options only; open streams keep theirs."""
        return settle(lambda: self._update(name, changes))

    def delete(self, name: str, on_marked: Callable[[], None] = lambda: None) -> None:
        """Deletes a subscription and its position; open streams end with `NotFound`.

        `on_marked` is called when nobody can begin to receive any more; it ends what this process receives.
        """
        settle(lambda: self._delete(name, on_marked))

    # -- one attempt each ------------------------------------------------------------------------------------

    def _create(
        self, name: str, topic: str, wanted: SubscriptionOptions, exist_ok: bool
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
        if previous is None:
            self._check_name_is_free(name, topic)
        self._check_group_is_free(name, topic, ours=previous is not None)
        intent = SubscriptionRecord(
            name=name,
            topic=topic,
            topic_id=home.topic_id,
            partitions=info.partitions,
            options=wanted,
            created=self._now(),
            state="creating",
        )
        self._put(intent, previous)
        positions = dict(self._backend.admin.last_stable_offsets(topic))
        self._backend.admin.set_group_offsets(name, topic, positions)
        record = intent.model_copy(update={"positions": positions, "state": "ready"})
        self._put(record, intent)
        return record

    def _existing(
        self, record: SubscriptionRecord, topic: str, wanted: SubscriptionOptions, exist_ok: bool
    ) -> SubscriptionRecord:
        what = f"subscription {record.name!r}"
        check_same_settings(what, record.options, wanted, {"topic": (record.topic, topic)})
        if not exist_ok:
            accept = Call("create_subscription", record.name, (("topic", topic), EXIST_OK))
            raise same_settings(what, accept)
        return self.usable(record.name)

    def _update(self, name: str, changes: Mapping[str, object]) -> SubscriptionRecord:
        record = self.record(name)
        options = changed(record.options, changes)
        if options == record.options:
            return record
        after = record.model_copy(update={"options": options})
        self._put(after, record)
        return after

    def _delete(self, name: str, on_marked: Callable[[], None] = lambda: None) -> None:
        record = self._find(name)
        if record is None:
            raise NotFound(f"subscription {name!r} not found: there is nothing to delete")
        going = record.model_copy(update={"state": "deleting"})
        if record.state != "deleting":
            self._put(going, record)
        on_marked()
        self._wait_for_members_to_leave(name)
        with contextlib.suppress(NotFound):
            self._backend.admin.delete_group(name)
        with conflicts():
            self._backend.catalog.remove_subscription(going)

    # -- parts -----------------------------------------------------------------------------------------------

    def _find(self, name: str) -> SubscriptionRecord | None:
        return self._backend.catalog.subscriptions().get(name)

    def _put(self, record: SubscriptionRecord, previous: SubscriptionRecord | None) -> None:
        with conflicts():
            self._backend.catalog.put_subscription(record, previous)

    def _check_name_is_free(self, name: str, topic: str) -> None:
        others = {each.name: each for each in self._backend.catalog.subscriptions().values()}
        twin = look_alike(name, others)
        if twin is None:
            retry = retry_topic(topic, name)
            twin = look_alike(retry, self._backend.admin.topic_names())
        if twin is not None:
            raise InvalidArgument(
                f"subscription name {name!r} can't be told from {twin!r} in Kafka's metrics, which take `.` and "
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
