"""The Kafka topics of a topic's lanes: made, changed and deleted beside the topic's own.

Rules
1. A lane has the partitions, the replicas and the limits of its topic. A transient lane keeps messages for an hour at
   most (`TRANSIENT_RETENTION`).
2. Brokers stamp the records of all of them (`BROKER_TIME`), because the lanes are merged by the time at which messages
   came in.
3. A Kafka topic of a lane's name is taken if it fits: an operator has made it, or a call that didn't end. One with
   other partitions is made again if it is empty, and refused if it holds records.
4. A topic keeps its lanes and its default priority: messages may wait in each of them.
"""

from __future__ import annotations

import contextlib
from typing import Final

from kafka_pubsub.config import LaneTopic, TopicOptions, TopicRecord
from kafka_pubsub.errors import AlreadyExists, FailedPrecondition, InvalidArgument, NotFound, PubSubError
from kafka_pubsub.lane_names import Lane, LaneGone, lane_of
from kafka_pubsub.log.ports import Admin
from kafka_pubsub.model import TopicInfo
from kafka_pubsub.topics.companion_topics import BROKER_TIME
from kafka_pubsub.topics.names import look_alike

__all__ = ["TRANSIENT_RETENTION", "LaneTopics", "check_lane"]

#: Seconds for which a transient lane keeps messages, unless the topic keeps its own for less.
TRANSIENT_RETENTION: Final = 3600.0

#: Kafka deletes whole segments: a segment of a transient lane ends after this part of the retention.
_SEGMENTS: Final = 6

#: The settings of the topic that its durable lanes share, where they can be seen.
_SHARED: Final = ("cleanup.policy", "retention.ms", "retention.bytes", "min.insync.replicas")


def check_lane(admin: Admin, record: TopicRecord, lane: LaneTopic) -> TopicInfo:
    """Returns a lane's Kafka topic; raises `FailedPrecondition` if it isn't the one in the catalog."""
    what = f"lane {lane.name!r} of topic {record.name!r}"
    try:
        info = admin.topic(lane.name)
    except NotFound:
        raise LaneGone(
            f"{what} was deleted from Kafka by another client, with its messages: use another priority, or delete the "
            "topic and make it again"
        ) from None
    if info.topic_id != lane.topic_id:
        raise LaneGone(
            f"{what} was deleted from Kafka and made again by another client, so subscriptions would miss "
            "its messages: use another priority, or delete the topic and make it again"
        )
    if info.partitions != record.options.partitions:
        raise LaneGone(
            f"{what} was given {info.partitions} partitions by another client and must have "
            f"{record.options.partitions}, as many as the topic: use another priority, or delete the topic and make it "
            "again"
        )
    return info


class LaneTopics:
    """The Kafka topics of the lanes of one cluster."""

    def __init__(self, admin: Admin, *, may_create: bool) -> None:
        self._admin = admin
        self._may_create = may_create

    def check_kept(self, record: TopicRecord, after: TopicOptions) -> None:
        """Raises `FailedPrecondition` if a change would take lanes away, in which messages may wait."""
        before = record.options
        advice = "publish to a new topic instead"
        if after.priorities < before.priorities:
            raise FailedPrecondition(
                f"priorities of topic {record.name!r} can't go down from {before.priorities} to {after.priorities}: "
                f"messages may wait in the lanes above; {advice}"
            )
        if before.transient and not after.transient:
            raise FailedPrecondition(
                f"transient of topic {record.name!r} can't be switched off: messages may wait there; {advice}"
            )

    def prepare(self, options: TopicOptions, info: TopicInfo) -> TopicInfo:
        """Lets brokers stamp the records of a topic that may have lanes by these options; returns it as it is then."""
        if not options.lane_rules(info.name).any or _stamped(info):
            return info
        self._admin.update_topic(info.name, BROKER_TIME)
        return self._admin.topic(info.name)

    def retain(self, record: TopicRecord, milliseconds: str | None) -> None:
        """Changes how long the topic and its lanes keep messages; None: the broker's default."""
        self._admin.update_topic(record.name, {"retention.ms": milliseconds})
        for each in record.lanes:
            limit = milliseconds if each.durable else _transient(milliseconds)
            # A lane that is being made, or was deleted by another client, has no topic.
            with contextlib.suppress(NotFound):
                self._admin.update_topic(each.name, {"retention.ms": limit})

    def make(self, name: str, lane: Lane, home: TopicInfo) -> TopicInfo:
        """Makes a lane's topic, or takes the existing one if it fits."""
        info = self.find(name)
        if info is None:
            info = self._made(name, lane, home)
        if info.partitions != home.partitions:
            info = self._made_again(info, lane, home)
        if not _stamped(info):
            self._stamp(info, home)
        return info

    def delete(self, record: TopicRecord) -> None:
        """Deletes the lanes of a topic, also those that a call which didn't end has left."""
        if not record.lane_rules.any:
            return
        found = [
            name
            for name in self._admin.topic_names()
            if (parsed := lane_of(name)) is not None and parsed[0] == record.name
        ]
        for name in sorted({*found, *(each.name for each in record.lanes)}):
            with contextlib.suppress(NotFound):
                self._admin.delete_topic(name)

    def find(self, name: str) -> TopicInfo | None:
        """Returns Kafka's current topic of this name; None: there is none."""
        try:
            return self._admin.topic(name)
        except NotFound:
            return None

    def check_may_make(self, name: str, lane: Lane, home: TopicInfo) -> None:
        """Raises an error if the lane's topic doesn't exist, and this client may not or can't make it."""
        if self.find(name) is not None:
            return
        if not self._may_create:
            settings = ", ".join(f"{key}={value}" for key, value in sorted(_settings(home, lane).items()))
            raise FailedPrecondition(
                f"lane {name!r} of topic {home.name!r} doesn't exist, and with create=False (KAFKA_PUBSUB_CREATE) no "
                f"topics are made: have it made with {home.partitions} partitions and {settings}"
            )
        similar = look_alike(name, self._admin.topic_names())
        if similar is not None:
            raise InvalidArgument(
                f"lane {name!r} can't be told from topic {similar!r} in Kafka's metrics, which take `.` and `_` for "
                "the same: delete that topic, or use another priority"
            )

    def _made(self, name: str, lane: Lane, home: TopicInfo) -> TopicInfo:
        try:
            return self._admin.create_topic(name, home.partitions, home.replication, _settings(home, lane))
        except AlreadyExists:
            # Another process has made it just now.
            return self._admin.topic(name)

    def _made_again(self, info: TopicInfo, lane: Lane, home: TopicInfo) -> TopicInfo:
        """Makes a lane again that was left by an earlier topic of this name; a lane with records is refused."""
        if not self._may_create or any(self._admin.last_stable_offsets(info.name).values()):
            raise FailedPrecondition(
                f"lane {info.name!r} has {info.partitions} partitions and must have {home.partitions}, as many as "
                f"topic {home.name!r}: look at what it holds, then delete it"
            )
        self._admin.delete_topic(info.name)
        return self._made(info.name, lane, home)

    def _stamp(self, info: TopicInfo, home: TopicInfo) -> None:
        try:
            self._admin.update_topic(info.name, BROKER_TIME)
        except PubSubError as error:
            if not info.config:  # the client has no right to see settings
                return
            raise FailedPrecondition(
                f"lane {info.name!r} of topic {home.name!r} needs message.timestamp.type=LogAppendTime: set it "
                f"({error.message})"
            ) from error


def _stamped(info: TopicInfo) -> bool:
    return all(info.config.get(name) == value for name, value in BROKER_TIME.items())


def _settings(home: TopicInfo, lane: Lane) -> dict[str, str]:
    settings = {name: home.config[name] for name in _SHARED if name in home.config}
    settings |= {"max.message.bytes": str(home.max_message_bytes), **BROKER_TIME}
    if not lane.durable:
        limit = _transient(settings.get("retention.ms"))
        # One replica's answer counts for a transient message, so the number in sync doesn't matter.
        settings.pop("min.insync.replicas", None)
        settings |= {
            "cleanup.policy": "delete",
            "retention.ms": limit,
            "segment.ms": str(max(int(limit) // _SEGMENTS, 1)),
        }
    return settings


def _transient(milliseconds: str | None) -> str:
    """Returns how long a transient lane keeps messages whose topic keeps its own so long; -1: for ever."""
    most = int(TRANSIENT_RETENTION * 1000)
    wanted = most if milliseconds is None else int(milliseconds)
    return str(min(wanted, most) if wanted >= 0 else most)
