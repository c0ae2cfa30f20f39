"""Makes, adopts, checks and removes a subscription's retry topic, over the ports.

The messages in the retry topic are in no other topic. So the retry topic is made before the subscription is ready, and
removed after the last stream has ended; if it isn't the topic that the catalog names, the subscription delivers
nothing.

Rules
1. It has the home topic's number of partitions and replicas, keeps all records, and accepts every message that the home
   topic accepts (`companion_topics.py`).
2. A topic of that name that is older than the subscription is adopted if it fits: it is used from its end on, and stays
   when the subscription is deleted. The name is reserved, so no other program should use it.
3. If the topic is gone, was made again or has another number of partitions, an error says so, because messages may have
   waited in it. `update_subscription(remake_retry_topic=True)` accepts their loss.
4. A subscription of an early version has no retry topic; the same call makes one, and until then no stream opens.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from zlib import crc32

from kafka_pubsub.config import RetryTopic, SubscriptionRecord
from kafka_pubsub.errors import AlreadyExists, Call, FailedPrecondition, NotFound, PubSubError
from kafka_pubsub.log.ports import Admin
from kafka_pubsub.model import Committed, TopicInfo
from kafka_pubsub.subscribe.retry_topic.checkpoint_reader import map_of
from kafka_pubsub.subscribe.retry_topic.start_position import Beginning, beginning
from kafka_pubsub.topics.companion_topics import companion_settings
from kafka_pubsub.topics.names import retry_topic

__all__ = [
    "RetryTopicGone",
    "RetryTopics",
    "check_retry_layout",
    "marked_nonce",
    "remake_call",
    "retry_beginning",
]

#: The bits of an ownership's nonce that identify the retry topic of its commits.
_MARK_BITS = 15

_IN_SYNC = "min.insync.replicas"

log = logging.getLogger("kafka_pubsub.subscriber")


def _mark(retry: RetryTopic) -> int:
    return crc32(retry.topic_id.encode()) & (1 << _MARK_BITS) - 1


def marked_nonce(record: SubscriptionRecord, nonce: int) -> int:
    """Marks an ownership's nonce with its retry topic, because a group's positions name a topic but not its id."""
    retry = record.retry_topic
    return nonce if retry is None else _mark(retry) << _MARK_BITS | nonce & (1 << _MARK_BITS) - 1


def is_of_another(retry: RetryTopic, committed: Committed) -> bool:
    """Tells whether the position was committed for another topic of this name."""
    found = map_of(committed)
    return found is not None and found.nonce >> _MARK_BITS != _mark(retry)


def remake_call(subscription: str) -> Call:
    """Returns the call that makes a retry topic again and accepts what was lost."""
    return Call("update_subscription", subscription, (("remake_retry_topic", True),))


def retry_topic_of(record: SubscriptionRecord) -> str:
    """Returns the name of a subscription's retry topic; raises `FailedPrecondition` if it has none."""
    if record.retry_topic is None:
        remake = remake_call(record.name)
        raise FailedPrecondition(
            f"subscription {record.name!r} has no retry topic, in which messages wait for their redelivery: {remake} "
            "makes one, or takes the one that was made by hand",
            calls=(remake,),
        )
    return record.retry_topic.name


class RetryTopicGone(FailedPrecondition):
    """Kafka doesn't have the retry topic that the catalog names.

    This also happens while the topic is being made again, and with a broker that has just started.
    """


def check_retry_layout(
    record: SubscriptionRecord, info: TopicInfo | None, *, partitions: int | None = None
) -> None:
    """Raises `FailedPrecondition` if Kafka's retry topic (None: there is none) isn't the one in the catalog.

    `partitions` is the number that it must have; by default the record's, which differs during a repartition.
    """
    if record.retry_topic is None:
        return
    name, remake = record.retry_topic.name, remake_call(record.name)
    what = f"subscription {record.name!r}: its retry topic {name!r}"
    if info is None:
        raise RetryTopicGone(
            f"{what} was deleted by another client, with the messages that waited in it for their redelivery; {remake} "
            "makes it again and goes on without them",
            calls=(remake,),
        )
    if info.topic_id != record.retry_topic.topic_id:
        raise RetryTopicGone(
            f"{what} was deleted and made again by another client, so the messages that waited in it are gone; "
            f"{remake} goes on with the new one, without them",
            calls=(remake,),
        )
    wanted = record.partitions if partitions is None else partitions
    if info.partitions != wanted:
        raise FailedPrecondition(
            f"{what} has {info.partitions} partitions and must have {wanted}, as many as topic {record.topic!r}: "
            f"{remake} makes it anew as soon as nothing waits in it",
            calls=(remake,),
        )


def retry_beginning(
    record: SubscriptionRecord,
    number: int,
    committed: Committed,
    log_range: tuple[int, int],
    *,
    lane: bool = False,
) -> Beginning:
    """Returns where reading partition `number` of the retry topic begins, by the rules of `start_position.beginning`.

    We delete records only below the commit. So if the partition starts above it, retention or another client deleted
    records: a log line counts them, and the rest is delivered. If the partition ends below the commit, it lost its end,
    or the topic was made again while a stream still used the old one: reading begins at the catalog's copy. It begins
    there too if the new topic is already longer: a commit's nonce says to which topic it belongs. `lane`: of a lane.
    """
    retry = record.retry_topic
    if retry is None:
        raise FailedPrecondition(f"subscription {record.name!r} has no retry topic")
    if is_of_another(retry, committed):
        log.warning(
            "subscription %r: its retry topic %r was made again: partition %d goes on from its beginning",
            record.name,
            retry.name,
            number,
        )
        committed = Committed(min(max(retry.positions.get(number, 0), log_range[0]), log_range[1]), "")
    if committed.offset is not None and committed.offset < log_range[0]:
        log.error(
            "subscription %r: its retry topic %r has lost offsets %d to %d of partition %d, and with them up to %d "
            "messages that waited for their redelivery: set its retention.ms and retention.bytes to -1, and find "
            "out what deletes records there",
            record.name,
            retry.name,
            committed.offset,
            log_range[0] - 1,
            number,
            log_range[0] - committed.offset,
        )
    if committed.offset is not None and committed.offset > log_range[1]:
        log.error(
            "subscription %r: its retry topic %r ends at offset %d of partition %d, below the committed %d: going on "
            "from the catalog's copy, so some messages may be delivered again",
            record.name,
            retry.name,
            log_range[1],
            number,
            committed.offset,
        )
        committed = Committed(min(retry.positions.get(number, 0), log_range[1]), "")
    place = record.model_copy(update={"topic": retry.name, "positions": retry.positions})
    return beginning(place, number, committed, log_range, lane=lane)


class RetryTopics:
    """Makes, adopts, checks and removes the retry topics of one cluster."""

    def __init__(self, admin: Admin, *, may_create: bool) -> None:
        self._admin = admin
        self._may_create = may_create

    def plan(self, subscription: str, home: TopicInfo, begun: RetryTopic | None = None) -> RetryTopic:
        """Returns what `make` is to make or adopt; changes nothing. `begun` is the plan of an attempt that crashed."""
        name = retry_topic(home.name, subscription)
        if begun is not None and begun.name == name and not begun.adopted:
            return begun
        info = self.find(name)
        if info is None and self._may_create:
            return RetryTopic(name=name)
        if info is None:
            remake = remake_call(subscription)
            raise FailedPrecondition(
                f"subscription {subscription!r} needs the retry topic {name!r}, and with create=False "
                f"(KAFKA_PUBSUB_CREATE) no topics are made: have it made {_made_so(home)}; then {remake} takes it",
                calls=(remake,),
            )
        if wrong := misfits(info, home):
            help_ = "delete it and it will be made" if self._may_create else f"have it made {_made_so(home)}"
            raise FailedPrecondition(
                f"Kafka's topic {name!r} can't be the retry topic of subscription {subscription!r}: {wrong}; change "
                f"that, or {help_}"
            )
        return RetryTopic(name=name, topic_id=info.topic_id, adopted=True)

    def make(self, plan: RetryTopic, home: TopicInfo) -> RetryTopic:
        """Makes the planned topic, or adopts the existing one; the result has its id and its positions."""
        info = self._taken(plan) if plan.adopted else self._made(plan.name, home)
        positions = dict(self._admin.last_stable_offsets(plan.name))
        return plan.model_copy(update={"topic_id": info.topic_id, "positions": positions})

    def _taken(self, plan: RetryTopic) -> TopicInfo:
        info = self._admin.topic(plan.name)
        if info.topic_id != plan.topic_id:
            raise FailedPrecondition(
                f"topic {plan.name!r} was made again by another client just now: try again"
            )
        return info

    def _made(self, name: str, home: TopicInfo) -> TopicInfo:
        settings = companion_settings(home)
        try:
            return self._admin.create_topic(name, home.partitions, home.replication, settings)
        except AlreadyExists:
            # An earlier attempt, or another process just now, has made it.
            info = self._admin.topic(name)
        if info.partitions == home.partitions:
            return info
        # An attempt for a home topic with another layout left it, unused and empty. A topic with records isn't ours.
        if any(self._admin.last_stable_offsets(name).values()):
            raise FailedPrecondition(
                f"topic {name!r} has {info.partitions} partitions instead of {home.partitions}, and holds records: "
                "look at them, then delete it"
            )
        self._admin.delete_topic(name)
        return self._admin.create_topic(name, home.partitions, home.replication, settings)

    def remove(self, retry: RetryTopic | None) -> None:
        """Deletes the topic, if we made it and it still exists."""
        if retry is None or retry.adopted:
            return
        info = self.find(retry.name)
        # A topic with another id was made after ours was deleted; its name is still reserved for this subscription.
        if info is not None:
            self._admin.delete_topic(retry.name)

    def check(self, record: SubscriptionRecord, home: TopicInfo, partitions: int) -> None:
        """Raises `FailedPrecondition` if the retry topic isn't as it must be; updates its settings if they lag."""
        info = self.find(retry_topic_of(record))
        check_retry_layout(record, info, partitions=partitions)
        if info is not None:
            self.keep_fit(info, home)

    def keep_fit(self, info: TopicInfo, home: TopicInfo) -> None:
        """Updates the settings that lag behind the home topic's, or that an earlier version didn't set."""
        lacking = _lacking(info, home) if home.config else {}
        if not lacking:
            return
        try:
            self._admin.update_topic(info.name, lacking)
        except PubSubError as error:
            settings = ", ".join(f"{name}={value}" for name, value in lacking.items())
            text = (
                f"retry topic {info.name!r} must take and keep what topic {home.name!r} takes and keeps: set "
                f"{settings} ({error.message})"
            )
            if info.max_message_bytes <= home.max_message_bytes:
                raise FailedPrecondition(text) from error
            log.warning("%s", text)

    def waiting(self, record: SubscriptionRecord) -> int:
        """Counts the retry topic's offsets above the positions: an upper bound for the messages that wait there."""
        retry = record.retry_topic
        if retry is None or self.find(retry.name) is None:
            return 0
        committed = self._admin.group_offsets(record.name, retry.name)
        ends = self._admin.last_stable_offsets(retry.name)
        known = {number: each.offset for number, each in committed.items() if each.offset is not None}
        return sum(
            max(0, end - known.get(number, retry.positions.get(number, 0))) for number, end in ends.items()
        )

    def find(self, name: str) -> TopicInfo | None:
        """Returns Kafka's current topic of this name; None: there is none."""
        try:
            return self._admin.topic(name)
        except NotFound:
            return None


def _made_so(home: TopicInfo) -> str:
    """Describes how an operator makes a retry topic beside `home`."""
    settings = ", ".join(f"{name}={value}" for name, value in sorted(companion_settings(home).items()))
    return f"with {home.partitions} partitions and {settings}"


def misfits(info: TopicInfo, home: TopicInfo) -> str:
    """Returns why a topic can't be the retry topic beside `home`; empty: it can. Ignores settings that aren't shown."""
    wanted = companion_settings(home)
    wrong = []
    if info.partitions != home.partitions:
        wrong.append(f"it has {info.partitions} partitions, not {home.partitions}")
    for setting in ("cleanup.policy", "retention.ms", "retention.bytes"):
        found = info.config.get(setting, wanted[setting])
        if found != wanted[setting]:
            wrong.append(f"{setting} is {found}, not {wanted[setting]}")
    for setting, value in _lacking(info, home).items():
        found = str(info.max_message_bytes) if setting == "max.message.bytes" else info.config[setting]
        at_least = "" if setting == "unclean.leader.election.enable" else "at least "
        wrong.append(f"{setting} is {found}, not {at_least}{value}")
    return "; ".join(wrong)


def _lacking(info: TopicInfo, home: TopicInfo) -> dict[str, str]:
    """Returns the settings to change so that the topic accepts and keeps every record that `home` does."""
    if not info.config:  # the client has no right to see settings
        return {}
    wanted = companion_settings(home)
    lacking = {}
    if info.max_message_bytes < _limit(wanted):
        lacking["max.message.bytes"] = wanted["max.message.bytes"]
    # Some brokers don't cap this setting: a number above that of the replicas would make them refuse every record.
    in_sync = min(int(wanted.get(_IN_SYNC, 1)), info.replication)
    if int(info.config.get(_IN_SYNC, in_sync)) < in_sync:
        lacking[_IN_SYNC] = str(in_sync)
    if info.config.get("unclean.leader.election.enable") == "true":
        lacking["unclean.leader.election.enable"] = "false"
    return lacking


def _limit(settings: Mapping[str, str]) -> int:
    return int(settings["max.message.bytes"])
