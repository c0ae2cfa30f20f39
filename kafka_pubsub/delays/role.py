"""The router of delayed messages: `router.py` on the service's engine.

Rules
1. A message's key and value are the publisher's at every place. In ingest and in the tiers the key begins with the home
   topic and a zero byte, so that messages of one key take the same way; at home it is the publisher's alone.
2. At home the header `ps-id` names the message: by the id that its writer gave it, as Spark does, or else by the place
   where it came in. Its timestamp is the time of its delivery.
3. A message that can't be delivered goes to the topic `DEAD`, as it came in, with the reason in a header.
4. Only stored work is counted: the decisions of a transaction that wasn't stored are made again.
5. A message that is due for a home topic that takes no messages waits, and the others go on: `away.py` has the topics
   that have refused one, `homes.py` those of which keys are about to move.
6. A router that reads fewer tiers than a commit names refuses to begin, and looks again. What is longer than its tiers
   waits until `_LONGER` seconds of looking have found no more of them.
7. Where no time is committed, it is that at which the last records of the tiers were written.
8. While the partitions grow, those that share keys walk in step (`growth.py`, `steps.py`). A router that knows of fewer
   partitions than a commit names, or of fewer than there are, refuses to begin, and looks again.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple, cast

from kafka_pubsub.delays.away import AwayHomes
from kafka_pubsub.delays.growth import Growth
from kafka_pubsub.delays.homes import Homes
from kafka_pubsub.delays.layout import DEAD, GROUP, INGEST, UNIT, tier_topic, tiers_of
from kafka_pubsub.delays.messages import (
    cancel_of,
    others_of,
    read_delayed,
    read_ingest,
    read_tier,
    why_dead,
)
from kafka_pubsub.delays.progress import (
    IngestProgress,
    RouterStart,
    parse_ingest,
    parse_tier,
    writer_of,
)
from kafka_pubsub.delays.records import (
    CANCEL_HEADER,
    DEAD_REASON_HEADER,
    DELAY_HEADER,
    ID_HEADER,
    TICK_HEADER,
    DelayCancel,
    encode_cancel,
    encode_delayed,
)
from kafka_pubsub.delays.router import Router
from kafka_pubsub.delays.steps import IDLE_MS, STEP_MS, Steps
from kafka_pubsub.delays.topics import growth_of, unstamped_ingest
from kafka_pubsub.delays.values import TO_DEAD, TO_HOME, TO_NOTHING, Waiting
from kafka_pubsub.errors import FailedPrecondition, PubSubError
from kafka_pubsub.log.ports import Backend
from kafka_pubsub.model import Committed, Header, NewRecord, StoredRecord, TopicPartition
from kafka_pubsub.services.metrics import ServiceMetrics
from kafka_pubsub.services.role import OF_THE_RECORD, Append, Beginning, Work
from kafka_pubsub.subscribe.dead_letters.scan import read_all

__all__ = ["MAX_RATE", "DelayRole", "DelayTask", "Pace"]

_log = logging.getLogger("kafka_pubsub.service")

#: Messages that a router brings home in a second at most, unless set otherwise.
MAX_RATE: Final = 20_000.0

#: The operator's choices where offsets are forgotten.
_CHOICE: Final = (
    "Nothing is delivered, because some messages would be delivered again. Accept that once with "
    "`kafka-pubsub service router --begin-again` (DelayRouter(..., begin_again=True)): it begins at the start of what "
    "is left, so nothing is lost, and only what routers handled last and hadn't deleted yet is delivered again"
)
#: Seconds between two commits while there is nothing to write.
_COMMIT_S: Final = 2.0
#: Seconds between two looks for new tiers, and while a message is longer than the known ones.
_LOOK: Final = 10.0
_LOOK_AGAIN: Final = 1.0
#: Seconds of looking after which there are no more tiers.
_LONGER: Final = 10.0
#: Milliseconds by which the time of the log may be ahead of its last stamp without a word of it.
_AHEAD: Final = 1000
#: Records at the end of a tier among which its last one is looked for: the others are markers of transactions.
_LAST: Final = 10


class Pace:
    """How many messages a router brings home in a second, over all partitions: more than due come after a downtime."""

    def __init__(self, rate: float, clock: Callable[[], float] = time.monotonic) -> None:
        # A tenth of a second's worth is saved up at most.
        self._rate, self._most = rate, max(1.0, rate / 10)
        self._clock, self._counted_at = clock, clock()
        # Below 0: more have gone than should have.
        self._free = self._most

    def room(self) -> int:
        """How many may go now."""
        now = self._clock()
        self._free = min(self._most, self._free + (now - self._counted_at) * self._rate)
        self._counted_at = now
        return max(0, int(self._free))

    def spend(self, count: int) -> None:
        """So many went."""
        self._free -= count


class DelayRole:
    """The role of a delay router; `partitions` and `tiers` as the topics are; `growth` while the partitions grow."""

    name = "delay router"
    group = GROUP
    at_once = 8000
    #: A client that cancels a message reads ingest from a committed position on.
    kept = (0,)

    def __init__(
        self,
        backend: Backend,
        tiers: int,
        partitions: int,
        metrics: ServiceMetrics,
        max_rate: float = MAX_RATE,
        *,
        begin_again: bool = False,
        growth: Growth | None = None,
    ) -> None:
        self.topics: Sequence[str] = (INGEST, *map(tier_topic, range(tiers)))
        self.sets = (self.topics,)
        self.homes, self.away = Homes(backend), AwayHomes(backend.admin)
        self.metrics = metrics
        self._backend = backend
        self._tiers = tiers
        self._look_at = time.monotonic() + _LOOK
        self._has_changed = False
        # When a message was first longer than the tiers; None: none was, or a minute ago.
        self._longer_since: float | None = None
        self.partitions, self.growth = partitions, growth
        # Whether there were more partitions than we know of.
        self._is_refused = False
        #: Of how many partitions this router knows, which its commits say.
        self.known = partitions if growth is None else growth.partitions
        self.steps = Steps(growth, self._commits_of, self._count_partitions)
        # How many partitions the topic of dead letters has: as many as there were before they grew.
        self.dead_partitions = partitions if growth is None else growth.former
        self.pace = Pace(max_rate)
        self._begin_again = begin_again
        #: The reasons of refusals by home topics, by partition and ingest offset. Empty: nothing, as a rule.
        self.refused: dict[tuple[int, int], str] = {}

    def expect(self, topics: Collection[str]) -> None:
        """Asks nothing."""

    def grow(self) -> bool:
        """Takes nothing up: another tier makes another set of it all."""
        return False

    def outdated(self) -> bool:
        """Whether there are more tiers or partitions by now, or the growth is over."""
        if time.monotonic() >= self._look_at:
            self._look()
        return self._has_changed

    def knows_all_tiers(self) -> bool:
        """Whether looking for more tiers, because a message is longer than these, has found none for long enough."""
        now = time.monotonic()
        if self._longer_since is None or now > self._longer_since + 2 * _LONGER:
            self._longer_since = now
            self._look()
        self._look_at = min(self._look_at, now + _LOOK_AGAIN)
        return now >= self._longer_since + _LONGER

    def _look(self) -> None:
        self._look_at = time.monotonic() + (_LOOK if self.growth is None else _LOOK_AGAIN)
        more = tiers_of(self._backend.admin.topic_names()) > self._tiers
        # Before a growth the catalog is enough; a broker that is away answers nothing else either.
        grown = (self.growth is not None or self._is_refused) and self._count_partitions() != self.partitions
        self._has_changed = more or grown or growth_of(self._backend.catalog.delays()) != self.growth

    def _count_partitions(self) -> int:
        return self._backend.admin.topic(INGEST).partitions

    def _commits_of(self, places: Sequence[TopicPartition]) -> Mapping[TopicPartition, Committed]:
        return self._backend.admin.unstable_offsets(GROUP, places)

    def close(self) -> None:
        """Stops looking at other routers' partitions."""
        self.steps.close()

    def writer_of(self, committed: Sequence[Committed]) -> str | None:
        """The id that the commit of ingest names."""
        at = committed[0]
        return None if at.offset is None else writer_of(at.offset, at.metadata)

    def begin(
        self, topics: Sequence[str], number: int, beginnings: Sequence[Beginning], writer: str
    ) -> DelayTask:
        """The task of a partition; where commits are missing it begins at the start of the log, or refuses to guess."""
        lost = _lost(number, beginnings, topics)
        if lost and not self._begin_again:
            raise FailedPrecondition(f"{self.name}: {lost}. {_CHOICE}")
        if lost:
            _log.warning(
                "%s: %s. It begins again at the start of what is left; what was handled last may be delivered again",
                self.name,
                lost,
            )
        ingest, *tiers = (
            Committed(each.start, "") if each.committed.offset is None else each.committed
            for each in beginnings
        )
        said = parse_ingest(ingest.offset or 0, ingest.metadata)
        if said.tiers > len(tiers):
            self._look_at = min(self._look_at, time.monotonic() + _LOOK_AGAIN)
            raise FailedPrecondition(
                f"{self.name}: a router has handled partition {number} with {said.tiers} tiers, and this one has found "
                f"{len(tiers)}: it looks again"
            )
        if max(said.partitions, number + 1) > self.known:
            self._is_refused = True
            self._look_at = min(self._look_at, time.monotonic() + _LOOK_AGAIN)
            raise FailedPrecondition(
                f"{self.name}: partition {number}: there are {max(said.partitions, number + 1)} partitions, and this "
                f"router has found {self.known}: it looks again"
            )
        if said.time is None:
            said = said._replace(time=self._time_of_tiers(number, beginnings[1:]))
        start = RouterStart(
            said,
            [parse_tier(each.offset or 0, each.metadata) for each in tiers],
            [each.end for each in beginnings[1:]],
            [source for source, each in enumerate(beginnings) if each.committed.offset is None],
        )
        router = Router(start)
        router.partitions = self.known
        if self.growth is not None:
            router.shares = partial(_shares, self.growth, number)
        self.steps.begin(number)
        unread = any(each.end > (each.committed.offset or each.start) for each in beginnings)
        return DelayTask(self, number, router, writer, unread=unread)

    def _time_of_tiers(self, number: int, beginnings: Sequence[Beginning]) -> int:
        """Returns when the last records of the tiers were written there, by the time of the log; 0: there are none."""
        fetch, times = self._backend.record_fetch(), [0]
        try:
            for tier, each in enumerate(beginnings):
                place = TopicPartition(tier_topic(tier), number)
                for record in read_all(
                    fetch, place, list(range(max(each.start, each.end - _LAST), each.end))
                ):
                    said, cancel = read_delayed(record), cancel_of(record)
                    leaves = said[2] if said is not None else cancel.leaves if cancel is not None else 0
                    times.append(leaves - (UNIT << tier))
        finally:
            fetch.close()
        return max(times)

    def say_held(self) -> None:
        """Says in health and log which topics messages wait for; once for each change."""
        held = "; ".join(self.homes.held())
        if held != self.metrics.waits_for:
            self.metrics.waits_for = held
            _log.warning(
                "%s: %s", self.name, held or "no topic is being repartitioned any more; messages go on"
            )

    def trimmable(self, positions: Mapping[int, Committed]) -> Mapping[int, int]:
        """Everything below the positions: a restart reads only the records above."""
        return {topic: to.offset for topic, to in positions.items() if to.offset}


class _Note(NamedTuple):
    """Of a work: the ingest offsets of its messages, its counts, and the progress of ingest after it."""

    offsets: Sequence[int]
    counts: Mapping[str, int]
    ingest: IngestProgress | None


def _note(work: Work) -> _Note:
    return cast("_Note", work.note)


class DelayTask:
    """One partition. `unread`: its logs hold records that no stored work has handled."""

    def __init__(
        self, role: DelayRole, number: int, router: Router, writer: str, *, unread: bool = False
    ) -> None:
        self.router = router
        self._role, self._number, self._writer = role, number, writer
        self._unread = unread
        # When something was last appended or asked for, by the engine's clock.
        self._now = 0
        self._commit_at = time.monotonic() + _COMMIT_S
        # Whether our transactional id is committed: before the first record that a successor may have to wait for.
        self._announced = False
        # The offset of the last tick that was stored; -1: none was.
        self._tick_at = -1
        # The progress of ingest that we committed; None: none yet.
        self._stored: IngestProgress | None = None
        # The time of delivery of the messages that are brought home now.
        self._delivered_at = 0
        # The counts of the work that is being made, by the names of the metrics.
        self._counts: Counter[str] = Counter()

    # -- reading -----------------------------------------------------------------------------------------------

    @property
    def positions(self) -> Sequence[int]:
        """From where to read on."""
        return self.router.ingest.read, *(tier.read for tier in self.router.tiers)

    def receive(self, topic: int, records: Sequence[StoredRecord], now: int) -> int | None:
        """Takes records of ingest or of a tier."""
        if topic:
            self._receive_tier(topic - 1, records)
            return None
        ingest = self.router.ingest
        found = [read_ingest(record) for record in records]
        if any(each.offset == self._tick_at and each.stamp is None for each in found):
            raise FailedPrecondition(unstamped_ingest("CreateTime"))
        self.router.receive_ingest(found, now)
        again, ingest.seek = ingest.seek, None
        ahead = 0 if ingest.stamp is None else ingest.time - ingest.stamp
        self._role.metrics.log_ahead = ahead / 1000 if ahead > _AHEAD else 0.0
        return again

    def _receive_tier(self, number: int, records: Sequence[StoredRecord]) -> None:
        key, found = self.router.tiers[number].low, []
        for record in records:
            message = read_tier(record, number) or Waiting(*key, 0, 0, None, record.offset() or 0, record)
            key = message[:2]
            found.append(message)
        self.router.receive_tier(number, found)

    def reach(self, topic: int, position: int) -> None:
        """Nothing below the position is left to be read."""
        if topic:
            self.router.reach_tier(topic - 1, position)
        else:
            self.router.ingest.reach(position)

    def unsure(self) -> Iterable[int]:
        """The tiers whose head isn't known."""
        return [number for number, tier in enumerate(self.router.tiers, 1) if tier.unknown]

    def full(self, room: int) -> Iterable[int]:
        """The logs of which more than `room` bytes wait."""
        found = [number for number, tier in enumerate(self.router.tiers, 1) if tier.size > room]
        return [0, *found] if self.router.ingest.size > room else found

    # -- writing -----------------------------------------------------------------------------------------------

    def append(self, now: int) -> Append | None:
        """A tick, if one is wanted."""
        self._now = now
        self._step()
        return Append(INGEST, self._number, b"", [TICK_HEADER]) if self.router.tick_wanted(now) else None

    def _is_due(self) -> bool:
        at = self.router.next_at()
        return at is not None and at <= self.router.time

    def _step(self) -> None:
        """Goes as far as the partitions that share keys allow."""
        step = self._role.steps.of(self._number, self.router.time, due=self._is_due())
        self.router.only_before, self.router.others_at = step

    def appended(self, record: StoredRecord, now: int) -> None:
        """A tick is stored."""
        self._tick_at = record.offset() or 0
        self.router.ticks.answer(self._tick_at, record.timestamp()[1], now)
        self._role.metrics.count("ticks")

    def awaits(self) -> bool:
        """Whether a tick is on its way, or wasn't read back yet."""
        return self.router.ticks.pending

    def write_as(self, writer: str) -> None:
        """Work is written under this transactional id from now on."""
        self._writer, self._announced = writer, False

    def work(self, most: int, room: int) -> Work | None:
        """The records to write, and how far they reach; at first only our transactional id."""
        if not self._announced:
            self._announced = True
            return self._work((), (), named=True)
        if self.router.ingest.longer:
            if not self._role.knows_all_tiers():
                return None
            self.router.ingest.longer = False
        self._role.homes.begin()
        self._step()
        moves = self.router.take(min(most, self._role.pace.room()), self._held, room)
        self._role.say_held()
        now = time.monotonic()
        if not moves and now < self._commit_at:
            return None
        self._commit_at = now + (_COMMIT_S if self._role.growth is None else STEP_MS / 1000)
        # The last stamp, which no topic refuses; the time of the log may be ahead. 0 is the time of writing.
        self._delivered_at = self.router.ingest.stamp or 0
        self._role.pace.spend(sum(to == TO_HOME for to, _ in moves))
        records = [
            self._home(message)
            if to == TO_HOME
            else self._dead(message, "")
            if to == TO_DEAD
            else self._hop(to, message)
            for to, message in moves
            if to != TO_NOTHING
        ]
        if len(moves) > len(records):
            self._counts["cancelled"] = len(moves) - len(records)
        return self._work(records, [message.offset for to, message in moves if to != TO_NOTHING])

    def _work(
        self, records: Sequence[NewRecord], offsets: Sequence[int], *, named: bool = False
    ) -> Work | None:
        counts, self._counts = self._counts, Counter()
        positions = self._positions(named=named)
        note = _Note(offsets, counts, self.router.last_ingest())
        # That our id was stored proves nothing of records that were refused before, and come again.
        waits = self.router.waits_for_homes or (named and self._unread)
        return Work(records, positions, note, waits) if positions else None

    def _positions(self, *, named: bool = False) -> Mapping[int, Committed]:
        """The positions that have changed; with `named` that of ingest, which names us, in any case."""
        found = self.router.progress()
        last = self.router.last_ingest()
        if named and last is not None:
            found[0] = last
        return {
            source: Committed(
                said.position,
                said.text(self._writer) if isinstance(said, IngestProgress) else said.text(),
            )
            for source, said in found.items()
        }

    def last_positions(self) -> Mapping[int, Committed]:
        """The same position without our id: there is nothing of ours to wait for."""
        said = self._stored
        return {} if said is None else {0: Committed(said.position, said.text(""))}

    def refuse(self, work: Work, number: int, reason: PubSubError) -> None:
        """The home topic won't take a message: it is a dead letter next time, or waits if that isn't its fault."""
        record = work.records[number]
        if isinstance(reason, OF_THE_RECORD):
            self._role.refused[self._number, _note(work).offsets[number]] = str(reason)
        elif record.topic not in (DEAD, *self._role.topics):
            self._role.away.fail(self._number, record)

    def stored(self, work: Work) -> None:
        """A work is stored."""
        note = _note(work)
        self._stored = note.ingest
        self._role.away.stored(self._number, work.records)
        for name, count in note.counts.items():
            self._role.metrics.count(name, count)
        if self._role.refused:
            for offset in note.offsets:
                self._role.refused.pop((self._number, offset), None)

    def wakeup_at(self) -> int | None:
        """Now if there is something to do, or when a tick is wanted.

        Messages that are held up are looked at again with the next read.
        """
        if self.router.held or self.router.ingest.longer:
            return None
        if self.router.ready:
            return 0
        at = self.router.next_tick_at()
        if self._role.growth is None:
            return at
        soon = self._now + (STEP_MS if self._is_due() else IDLE_MS)
        return soon if at is None else min(at, soon)

    def _held(self, message: Waiting) -> bool:
        """Whether a message that is due must wait: keys of its topic are about to move."""
        home = self._role.homes.find(message.home or "")
        if not home.refused and self._role.away.is_away(self._number, home):
            return True
        return bool(home.held) and (message.record.key() is not None or not home.partitions)

    def _hop(self, tier: int, message: Waiting) -> NewRecord:
        self._counts["hops"] += 1
        at, offset, due, left, home, _, record, target = message
        if target < 0:
            headers = [
                (DELAY_HEADER, encode_delayed((home or "", due, at, left, offset))),
                *others_of(record),
            ]
        else:
            headers = [(CANCEL_HEADER, encode_cancel(DelayCancel(due, target, offset, at, left)))]
        return NewRecord(self._role.topics[tier + 1], self._number, record.key(), record.value(), headers, at)

    def _home(self, message: Waiting) -> NewRecord:
        try:
            return self._deliver(message)
        except PubSubError:
            raise
        except Exception as error:  # whatever is odd about it must not stop the others
            return self._dead(message, f"it can't be delivered: {error!r}")

    def _deliver(self, message: Waiting) -> NewRecord:
        refused = self._role.refused and self._role.refused.get((self._number, message.offset))
        if refused:
            return self._dead(message, refused)
        record, home = message.record, self._role.homes.find(message.home or "")
        if home.refused:
            return self._dead(message, home.refused)
        if not home.partitions:  # it was ready when this work began
            raise FailedPrecondition(home.held)
        key = record.key()
        if key is not None:
            key = key.partition(b"\0")[2]
        self._counts["home"] += 1
        headers = others_of(record)
        headers = [*self._ids(message, headers), *headers]
        partition = self._role.homes.partition(home, key)
        return NewRecord(home.name, partition, key, record.value(), headers, self._delivered_at)

    def _ids(self, message: Waiting, headers: Iterable[Header]) -> list[Header]:
        """Returns the header that names the message; none if its writer has given it an id."""
        if any(name == ID_HEADER for name, _ in headers):
            return []
        return [(ID_HEADER, f"{INGEST}:{self._number}:{message.offset}".encode())]

    def _dead(self, message: Waiting, reason: str) -> NewRecord:
        self._counts["dead"] += 1
        record = message.record
        headers = list(record.headers() or ())
        if not reason:
            reason = why_dead(record)
        headers += [(DEAD_REASON_HEADER, reason.encode()), *self._ids(message, headers)]
        place = self._number % self._role.dead_partitions
        return NewRecord(DEAD, place, record.key(), record.value(), headers, self._delivered_at)


def _shares(growth: Growth, number: int, message: Waiting) -> bool:
    """Returns whether a message of this partition must be in order with those of other partitions."""
    return growth.shares(number, message.record.key())


def _lost(number: int, beginnings: Sequence[Beginning], topics: Sequence[str]) -> str:
    """Says which commit is missing although routers had made it; empty: none is."""
    missing = [topic for topic, each in zip(topics, beginnings, strict=True) if each.committed.offset is None]
    if not missing:
        return ""
    fresh = beginnings[0].start == 0 and not any(each.end for each in beginnings[1:])
    added = beginnings[0].committed.offset is not None and not any(
        each.end for each in beginnings if each.committed.offset is None
    )
    if fresh or added:
        return ""
    return (
        f"group {GROUP!r} has no offset for partition {number} of {missing[0]!r}, although messages have passed it: "
        "the broker has forgotten it, as it does a week after the last router has ended (offsets.retention.minutes)"
    )
