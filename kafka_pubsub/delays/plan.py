"""What is to be done until a cluster has the declared topics, and doing it.

Rules
1. A plan changes nothing. Applying makes what is missing, sets settings and adds partitions; it never deletes a topic.
2. Where the client may not see a topic's settings, the plan says so instead of guessing.
3. Partitions are added while messages wait (`growth.py`). First the catalog says so; then each router that holds a
   partition has committed that it knows; then the tiers get them, and ingest last, of which publishers learn.
4. Where no router runs, the commits are made to say it: a router that began before that, and doesn't know, refuses.
5. The topic of dead letters keeps its number until the growth is over.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from typing import NamedTuple

from kafka_pubsub.config import DelayRecord
from kafka_pubsub.delays.declaration import DelayDeclaration, WantedTopic, wanted_topics
from kafka_pubsub.delays.growth import Growth, check_growth
from kafka_pubsub.delays.layout import DEAD, GROUP, INGEST, MOST_TIERS, tier_topic, tiers_of
from kafka_pubsub.delays.progress import parse_ingest, writer_of
from kafka_pubsub.delays.topics import growth_of
from kafka_pubsub.errors import AlreadyExists, DeadlineExceeded, FailedPrecondition, InvalidArgument
from kafka_pubsub.log.ports import Admin, Catalog
from kafka_pubsub.model import Committed, TopicInfo, TopicPartition

__all__ = ["Change", "ChangeKind", "Topology"]

#: Seconds within which routers learn that there will be more partitions, and between two looks.
_PATIENCE, _LOOK = 60.0, 0.2


class ChangeKind(Enum):
    """What has to be done about a topic, or can't be done."""

    CREATE = "create"
    SET = "set"
    GROW = "grow"
    REFUSED = "refused"


class Change(NamedTuple):
    """One difference between a cluster and the declaration; `setting`, `old` and `new` only where a setting differs."""

    kind: ChangeKind
    topic: str
    text: str
    setting: str = ""
    old: str = ""
    new: str = ""


class Topology:
    """The declared topics of one cluster."""

    def __init__(self, admin: Admin, catalog: Catalog, *, may_create: bool) -> None:
        self._admin, self._catalog, self._may_create = admin, catalog, may_create

    def plan(self, declaration: DelayDeclaration) -> list[Change]:
        """Returns what differs, in the order of the topics; nothing if all is as declared."""
        there = set(self._admin.topic_names())
        growth = growth_of(self._catalog.delays())
        present = self._admin.topic(INGEST).partitions if INGEST in there else declaration.partitions
        found: list[Change] = []
        for wanted in wanted_topics(declaration):
            if wanted.name in there:
                info = self._admin.topic(wanted.name)
                found += [*_count(wanted, info.partitions, present, growth), *_compare(wanted, info)]
            else:
                copies = "the broker's default" if wanted.replication is None else str(wanted.replication)
                count = _made_with(wanted, present, growth)
                text = f"create with {count} partitions, replication {copies}"
                found.append(Change(ChangeKind.CREATE, wanted.name, text))
        more = [name for name in map(tier_topic, range(declaration.tiers, MOST_TIERS)) if name in there]
        if more:
            text = (
                f"{len(more)} tiers more than declared: messages may wait there; declare tiers={_tiers(more)}"
            )
            found.append(Change(ChangeKind.REFUSED, more[0], text))
        return found

    def apply(
        self, declaration: DelayDeclaration, on_change: Callable[[Change], None] = lambda change: None
    ) -> Sequence[Change]:
        """Does what the plan says and returns it; if a part is refused, raises `FailedPrecondition` before anything."""
        changes = self.plan(declaration)
        refused = [change for change in changes if change.kind is ChangeKind.REFUSED]
        if refused:
            raise FailedPrecondition("; ".join(f"{change.topic}: {change.text}" for change in refused))
        if not self._may_create and any(change.kind is ChangeKind.CREATE for change in changes):
            raise FailedPrecondition(
                "topics are missing, and with create=False (KAFKA_PUBSUB_CREATE) none are made: have them made, or "
                "leave that setting out"
            )
        wanted = {each.name: each for each in wanted_topics(declaration)}
        present = declaration.partitions
        if any(change.kind is ChangeKind.GROW for change in changes):
            present = self._admin.topic(INGEST).partitions
            self._announce(present, declaration.partitions)
        growth = growth_of(self._catalog.delays())
        # The topic that publishers look for comes last: where it is, all are.
        for change in reversed(changes):
            if change.kind is ChangeKind.CREATE:
                topic = wanted[change.topic]
                with suppress(AlreadyExists):  # a router that starts makes the same topics
                    count = _made_with(topic, present, growth)
                    self._admin.create_topic(topic.name, count, topic.replication, topic.settings)
            elif change.kind is ChangeKind.GROW:
                self._admin.add_partitions(change.topic, declaration.partitions)
            else:
                self._admin.update_topic(change.topic, {change.setting: change.new})
            on_change(change)
        return changes

    def _announce(self, former: int, partitions: int) -> None:
        """Has all routers know of the growth before ingest gets a partition."""
        known = self._catalog.delays()
        if growth_of(known) is None:
            record = DelayRecord(former=former, partitions=partitions, created=time.time())
            self._catalog.put_delays(record, known)
        growth = growth_of(self._catalog.delays())
        assert growth is not None
        end = time.monotonic() + _PATIENCE
        while unaware := self._unaware(growth):
            if not self._admin.has_members(GROUP):
                self._say_in_commits(growth, unaware)
            if time.monotonic() >= end:
                raise DeadlineExceeded(
                    f"the routers of the partitions {', '.join(map(str, sorted(unaware)))} of {INGEST!r} don't say "
                    f"that they know of {partitions} partitions: replace routers of older versions, and those that "
                    "aren't healthy, or start one; then apply again. No topic was changed"
                )
            time.sleep(_LOOK)

    def _unaware(self, growth: Growth) -> dict[int, Committed]:
        """Returns the commits of the former partitions that don't name the growth."""
        places = [TopicPartition(INGEST, number) for number in range(growth.former)]
        found = self._admin.unstable_offsets(GROUP, places)
        return {
            place.partition: said
            for place, said in found.items()
            if said.offset is None or parse_ingest(said.offset, said.metadata).partitions < growth.partitions
        }

    def _say_in_commits(self, growth: Growth, unaware: Mapping[int, Committed]) -> None:
        """Commits for routers that don't run."""
        positions: dict[TopicPartition, int | Committed] = {}
        for number, said in unaware.items():
            place = TopicPartition(INGEST, number)
            if not said.metadata and not self._is_fresh(number):
                continue  # its router alone can say which time it is there
            at = said.offset or 0
            progress = parse_ingest(at, said.metadata)._replace(partitions=growth.partitions)
            writer = writer_of(at, said.metadata) if said.metadata else None
            positions[place] = Committed(at, progress.text(writer or ""))
        # A router that has begun meanwhile says it by itself.
        with suppress(FailedPrecondition):
            if positions:
                self._admin.set_positions(GROUP, positions)

    def _is_fresh(self, number: int) -> bool:
        """Returns whether no router was ever at work in a partition."""
        names = self._admin.topic_names()
        tiers = [TopicPartition(name, number) for name in map(tier_topic, range(tiers_of(names)))]
        written = self._admin.high_watermarks(tiers)
        start = self._admin.log_range(TopicPartition(INGEST, number))[0]
        return start == 0 and not any(written.values())


def _made_with(wanted: WantedTopic, present: int, growth: Growth | None) -> int:
    """Returns how many partitions a topic is made with: as many as the others have while they grow."""
    if growth is not None:
        return growth.former if wanted.name == DEAD else growth.partitions
    return present if wanted.name == DEAD else wanted.partitions


def _count(wanted: WantedTopic, found: int, present: int, growth: Growth | None) -> list[Change]:
    """Returns the change of the number of partitions, or why it can't be made."""
    former = present if growth is None else growth.former
    try:
        check_growth(former, wanted.partitions, growth)
    except (FailedPrecondition, InvalidArgument) as error:
        return [Change(ChangeKind.REFUSED, wanted.name, error.message)]
    if found == (former if wanted.name == DEAD else wanted.partitions):
        return []
    if found != former or wanted.name == DEAD:
        text = f"has {found} partitions, and the delays have {former}: other tools have changed it"
        return [Change(ChangeKind.REFUSED, wanted.name, text)]
    text = f"partitions: {found} -> {wanted.partitions}, while messages wait"
    return [Change(ChangeKind.GROW, wanted.name, text)]


def _compare(wanted: WantedTopic, found: TopicInfo) -> list[Change]:
    changes: list[Change] = []
    if wanted.replication not in (None, found.replication):
        text = (
            f"has {found.replication} copies, and {wanted.replication} are declared: move replicas with Kafka's own "
            "tools (kafka-reassign-partitions.sh)"
        )
        changes.append(Change(ChangeKind.REFUSED, wanted.name, text))
    if not found.config:
        text = "its settings can't be read: this client needs DescribeConfigs on it"
        changes.append(Change(ChangeKind.REFUSED, wanted.name, text))
    for name, new in wanted.settings.items():
        old = found.config.get(name)
        if old is not None and old != new:
            changes.append(Change(ChangeKind.SET, wanted.name, f"{name}: {old} -> {new}", name, old, new))
    return changes


def _tiers(names: Sequence[str]) -> int:
    return max(int(name.rpartition(".")[2]) for name in names) + 1
