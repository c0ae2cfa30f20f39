"""The rules of the delays, each broken on purpose: the world must notice.

They are the mutations of the protocol's model, and mutations of the core's additions: heads that weren't read yet, and
messages that are read twice because the record that dates them is far away.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from kafka_pubsub.delays import router
from kafka_pubsub.delays.ingest import Ingest
from kafka_pubsub.delays.progress import IngestProgress, Progress
from kafka_pubsub.delays.router import Router
from kafka_pubsub.delays.ticks import TickPace
from kafka_pubsub.delays.tier import Tier
from kafka_pubsub.delays.values import BEFORE_ALL, TO_NOTHING, Came, Key, Move, Tick, Waiting
from tests.property.arrival_mutations import ARRIVALS
from tests.property.aside_mutations import ASIDES
from tests.property.flush_mutations import FLUSHES

__all__ = ["MUTATIONS"]

Patch = pytest.MonkeyPatch


def steps_back(patch: Patch) -> None:
    """Time is the last stamp, not the highest."""

    def rise(self: Ingest, stamp: int) -> None:
        self.time = stamp

    patch.setattr(Ingest, "_rise", rise)


def own_stamp(patch: Patch) -> None:
    """A message came in at its own stamp, though time was further."""
    real = Ingest._arrive

    def arrive(self: Ingest, message: Came) -> None:
        time, self.time = self.time, self.time if message.stamp is None else message.stamp
        real(self, message)
        self.time = time

    patch.setattr(Ingest, "_arrive", arrive)


def read_clock(patch: Patch) -> None:
    """A message came in when its router read it."""
    real = Ingest._arrive
    clock = [0]

    def receive(self: Router, records: Sequence[Came | Tick], now: int) -> None:
        clock[0] = now % 12_345
        real_receive(self, records, now)

    def arrive(self: Ingest, message: Came) -> None:
        time, self.time = self.time, max(self.time, clock[0])
        real(self, message)
        self.time = time

    real_receive = Router.receive_ingest
    patch.setattr(Router, "receive_ingest", receive)
    patch.setattr(Ingest, "_arrive", arrive)


def next_tick(patch: Patch) -> None:
    """A message came in at the time of the first tick behind it."""
    real = Ingest.receive

    def receive(self: Ingest, records: Sequence[Came | Tick]) -> None:
        real(self, [each._replace(stamp=None) if isinstance(each, Came) else each for each in records])

    patch.setattr(Ingest, "receive", receive)


def forgotten_time(patch: Patch) -> None:
    """The time at the committed position isn't stored; a restart begins the time anew."""
    change_progress(patch, lambda router, said: said._replace(time=0))


def time_of_mark(patch: Patch) -> None:
    """The time that is stored is that of the mark."""
    change_progress(patch, lambda router, said: said._replace(time=max(0, said.mark[0])))


def time_as_read(patch: Patch) -> None:
    """The time that is stored is that of all that was read, not that at the position."""
    change_progress(patch, lambda router, said: said._replace(time=router.ingest.time))


def mark_below(patch: Patch) -> None:
    """All that is due at the time of the mark counts as home."""
    change_progress(patch, lambda router, said: said._replace(mark=(said.mark[0], 1 << 40)))


def mark_above(patch: Patch) -> None:
    """Nothing that is due at the time of the mark counts as home."""
    change_progress(patch, lambda router, said: said._replace(mark=(said.mark[0], -1)))


def change_progress(patch: Patch, change: Callable[[Router, IngestProgress], IngestProgress]) -> None:
    """Commits another progress of ingest than the router's."""
    real = Router._progress_of

    def progress_of(self: Router, source: int, position: int) -> IngestProgress | Progress:
        said = real(self, source, position)
        return change(self, said) if isinstance(said, IngestProgress) else said

    patch.setattr(Router, "_progress_of", progress_of)


def cancel_no_mark(patch: Patch) -> None:
    """A message that is cancelled doesn't move the mark."""
    real = Router._cancel

    def cancel(self: Router, key: Key, moves: list[Move]) -> None:
        mark = self.mark
        real(self, key, moves)
        self.mark = mark

    patch.setattr(Router, "_cancel", cancel)


def timer_from_read(patch: Patch) -> None:
    """A new router takes the first record that it reads for a record that was just stored."""
    real = Router.receive_ingest

    def receive(self: Router, records: Sequence[Came | Tick], now: int) -> None:
        real(self, records, now)
        if self.ticks._known is None and self.ingest.stamp is not None:
            self.ticks._known = self.ingest.stamp, now

    patch.setattr(Router, "receive_ingest", receive)


def no_beat(patch: Patch) -> None:
    """A tick is wanted only when something is due by the last stamp, however long that takes."""
    change_pace(patch, lambda pace: pace._replace(beat=1 << 40))


def ask_once(patch: Patch) -> None:
    """A tick that was lost isn't asked for again."""
    change_pace(patch, lambda pace: pace._replace(lost=1 << 40))


def change_pace(patch: Patch, change: Callable[[TickPace], TickPace]) -> None:
    """Asks for ticks at another pace."""
    real = Router.next_tick_at

    def next_tick_at(self: Router) -> int | None:
        pace, self.ticks._pace = self.ticks._pace, change(self.ticks._pace)
        at = real(self)
        self.ticks._pace = pace
        return at

    patch.setattr(Router, "next_tick_at", next_tick_at)


def pace_by_time(patch: Patch) -> None:
    """The next tick is reckoned from the time of the log, not from the last stamp."""
    real = Router.next_tick_at

    def next_tick_at(self: Router) -> int | None:
        known = self.ticks._known
        if known is not None:
            self.ticks._known = self.time, known[1]
        at = real(self)
        self.ticks._known = known
        return at

    patch.setattr(Router, "next_tick_at", next_tick_at)


def ask_unread(patch: Patch) -> None:
    """A tick that is stored and can't be read yet is asked for again."""
    real = Router.next_tick_at

    def next_tick_at(self: Router) -> int | None:
        self.ticks._behind = 0
        return real(self)

    patch.setattr(Router, "next_tick_at", next_tick_at)


def create_time(patch: Patch) -> None:
    """A publisher's time counts like a broker's."""
    real = Ingest.receive

    def receive(self: Ingest, records: Sequence[Came | Tick]) -> None:
        real(self, [each if each.stamp else each._replace(stamp=900 + each.offset) for each in records])

    patch.setattr(Ingest, "receive", receive)


def stamp_before(patch: Patch) -> None:
    """A message without a stamp comes in at the time before."""

    def take(self: Ingest, message: Came) -> None:
        self._arrive(message)

    patch.setattr(Ingest, "_take_undated", take)


def stamp_newest(patch: Patch) -> None:
    """Messages without a stamp that are read again come in with the newest stamp that was read."""
    real = Ingest._go_back
    newest = [0]

    def receive(self: Ingest, records: Sequence[Came | Tick]) -> None:
        newest[0] = max([0, *(each.stamp or 0 for each in records)])
        real_receive(self, records)

    def go_back(self: Ingest, dropped: int, offset: int, stamp: int) -> None:
        real(self, dropped, offset, newest[0])

    real_receive = Ingest.receive
    patch.setattr(Ingest, "receive", receive)
    patch.setattr(Ingest, "_go_back", go_back)


def no_stamp(patch: Patch) -> None:
    """No tick is asked for behind a message without a stamp."""
    patch.setattr(Ingest, "undated", property(lambda self: False))


def stamp_behind(patch: Patch) -> None:
    """Messages without a stamp that are read again come in at the time before the record that dates them."""
    real = Ingest._go_back

    def go_back(self: Ingest, dropped: int, offset: int, stamp: int) -> None:
        real(self, dropped, offset, self.time)

    patch.setattr(Ingest, "_go_back", go_back)


def wall_clock(patch: Patch) -> None:
    """The next time of leaving counts from now, not from the scheduled time."""
    real = Router._hop

    def hop(self: Router, message: Waiting) -> None:
        real(self, message._replace(at=self.time))

    patch.setattr(Router, "_hop", hop)


def no_mark(patch: Patch) -> None:
    """After a restart all that is read again goes home again."""
    real = Router._handle

    def handle(self: Router, source: int, message: Waiting, moves: list[Move]) -> None:
        mark, self.mark = self.mark, BEFORE_ALL
        real(self, source, message, moves)
        self.mark = max(self.mark, mark)

    patch.setattr(Router, "_handle", handle)


def position(patch: Patch) -> None:
    """Positions are committed as read, past the messages that wait in memory."""
    real = Router._progress_of

    def progress_of(self: Router, source: int, position: int) -> IngestProgress | Progress:
        return real(self, source, self._next(source))

    patch.setattr(Router, "_progress_of", progress_of)


def largest_tier(patch: Patch) -> None:
    """At each hop the tiers are chosen anew, by the delay that is left."""
    real = Router._hop

    def hop(self: Router, message: Waiting) -> None:
        left = max(1, (message.due - self.time) // self._unit)
        real(self, message._replace(left=left, at=self.time))

    patch.setattr(Router, "_hop", hop)


def tiers_first(patch: Patch) -> None:
    """Of equal times the tiers go before memory and new messages, whatever the offset."""

    def first(head: tuple[Any, ...]) -> tuple[Any, ...]:
        return (head[0], -1, head[2]) if len(head) == 3 and head[2] else head

    patch.setattr(router, "heappush", lambda heap, head: heapq.heappush(heap, first(head)))
    patch.setattr(router, "heapreplace", lambda heap, head: heapq.heapreplace(heap, first(head)))


def hop_again(patch: Patch) -> None:
    """A handled message that is read again hops again."""
    real = Router._handle

    def handle(self: Router, source: int, message: Waiting, moves: list[Move]) -> None:
        if message.left:
            self._handled[source] = min(self._handled[source], message.position)
        real(self, source, message, moves)

    patch.setattr(Router, "_handle", handle)


def unread_heads(patch: Patch) -> None:
    """Unread records of a tier hold up nothing."""
    patch.setattr(Tier, "unknown", property(lambda self: False))


def written_heads(patch: Patch) -> None:
    """A message put into an empty tier holds up nothing until it was read back."""
    real = Tier.put

    def put(self: Tier, message: Waiting) -> bool:
        real(self, message)
        return False

    patch.setattr(Tier, "put", put)


def low_key(patch: Patch) -> None:
    """A tier's unread head may be taken for a later message."""
    real = Tier.flush

    def flush(self: Tier, left: Sequence[Waiting]) -> Sequence[Waiting]:
        low = self.low
        found = real(self, left)
        self.low = low if self.low == low else (self.low[0] + 3, self.low[1])
        return found

    patch.setattr(Tier, "flush", flush)


def cancel_when_due(patch: Patch) -> None:
    """A request to cancel may leave its last tier when its message is due."""
    real = Ingest._arrive

    def arrive(self: Ingest, message: Came) -> None:
        real(self, message)
        arrived = self.arrived[-1]
        if message.target >= 0 and arrived.due > self.time:
            left = min((arrived.due - self.time) // self._unit, (1 << self._tiers) - 1)
            self.arrived[-1] = arrived._replace(left=left)

    patch.setattr(Ingest, "_arrive", arrive)


def cancel_forgotten(patch: Patch) -> None:
    """Positions are committed past requests to cancel that wait in memory."""
    real = Router._progress_of

    def progress_of(self: Router, source: int, position: int) -> IngestProgress | Progress:
        memory = self._memory
        requests = {each[4].position for each in memory.heap if each[2] < 0 and each[3] == source}
        rest = [at for at in memory._resting[source] if at not in requests]
        return real(self, source, min([self._next(source), *rest]))

    patch.setattr(Router, "_progress_of", progress_of)


def cancel_any(patch: Patch) -> None:
    """A request drops the next message, whichever that is."""
    real = Router._cancel

    def cancel(self: Router, key: Key, moves: list[Move]) -> None:
        before = len(moves)
        real(self, key, moves)
        if len(moves) == before and self._memory.heap and self._memory.heap[0][2] >= 0:
            found = self._memory.pop()
            self._memory.end(found)
            self._pass(found[:2], found[4])
            moves.append((TO_NOTHING, found[4]))

    patch.setattr(Router, "_cancel", cancel)


def held_in_memory_only(patch: Patch) -> None:
    """A message that is due when it leaves its tier goes home, though it may not."""
    real = Router._handle

    def handle(self: Router, source: int, message: Waiting, moves: list[Move]) -> None:
        self._holds = lambda message: False
        real(self, source, message, moves)

    patch.setattr(Router, "_handle", handle)


def held_are_home(patch: Patch) -> None:
    """A message that may not go home now counts as home after a restart."""
    real = Router._handle

    def handle(self: Router, source: int, message: Waiting, moves: list[Move]) -> None:
        resting = self.resting
        real(self, source, message, moves)
        if self.resting > resting and self._holds(message):
            self.mark = max(self.mark, (message.due, message.offset))

    patch.setattr(Router, "_handle", handle)


def strays_counted(patch: Patch) -> None:
    """A record of a tier that another program wrote counts as the router's."""
    real = Tier.receive

    def receive(self: Tier, records: Sequence[Waiting]) -> None:
        new = [each for each in records if each.position >= max(self.read, self._until)]
        real(self, records)
        self._written -= sum(each.home is None for each in new)

    patch.setattr(Tier, "receive", receive)


MUTATIONS: Sequence[Callable[[Patch], None]] = (
    steps_back,
    own_stamp,
    read_clock,
    next_tick,
    forgotten_time,
    time_of_mark,
    time_as_read,
    mark_below,
    mark_above,
    cancel_no_mark,
    timer_from_read,
    no_beat,
    ask_once,
    pace_by_time,
    ask_unread,
    create_time,
    stamp_before,
    stamp_newest,
    no_stamp,
    stamp_behind,
    wall_clock,
    no_mark,
    position,
    largest_tier,
    tiers_first,
    hop_again,
    unread_heads,
    written_heads,
    low_key,
    cancel_when_due,
    cancel_forgotten,
    cancel_any,
    held_in_memory_only,
    held_are_home,
    strays_counted,
    *ARRIVALS,
    *ASIDES,
    *FLUSHES,
)
