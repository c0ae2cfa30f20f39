"""The topics of delayed delivery in a cluster: found, checked, made.

Rules
1. The topics that there are say how many tiers and partitions a cluster has. While the partitions grow, the catalog
   says from how many to how many; the topic of dead letters gets them last, so that an older version refuses to begin.
2. Nothing is ever changed: a topic with a wrong layout or retention is refused with what to do about it.
3. They get the cluster's replication, and where that is three copies or more, two must have a record before it counts.
4. The process that makes the dead-letter topic makes all; another that would make them at the same time waits for
   that, and takes them as they are.
"""

from __future__ import annotations

import contextlib
import time

from kafka_pubsub.config import DelayRecord
from kafka_pubsub.delays.growth import Growth
from kafka_pubsub.delays.layout import (
    DEAD,
    GROUP,
    INGEST,
    MOST_TIERS,
    PARTITIONS,
    DelayLayout,
    tier_topic,
    tiers_of,
)
from kafka_pubsub.errors import AlreadyExists, FailedPrecondition, InvalidArgument, NotFound
from kafka_pubsub.log.ports import Admin, Catalog
from kafka_pubsub.model import TopicInfo
from kafka_pubsub.topics.companion_topics import in_sync_settings, keep_in_sync

__all__ = ["DelayTopics", "growth_of", "partitions_of", "unstamped_ingest"]

#: The setting by which brokers tell the time.
_STAMPS = "message.timestamp.type"
#: Settings that would lose waiting messages if they were others, and what they must be.
_VITAL = ("cleanup.policy", "retention.ms", "retention.bytes")
#: Settings that would make a tier refuse messages if they were less.
_LEAST = ("max.message.bytes", "message.timestamp.before.max.ms", "message.timestamp.after.max.ms")
#: Seconds that another process may take to make the topics, and between two looks.
_PATIENCE, _LOOK = 5.0, 0.1


class DelayTopics:
    """The tiers of one cluster."""

    def __init__(
        self, admin: Admin, catalog: Catalog, *, may_create: bool, partitions: int = PARTITIONS
    ) -> None:
        self._admin, self._catalog = admin, catalog
        self._may_create = may_create
        # How many tiers and partitions are made unless `make` is told.
        self._planned = DelayLayout(MOST_TIERS, partitions)

    def plan(self, tiers: int | None, partitions: int | None) -> None:
        """Says how many are made if the topics are missing, whichever client of this process makes them first."""
        _check(tiers, partitions)
        self._planned = DelayLayout(tiers or self._planned.tiers, partitions or self._planned.partitions)

    def find(self) -> DelayLayout | None:
        """The layout, checked; None: the topics weren't made yet."""
        try:
            partitions = self._admin.topic(INGEST).partitions
        except NotFound:
            return None
        names = set(self._admin.topic_names())
        tiers = tiers_of(names)
        if not tiers:
            raise FailedPrecondition(
                f"delayed delivery: topic {INGEST!r} is there, but tier topic {tier_topic(0)!r} is missing: start "
                "`kafka-pubsub service router`, which makes what is missing, or have it made"
            )
        if any(tier_topic(later) in names for later in range(tiers + 1, MOST_TIERS)):
            raise FailedPrecondition(
                f"delayed delivery: tier topic {tier_topic(tiers)!r} is missing, and with it the messages that waited "
                "there: `kafka-pubsub topology apply` makes it anew, with as many tiers declared as there were"
            )
        return DelayLayout(tiers, partitions)

    def make(self, tiers: int | None = None, partitions: int | None = None) -> DelayLayout:
        """Finds the topics or makes those that are missing; with an argument they must be as it says."""
        _check(tiers, partitions)
        found, planned = self._find_made(), self._planned
        if found is None and self._may_create and not self._claim(partitions or planned.partitions):
            found = self._await_maker()
            partitions = partitions or self._admin.topic(DEAD).partitions
        if found is not None and partitions not in (None, found.partitions):
            raise FailedPrecondition(
                f"partitions: the tiers of this cluster have {found.partitions}, not {partitions}; leave it out"
            )
        if found is not None and tiers is not None and tiers < found.tiers:
            raise FailedPrecondition(
                f"tiers: this cluster has {found.tiers}, in which messages may wait, not {tiers}; leave it out"
            )
        layout = DelayLayout(
            tiers or (found or planned).tiers,
            found.partitions if found else partitions or planned.partitions,
        )
        self._make_missing(layout)
        self.check(layout)
        return layout

    def check(self, layout: DelayLayout) -> None:
        """`FailedPrecondition` if a topic is missing, or not as the layout says."""
        growth = growth_of(self._catalog.delays())
        for topic in (*layout.topics, DEAD):
            try:
                info = self._admin.topic(topic)
            except NotFound:
                raise FailedPrecondition(
                    f"delayed delivery: topic {topic!r} is missing: start `kafka-pubsub service router` with the right "
                    "to create topics, or have it made"
                ) from None
            if info.partitions not in partitions_of(topic, layout, growth):
                raise FailedPrecondition(
                    f"delayed delivery: topic {topic!r} has {info.partitions} partitions and must have "
                    f"{partitions_of(topic, layout, growth)[0]}, as many as {INGEST!r}; `kafka-pubsub topology apply` "
                    "raises all of them"
                )
            settings = layout.settings_of(topic)
            if topic == INGEST and info.config.get(_STAMPS, settings[_STAMPS]) != settings[_STAMPS]:
                raise FailedPrecondition(unstamped_ingest(info.config[_STAMPS]))
            for setting in (*_VITAL, *_LEAST):
                value, wanted = info.config.get(setting), settings[setting]
                if value is None or value == wanted or (setting in _LEAST and int(value) > int(wanted)):
                    continue
                harm = "it refuses messages" if setting in _LEAST else "waiting messages disappear"
                raise FailedPrecondition(
                    f"delayed delivery: topic {topic!r} has {setting}={value} and must have {wanted}, or {harm}: "
                    "`kafka-pubsub topology apply`, with what you declared, sets it, or kafka-configs.sh does"
                )

    def ingest(self) -> TopicInfo:
        """The topic in which delayed messages come in."""
        return self._admin.topic(INGEST)

    def is_routed(self) -> bool:
        """Returns whether a router runs now, anywhere."""
        return self._admin.has_members(GROUP)

    def routers(self) -> int:
        """How many routers run now, anywhere."""
        return self._admin.group_members(GROUP)

    def _find_made(self) -> DelayLayout | None:
        """The layout; None: the topics weren't made, or not all."""
        return self.find() if self._exists(INGEST) and self._exists(tier_topic(0)) else None

    def _claim(self, partitions: int) -> bool:
        """Makes the first topic; returns False if it was there."""
        if self._exists(DEAD):
            return False
        try:
            made = self._admin.create_topic(
                DEAD, partitions, None, DelayLayout(1, partitions).settings_of(DEAD)
            )
        except AlreadyExists:
            return False
        keep_in_sync(self._admin, made)
        return True

    def _await_maker(self) -> DelayLayout | None:
        """Waits for the process that made the first topic; returns None if it doesn't make all."""
        end = time.monotonic() + _PATIENCE
        while time.monotonic() < end:
            # A broker may know some of the topics before the others.
            with contextlib.suppress(FailedPrecondition):
                if (found := self._find_made()) is not None:
                    return found
            time.sleep(_LOOK)
        return self._find_made()

    def _exists(self, topic: str) -> bool:
        try:
            self._admin.topic(topic)
        except NotFound:
            return False
        return True

    def _make_missing(self, layout: DelayLayout) -> None:
        there = set(self._admin.topic_names())
        # The topic that publishers look for comes last: where it is, all are.
        missing = [topic for topic in reversed((*layout.topics, DEAD)) if topic not in there]
        if missing and not self._may_create:
            raise FailedPrecondition(
                f"delayed delivery needs the topics {', '.join(sorted(missing))}, and with create=False "
                "(KAFKA_PUBSUB_CREATE) no topics are made: have them made, or start `kafka-pubsub service router` with "
                "the right to make them"
            )
        in_sync = in_sync_settings(self._admin.topic(DEAD)) if missing and DEAD in there else {}
        growth = growth_of(self._catalog.delays()) if missing else None
        for topic in missing:
            with contextlib.suppress(AlreadyExists):
                settings = {**layout.settings_of(topic), **in_sync}
                self._admin.create_topic(topic, partitions_of(topic, layout, growth)[0], None, settings)


def growth_of(record: DelayRecord | None) -> Growth | None:
    """Returns the growth that isn't over, by the catalog's record."""
    return None if record is None or record.over else Growth(record.former, record.partitions)


def partitions_of(topic: str, layout: DelayLayout, growth: Growth | None) -> tuple[int, ...]:
    """Returns how many partitions a topic may have, first how many it is made with."""
    if growth is None or topic == INGEST:
        return (layout.partitions,)
    if topic == DEAD:  # it has all of them when the growth is about to end
        return growth.former, growth.partitions
    # The tiers get more before ingest does.
    return tuple(each for each in (growth.partitions, growth.former) if each >= layout.partitions)


def _check(tiers: int | None, partitions: int | None) -> None:
    if tiers is not None and not 1 <= tiers <= MOST_TIERS:
        raise InvalidArgument(f"tiers: must be 1 to {MOST_TIERS}, not {tiers!r}")
    if partitions is not None and partitions < 1:
        raise InvalidArgument(f"partitions: must be 1 or more, not {partitions!r}")


def unstamped_ingest(value: str) -> str:
    """Returns what is wrong where brokers don't stamp what comes in."""
    return (
        f"delayed delivery: topic {INGEST!r} has {_STAMPS}={value} and must have LogAppendTime, because delays count "
        "from the broker's time: `kafka-pubsub topology apply`, with your declaration, sets it, or kafka-configs.sh"
    )
