"""Makes, adopts, changes and deletes topics, over the ports.

Rules
1. `create` writes the record (`creating`), makes Kafka's topic, then writes the record (`ready`). After a crash the
   next `create` continues: it makes the topic, or uses the existing one if that has the wanted settings.
2. `delete` writes the record (`deleting`), deletes Kafka's topic, detaches the subscriptions, then removes the record.
   After a crash the next `delete` or `create` continues.
3. An adopted topic existed before its record. `delete` only removes the record: Kafka keeps the topic.
4. A subscription whose topic is gone, or was made again, is detached: it keeps its name, and an error says what
   happened. Its retry topic and the messages in it stay until the subscription is deleted.
5. A topic to which a subscription sends its dead letters can't be deleted.
6. A causal topic has an inbox (`inbox_topics.py`), made before the record is ready. After the topic's deletion its
   record stays `deleting` and its inbox stays, until the second `delete`; the next `create` takes the inbox over.
7. A topic may get lanes at any time, and keeps them. Brokers stamp the records of such a topic before its record says
   so. The lanes themselves are made when they are first used (`lanes/topics.py`), and deleted with the topic.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Mapping
from typing import Protocol

from kafka_pubsub.config import TopicOptions, TopicRecord
from kafka_pubsub.errors import (
    AlreadyExists,
    Call,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    PermissionDenied,
    PubSubError,
    ResourceExhausted,
)
from kafka_pubsub.log.ports import Backend
from kafka_pubsub.model import TopicInfo
from kafka_pubsub.topics.catalog_changes import (
    EXIST_OK,
    changed,
    check_identity,
    check_layout,
    check_same_settings,
    conflicts,
    dead_letters_of,
    same_settings,
    settle,
    settle_making,
    unless_overtaken,
)
from kafka_pubsub.topics.companion_topics import BROKER_TIME
from kafka_pubsub.topics.key_places import KeyPlaces
from kafka_pubsub.topics.key_sample import sample_keys
from kafka_pubsub.topics.names import (
    check_new_topic_name,
    check_topic_name,
    look_alike,
    not_found,
    retry_topic,
)

__all__ = ["Inboxes", "Lanes", "TopicAdmin"]


class Lanes(Protocol):
    """The Kafka topics of topics' lanes."""

    def check_kept(self, record: TopicRecord, after: TopicOptions) -> None:
        """Raises `FailedPrecondition` if a change would take lanes away, in which messages may wait."""

    def prepare(self, options: TopicOptions, info: TopicInfo) -> TopicInfo:
        """Prepares a topic for the lanes that these options allow; returns it as it is then."""
        ...

    def retain(self, record: TopicRecord, milliseconds: str | None) -> None:
        """Changes how long the topic and its lanes keep messages; None: the broker's default."""

    def delete(self, record: TopicRecord) -> None:
        """Deletes the lanes of a topic, also those that a call which didn't end has left."""


class Inboxes(Protocol):
    """The inboxes of causal topics, in which messages wait for their place in the order."""

    def check_left(self, record: TopicRecord, partitions: int) -> None:
        """Raises if the inbox that a deleted topic has left is one with which the new topic can't go on."""

    def make(self, home: TopicInfo, known: str) -> str:
        """Makes the inbox of a topic; returns its id. `known`: that of an inbox to go on with, or empty."""
        ...

    def say_alive(self, home: TopicInfo) -> None:
        """Writes into each partition of a topic's inbox that the topic was made."""

    def delete(self, record: TopicRecord, sleep: Callable[[float], None]) -> None:
        """Deletes the inbox of a topic that was deleted; `sleep` waits for sequencers that stand still."""


_log = logging.getLogger("kafka_pubsub.admin")

#: Errors with which a cluster refuses a request for a topic: nothing was changed.
_REFUSALS = (FailedPrecondition, InvalidArgument, PermissionDenied, ResourceExhausted)

#: Seconds to search for a topic to be adopted, because Kafka answers before every broker knows a new topic (on a busy
#: machine that takes a second); and seconds between two requests.
APPEARS, LOOK = 2.0, 0.1


class TopicAdmin:
    """Manages the topics of one cluster."""

    def __init__(
        self,
        backend: Backend,
        lanes: Lanes,
        inboxes: Inboxes,
        *,
        may_create: bool,
        on_changed: Callable[[str], None] = lambda name: None,
        now: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        #: The log in which the topics are.
        self.backend = backend
        self._may_create = may_create
        # Called with the name of every topic whose record this object has changed.
        self._on_changed = on_changed
        self._now = now
        self._sleep = sleep
        self._lanes = lanes
        self._inboxes = inboxes

    def record(self, name: str) -> TopicRecord:
        """Returns the topic's record; raises `NotFound` if the topic isn't ready for use."""
        record = self._find(name)
        if record is None or record.state == "creating":
            make, adopt = Call("create_topic", name), Call("adopt_topic", name)
            missing = not_found("topic", name, (each.name for each in self.records()))
            raise NotFound(
                f"{missing} {make} makes it, {adopt} takes over a topic that Kafka has already",
                calls=(make, adopt),
            )
        if record.state == "deleting":
            finish = Call("delete_topic", name)
            raise NotFound(f"topic {name!r} is deleted, or half so: {finish} finishes it", calls=(finish,))
        return record

    def is_causal(self, name: str) -> bool:
        """Returns whether there is a causal topic of this name, ready for use."""
        record = self._find(name)
        return record is not None and record.state == "ready" and record.options.causal

    def current(self, name: str) -> tuple[TopicRecord, TopicInfo]:
        """Returns the record and Kafka's current topic; raises `FailedPrecondition` if they don't belong together."""
        record, info = self.found(name)
        check_layout(record, info)
        return record, info

    def found(self, name: str) -> tuple[TopicRecord, TopicInfo]:
        """Returns the same, even if the number of partitions has changed or is changing (`check_layout`)."""
        record = self.record(name)
        info = self._info(name)
        if info is None:
            forget, make = Call("delete_topic", name), Call("create_topic", name)
            raise NotFound(
                f"topic {name!r} was deleted from Kafka by another client: {forget} forgets it, {make} makes it again",
                calls=(forget, make),
            )
        check_identity(record, info)
        return record, info

    def records(self) -> list[TopicRecord]:
        """Returns all topics that are ready, by name."""
        topics = self.backend.catalog.topics()
        return [topics[name] for name in sorted(topics) if topics[name].state == "ready"]

    def create(self, name: str, wanted: TopicOptions, *, exist_ok: bool) -> TopicRecord:
        """Makes a topic, or finishes a topic that a crashed call left half made."""
        check_new_topic_name(name)
        return settle_making(
            lambda: self._create(name, wanted, exist_ok), lambda: self._find(name), self._sleep
        )

    def adopt(
        self, name: str, wanted: TopicOptions, *, exist_ok: bool, check_keys: bool = True
    ) -> TopicRecord:
        """Adds a topic that Kafka already has to the catalog, unchanged; `check_keys`: then checks a sample of keys."""
        check_topic_name(name)
        record, new = settle(lambda: self._adopt(name, wanted, exist_ok))
        if new and check_keys:
            self.key_places(name)
        return record

    def key_places(self, name: str) -> KeyPlaces | None:
        """Checks with a sample whether the topic's keys lie where publishing puts them; logs a warning if some don't.

        None: the topic couldn't be read, because this client has no right to, or got no answer.
        """
        try:
            found = sample_keys(self.backend, name, self.backend.admin.topic(name).partitions)
        except PubSubError as error:
            _log.warning("the keys of topic %r couldn't be looked at: %s", name, error.message)
            return None
        if found.advice is not None:
            _log.warning("topic %r: %s", name, found.advice)
        return found

    def update(self, name: str, changes: Mapping[str, object]) -> TopicRecord:
        """Changes the given options, and only these."""
        return settle(lambda: self._update(name, changes))

    def replace(self, record: TopicRecord, previous: TopicRecord) -> None:
        """Stores a changed record and notifies the topic's users in this process; call it inside `settle`."""
        self._put(record, previous)

    def delete(self, name: str) -> bool:
        """Deletes a topic and detaches its subscriptions; returns True if it was adopted, so that Kafka keeps it."""
        kept = settle(lambda: self._delete(name))
        if kept:
            _log.warning("topic %r was adopted: it is forgotten, Kafka keeps it and its messages", name)
        return kept

    # -- one attempt each ------------------------------------------------------------------------------------

    def _create(self, name: str, wanted: TopicOptions, exist_ok: bool) -> TopicRecord:
        previous, info = self._find(name), self._info(name)
        goes_on = wanted.causal and previous is not None and bool(previous.inbox_id)
        if goes_on and previous is not None and (previous.state == "deleting" or info is None):
            self._inboxes.check_left(previous, wanted.partitions)
        if previous is not None and previous.state == "deleting":
            if goes_on:
                self._delete_from_kafka(previous, previous)
            else:
                self._delete(name)
                previous = None
            info = self._info(name)
        if previous is not None and previous.state == "ready" and info is not None:
            return self._existing(previous, info, wanted, exist_ok, Call("create_topic", name, (EXIST_OK,)))
        if not self._may_create:
            adopt = Call("adopt_topic", name)
            raise FailedPrecondition(
                f"topic {name!r} doesn't exist, and with create=False (KAFKA_PUBSUB_CREATE) no topics are made: have "
                f"it made, then {adopt}",
                calls=(adopt,),
            )
        if previous is None:
            with unless_overtaken(None, lambda: self._find(name)):
                self._check_name_is_free(name, info)
        elif previous.state == "creating" and info is not None:
            # This comes before the record changes: after a refusal the record must still say that the topic is ours.
            check_same_settings(f"topic {name!r}", _with_layout(wanted, info), wanted, {})
        return self._make(name, wanted, previous)

    def _make(self, name: str, wanted: TopicOptions, previous: TopicRecord | None) -> TopicRecord:
        inbox_id = "" if previous is None else previous.inbox_id
        intent = TopicRecord(
            name=name, topic_id="", options=wanted, created=self._now(), state="creating", inbox_id=inbox_id
        )
        self._put(intent, previous)
        try:
            info = self._make_or_take(name, wanted)
        except _REFUSALS:
            # No topic was made, so the record goes. After any other error the topic may exist, so the record stays and
            # the next `create` continues from it; the same if the removal fails.
            with contextlib.suppress(PubSubError):
                if inbox_id and previous is not None:
                    self.backend.catalog.put_topic(previous, intent)
                else:
                    self.backend.catalog.remove_topic(intent)
            raise
        options = _with_layout(wanted, info).with_lanes_fixed()
        if wanted.causal:
            intent = self._make_inbox(intent, info)
        record = intent.model_copy(update={"topic_id": info.topic_id, "options": options, "state": "ready"})
        self._put(record, intent)
        self._detach_subscriptions(name, keep=info.topic_id)
        return record

    def _make_inbox(self, intent: TopicRecord, info: TopicInfo) -> TopicRecord:
        """Makes the inbox, and says there that the topic was made; returns the record that names it."""
        inbox_id = self._inboxes.make(info, intent.inbox_id)
        if inbox_id != intent.inbox_id:
            named = intent.model_copy(update={"inbox_id": inbox_id})
            self._put(named, intent)
            intent = named
        self._inboxes.say_alive(info)
        return intent

    def _make_or_take(self, name: str, wanted: TopicOptions) -> TopicInfo:
        config = {} if wanted.retention is None else {"retention.ms": _milliseconds(wanted.retention)}
        if wanted.causal or wanted.lane_rules(name).any:
            config |= BROKER_TIME
        try:
            return self.backend.admin.create_topic(name, wanted.partitions, wanted.replication, config)
        except AlreadyExists:
            # The record is `creating`: an earlier attempt, or another process just now, has made the topic.
            info = self.backend.admin.topic(name)
            check_same_settings(f"topic {name!r}", _with_layout(wanted, info), wanted, {})
            return self._lanes.prepare(wanted, info)

    def _existing(
        self, record: TopicRecord, info: TopicInfo, wanted: TopicOptions, exist_ok: bool, accept: Call
    ) -> TopicRecord:
        check_identity(record, info)
        check_same_settings(f"topic {record.name!r}", record.options, wanted, {})
        if not exist_ok:
            raise same_settings(f"topic {record.name!r}", accept)
        return record

    def _adopt(self, name: str, wanted: TopicOptions, exist_ok: bool) -> tuple[TopicRecord, bool]:
        """Returns the record, and whether it is new."""
        info = self._appearing(name)
        if info is None:
            make = Call("create_topic", name)
            raise NotFound(
                f"topic {name!r} can't be adopted: Kafka has none of that name; {make} makes one",
                calls=(make,),
            )
        previous = self._find(name)
        if previous is not None and previous.state == "ready" and previous.topic_id == info.topic_id:
            accept = Call("adopt_topic", name, (EXIST_OK,))
            return self._existing(previous, info, wanted, exist_ok, accept), False
        record = TopicRecord(
            name=name,
            topic_id=info.topic_id,
            options=_with_layout(wanted, info),
            adopted=True,
            created=self._now(),
        )
        self._put(record, previous)
        self._detach_subscriptions(name, keep=info.topic_id)
        return record, True

    def _update(self, name: str, changes: Mapping[str, object]) -> TopicRecord:
        record, info = self.found(name)
        for field in ("partitions", "replication"):
            if field in changes and changes[field] != getattr(record.options, field):
                raise FailedPrecondition(f"{field} of topic {name!r} can't be changed yet")
        options = changed(record.options, changes).with_lanes_fixed()
        if options == record.options:
            return record
        self._lanes.check_kept(record, options)
        if options.retention != record.options.retention:
            limit = None if options.retention is None else _milliseconds(options.retention)
            self._lanes.retain(record, limit)
        self._lanes.prepare(options, info)
        after = record.model_copy(update={"options": options})
        self._put(after, record)
        return after

    def _delete(self, name: str) -> bool:
        record = self._find(name)
        if record is None:
            missing = not_found("topic", name, (each.name for each in self.records()))
            raise NotFound(f"{missing} there is nothing to delete")
        going = record.model_copy(update={"state": "deleting"})
        if record.state != "deleting":
            self._check_nobody_needs(name)
            self._put(going, record)
        if not record.adopted:
            self._delete_from_kafka(going, record)
        self._detach_subscriptions(name, keep=None)
        if record.options.causal:
            if record.state != "deleting":
                return False  # its inbox goes on refusing messages
            self._inboxes.delete(record, self._sleep)
        with conflicts():
            self.backend.catalog.remove_topic(going)
        return record.adopted

    def _delete_from_kafka(self, going: TopicRecord, before: TopicRecord) -> None:
        try:
            self._lanes.delete(going)
            with contextlib.suppress(NotFound):
                self.backend.admin.delete_topic(going.name)
        except _REFUSALS:
            # Nothing was deleted. After any other error the topic may be gone, and the next `delete` continues.
            with contextlib.suppress(PubSubError):
                self.backend.catalog.put_topic(before, going)
            raise

    # -- parts -----------------------------------------------------------------------------------------------

    def _check_nobody_needs(self, name: str) -> None:
        users = dead_letters_of(name, self.backend.catalog.subscriptions().values())
        if users:
            calls = [Call("update_subscription", each, (("dead_letter", ...),)) for each in users]
            raise FailedPrecondition(
                f"topic {name!r} can't be deleted: the dead letters of subscription {', '.join(map(repr, users))} go "
                f"there. Send them elsewhere first ({', '.join(map(str, calls))}), or delete the subscriptions",
                calls=calls,
            )

    def _find(self, name: str) -> TopicRecord | None:
        return self.backend.catalog.topics().get(name)

    def _info(self, name: str) -> TopicInfo | None:
        try:
            return self.backend.admin.topic(name)
        except NotFound:
            return None

    def _appearing(self, name: str) -> TopicInfo | None:
        """Returns Kafka's topic; waits up to `APPEARS` seconds for it, because it may be new."""
        info, waited = self._info(name), 0.0
        while info is None and waited < APPEARS:
            self._sleep(LOOK)
            waited += LOOK
            info = self._info(name)
        return info

    def _put(self, record: TopicRecord, previous: TopicRecord | None) -> None:
        with conflicts():
            self.backend.catalog.put_topic(record, previous)
        self._on_changed(record.name)

    def _check_name_is_free(self, name: str, info: TopicInfo | None) -> None:
        if info is not None:
            adopt = Call("adopt_topic", name)
            raise AlreadyExists(
                f"Kafka has a topic {name!r} already, which isn't in the catalog: {adopt} takes it over as it is; or "
                "choose another name",
                calls=(adopt,),
            )
        catalog = self.backend.catalog
        retries = (retry_topic(each.topic, each.name) for each in catalog.subscriptions().values())
        taken = [*self.backend.admin.topic_names(), *catalog.topics(), *retries]
        similar = look_alike(name, taken)
        if similar is not None:
            raise InvalidArgument(
                f"topic name {name!r} can't be told from {similar!r} in Kafka's metrics, which take `.` and `_` for "
                "the same: choose another name"
            )

    def _detach_subscriptions(self, name: str, keep: str | None) -> None:
        """Marks the subscriptions of topics of this name as detached, except those of the topic with the id `keep`."""
        catalog = self.backend.catalog
        for record in list(catalog.subscriptions().values()):
            if record.topic == name and record.topic_id != keep and not record.detached:
                with conflicts():
                    catalog.put_subscription(record.model_copy(update={"detached": True}), record)


def _milliseconds(seconds: float) -> str:
    return str(max(1, round(seconds * 1000)))


def _with_layout(wanted: TopicOptions, info: TopicInfo) -> TopicOptions:
    """Returns the options with the partitions and replication of Kafka's topic."""
    return wanted.model_copy(update={"partitions": info.partitions, "replication": info.replication})
