"""What is to be done until a cluster has the declared topics, and doing it.

Rules
1. A plan changes nothing. Applying makes what is missing, sets settings and adds partitions; it never deletes a topic.
2. Where the client may not see a topic's settings, the plan says so instead of guessing.
3. Partitions are added while messages wait (`growth.py`). First the catalog says so; then each router that holds a
   partition has committed that it knows; then the tiers get them, and ingest last, of which publishers learn.
4. Where no router runs, the commits are made to say it: a router that began before that, and doesn't know, refuses.
5. The topic of dead letters keeps its number until the growth is over (`drained.py`). It gets its partitions first, and
   then the catalog says that it is over: whatever interrupts this, routers may begin.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from typing import NamedTuple

from kafka_pubsub.config import DelayRecord
from kafka_pubsub.delays.declaration import DelayDeclaration, WantedTopic, wanted_topics
from kafka_pubsub.delays.drained import find_remains
from kafka_pubsub.delays.growth import Growth, check_growth
from kafka_pubsub.delays.layout import DEAD, GROUP, INGEST, MOST_TIERS, tier_topic, tiers_of
from kafka_pubsub.delays.progress import parse_ingest, writer_of
from kafka_pubsub.delays.topics import growth_of
from kafka_pubsub.errors import (
    AlreadyExists,
    DeadlineExceeded,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
)
from kafka_pubsub.log.clocks import wall_time
from kafka_pubsub.log.ports import Backend
from kafka_pubsub.model import Committed, TopicInfo, TopicPartition

__all__ = ["Change", "ChangeKind", "Topology"]

#: Seconds within which routers learn that there will be more partitions, and between two looks.
_PATIENCE, _LOOK = 60.0, 0.2


class ChangeKind(Enum):
    """What has to be done about a topic, or can't be done."""

    CREATE = "create"
    SET = "set"
    GROW = "grow"
    END = "end"
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

    def __init__(self, backend: Backend, *, may_create: bool) -> None:
        self._backend, self._may_create = backend, may_create
        self._admin, self._catalog = backend.admin, backend.catalog
        #: Why a growth isn't over, as the last plan found it; empty: none lasts.
        self.growing = ""

    def plan(self, declaration: DelayDeclaration) -> list[Change]:
        """Returns what differs, in the order of the topics; nothing if all is as declared."""
        there = set(self._admin.topic_names())
        present = self._admin.topic(INGEST).partitions if INGEST in there else declaration.partitions
        found = self._find_end()
        state = _State(present, growth_of(self._catalog.delays()), has_ended=bool(found))
        for wanted in wanted_topics(declaration):
            if wanted.name in there:
                info = self._admin.topic(wanted.name)
                found += [*_count(wanted, info.partitions, state), *_compare(wanted, info)]
            else:
                copies = "the broker's default" if wanted.replication is None else str(wanted.replication)
                text = f"create with {state.made_with(wanted)} partitions, replication {copies}"
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
        if changes and changes[0].kind is ChangeKind.END:
            self._end()
            on_change(changes[0])
        wanted = {each.name: each for each in wanted_topics(declaration)}
        present = declaration.partitions
        if any(change.kind is ChangeKind.GROW for change in changes):
            present = self._admin.topic(INGEST).partitions
            self._announce(present, declaration.partitions)
        state = _State(present, growth_of(self._catalog.delays()))
        # The topic that publishers look for comes last: where it is, all are.
        for change in reversed(changes):
            if change.kind is ChangeKind.END:
                continue
            if change.kind is ChangeKind.CREATE:
                topic = wanted[change.topic]
                with suppress(AlreadyExists):  # a router that starts makes the same topics
                    self._admin.create_topic(
                        topic.name, state.made_with(topic), topic.replication, topic.settings
                    )
            elif change.kind is ChangeKind.GROW:
                self._admin.add_partitions(change.topic, declaration.partitions)
            else:
                self._admin.update_topic(change.topic, {change.setting: change.new})
            on_change(change)
        self._note_grown()
        return changes

    def _find_end(self) -> list[Change]:
        """Returns the end of the growth that lasts, if it is over; else says in `growing` why it isn't."""
        record, self.growing = self._catalog.delays(), ""
        growth = growth_of(record)
        if record is None or growth is None:
            return []
        why = "not all topics have them yet"
        if record.grown:
            why = find_remains(self._backend, growth, record.grown)
        if not why:
            text = f"partitions: {growth.former} -> {growth.partitions}: nothing from before waits any more"
            return [Change(ChangeKind.END, DEAD, text)]
        self.growing = (
            f"the delays grow from {growth.former} to {growth.partitions} partitions: {why}; "
            "`kafka-pubsub topology apply` ends that afterwards"
        )
        return []

    def _end(self) -> None:
        record = self._catalog.delays()
        if growth_of(record) is None or record is None:
            return  # another call has ended it
        with suppress(NotFound):
            if self._admin.topic(DEAD).partitions < record.partitions:
                self._admin.add_partitions(DEAD, record.partitions)
        self._catalog.put_delays(record.model_copy(update={"over": True}), record)

    def _note_grown(self) -> None:
        """Notes when ingest had its partitions, from when on publishers learn of them."""
        record = self._catalog.delays()
        if record is not None and not record.grown and not record.over:
            grown = record.model_copy(update={"grown": wall_time(self._backend.clock)})
            self._catalog.put_delays(grown, record)
            self._find_end()

    def _announce(self, former: int, partitions: int) -> None:
        """Has all routers know of the growth before ingest gets a partition."""
        known = self._catalog.delays()
        if growth_of(known) is None:
            now = wall_time(self._backend.clock)
            record = DelayRecord(former=former, partitions=partitions, created=now)
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


class _State(NamedTuple):
    """How many partitions ingest has, the growth that the catalog names, and whether nothing waits from before it."""

    present: int
    growth: Growth | None
    has_ended: bool = False

    @property
    def lasting(self) -> Growth | None:
        """The growth that isn't over."""
        return None if self.has_ended else self.growth

    @property
    def former(self) -> int:
        """How many partitions there were before the growth that isn't over."""
        return self.present if self.lasting is None else self.lasting.former

    def made_with(self, wanted: WantedTopic) -> int:
        """Returns how many partitions a topic is made with: as many as the others have while they grow."""
        if wanted.name == DEAD:
            return self.former
        return wanted.partitions if self.lasting is None else self.lasting.partitions

    def is_right(self, wanted: WantedTopic, found: int) -> bool:
        """Returns whether a topic has as many partitions as it should have."""
        if wanted.name != DEAD:
            return found == wanted.partitions
        # It gets its partitions with the end of a growth, which may have been interrupted.
        return found == self.former or (self.growth is not None and found in self.growth[:2])


def _count(wanted: WantedTopic, found: int, state: _State) -> list[Change]:
    """Returns the change of the number of partitions, or why it can't be made."""
    try:
        check_growth(state.former, wanted.partitions, state.lasting)
    except (FailedPrecondition, InvalidArgument) as error:
        return [Change(ChangeKind.REFUSED, wanted.name, error.message)]
    if state.is_right(wanted, found):
        return []
    if found != state.former or wanted.name == DEAD:
        text = f"has {found} partitions, and the delays have {state.former}: other tools have changed it"
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
