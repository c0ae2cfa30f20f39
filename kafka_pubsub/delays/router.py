"""The router of a partition: messages that came in go through the tiers and home, in order, exactly once.

Theory. A message has a key: when it is handled, and the offset at which it came in. The router handles the lowest key
first: of messages that came in, of the head of each tier, and of messages that wait in memory for the rest of their
time. Nothing is handled beyond the time of the log (`ingest.py`). A message that leaves a tier is
counted on from its scheduled time, not from now. So each tier is in the order of leaving, messages come home in the
order of (due, offset), and a single mark says which of them are home.

Rules
1. All decisions follow from the logs. The caller writes the moves of a `take` and the `progress` after it in
   a single transaction, and makes a new router from the committed state if that fails.
2. Committed positions stay at the lowest record that waits in memory. A message that was handled and is read again hops
   no second time, and is taken up again only if the message waited in memory and isn't home (at or below the mark).
3. Where a tier's head isn't known yet, nothing above its possible key is handled.
4. A request to cancel takes the same way as its message, and waits in memory until the message is due: then both go.
5. Messages that leave for a tier are written together, by a flush (`unwritten.py`). Until then only the mark moves, so
   a restart handles them again, and leaves out messages that are home (at or below the mark).
6. A message that has to leave a tier before the flush isn't written there: a backlog of hours takes few transactions.
   A message that rests in memory after it left such a tier is put back there by the flush.
7. A message that is due and may not go home is set aside, with all later messages for the same home, and the others go
   on. That home is `behind`: its own mark is committed too, until the mark of all takes none of its messages for home
   that waits. A request to cancel such a message is set aside with the message: a restart knows of both, or of neither.
8. Only so much is set aside, for so many homes. Beyond that nothing goes home while the first message may not.
9. Partitions that share keys walk in step (`growth.py`): no message of a key that others have (`shares`) goes home at
   or after `only_before`, nor anything behind it, and the time of the log goes on for what the others wait for
   (`others_at`). To the rules above that is a router that is slower.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush, heapreplace

from kafka_pubsub.delays.ingest import KEEP, Ingest
from kafka_pubsub.delays.layout import UNIT
from kafka_pubsub.delays.memory import Memory, Rested, key_of
from kafka_pubsub.delays.progress import IngestProgress, Progress, RouterStart
from kafka_pubsub.delays.ticks import TICK_PACE, TickPace, Ticks
from kafka_pubsub.delays.tier import Tier
from kafka_pubsub.delays.unwritten import PAUSE, Unwritten
from kafka_pubsub.delays.values import (
    TO_DEAD,
    TO_HOME,
    TO_NOTHING,
    UNWRITTEN,
    Came,
    Key,
    Move,
    Tick,
    Waiting,
    number_of,
)
from kafka_pubsub.errors import InvariantViolated

__all__ = ["ASIDE", "Router"]

#: The log of ingest among the sources; tier k is the source k + 1.
_INGEST = 0
#: Bytes, or a head behind all heads.
_NO_LIMIT = 1 << 63
_NEVER = (_NO_LIMIT, 0, 0)
#: Bytes that are set aside, and homes for which something is: their marks must fit into the text of a commit.
ASIDE, _HOMES = 16 * 1024 * 1024, 50


class Router:
    """A partition of ingest and of all tiers."""

    def __init__(
        self,
        start: RouterStart,
        unit: int = UNIT,
        keep: int = KEEP,
        pace: TickPace = TICK_PACE,
        pause: int = PAUSE,
        aside: int = ASIDE,
    ) -> None:
        self._unit, self._aside_room = unit, aside
        #: When the next tick is wanted.
        self.ticks = Ticks(pace)
        self.ingest = Ingest(start.ingest.position, start.ingest.time or 0, unit, len(start.tiers), keep)
        self.tiers = [Tier(each.position, end) for each, end in zip(start.tiers, start.ends, strict=True)]
        #: The key of the last message that went home.
        self.mark: Key = start.ingest.mark
        #: The same of the homes for which messages were set aside, by number.
        self.behind: dict[int, Key] = {home: (due, offset) for home, due, offset in start.ingest.behind}
        # Of each source: below this position all was handled once.
        self._handled = [start.ingest.handled, *(each.handled for each in start.tiers)]
        # A heap of the heads that are known: key and source.
        self._heads: list[tuple[int, int, int]] = []
        self._memory = Memory(len(self._handled))
        # Bytes that the `take` that runs may still write.
        self._room = _NO_LIMIT
        # Of each source the progress that was last returned; None: none was.
        self._last_progress: list[IngestProgress | Progress | None] = [start.ingest, *start.tiers]
        for source in start.unstored:
            self._last_progress[source] = None
        #: Which messages share their key with other partitions; None: none, and the commits say nothing for those.
        self.shares: Callable[[Waiting], bool] | None = None
        #: Those go home only before this time: more may be due earlier in other partitions.
        self.only_before = _NO_LIMIT
        #: The time that this log has to reach for those; 0: none.
        self.others_at = 0
        #: How many partitions the caller knows of, which the commits say.
        self.partitions = 0
        # Nothing above this key may be handled by the `take` that runs.
        self._limit: Key = _NEVER[:2]
        # Which messages may not go home, says the caller of the `take` that runs.
        self._holds: Callable[[Waiting], bool] = _hold_none
        #: Whether the last `take` ended at a message that may not go home now and found no room.
        self.held = False
        self._unwritten = Unwritten(pause)
        # Of each source the progress when nothing was unwritten.
        self._settled: list[IngestProgress | Progress] = [start.ingest, *start.tiers]

    # -- reading -------------------------------------------------------------------------------------------------

    def receive_ingest(self, records: Sequence[Came | Tick], now: int) -> None:
        """Takes messages and ticks; look at `ingest.seek` afterwards.

        `now` is by a clock of milliseconds that is never set, and that knows nothing of the brokers' clocks.
        """
        empty = not self.ingest.arrived
        self.ingest.receive(records)
        if empty and self.ingest.arrived:
            heappush(self._heads, (*self.ingest.arrived[0][:2], _INGEST))
        self.ticks.follow(self.ingest.stamp, self.ingest.read, now)

    def receive_tier(self, number: int, records: Sequence[Waiting]) -> None:
        """Takes records of a tier."""
        tier = self.tiers[number]
        empty = not tier.buffer
        tier.receive(records)
        if tier.fresh:
            self._find_heads()
        elif empty and tier.buffer:
            heappush(self._heads, (*tier.buffer[0][:2], number + 1))

    def reach_tier(self, number: int, position: int) -> None:
        """Nothing of a tier below the position is left to be read."""
        self.tiers[number].reach(position)
        if self.tiers[number].fresh:
            self._find_heads()

    # -- deciding ------------------------------------------------------------------------------------------------

    @property
    def time(self) -> int:
        """The time, as far as the log says."""
        return self.ingest.time

    @property
    def resting(self) -> int:
        """How many messages wait in memory."""
        return len(self._memory)

    @property
    def waits_for_homes(self) -> bool:
        """Whether something is due that may not go home now."""
        return self.held or bool(self._memory.aside)

    @property
    def ready(self) -> bool:
        """Whether `take` would do anything."""
        if self._unwritten.is_due(self.time):
            return True
        heads = [each[0][:2] for each in (self._heads, self._memory.heap) if each]
        if not heads or min(heads)[0] > self.time or min(heads) > self._bound():
            return False
        rested = self._memory.heap[:1]
        return not (
            rested and rested[0][:2] == min(heads) and rested[0][2] >= 0 and self._waits(rested[0][4])
        )

    def take(
        self, most: int, holds: Callable[[Waiting], bool] | None = None, room: int = _NO_LIMIT
    ) -> list[Move]:
        """Handles up to `most` things, and returns the records to write, in this order.

        Messages that may not go home now, by `holds`, are set aside, as far as there is room. The call ends when the
        bodies have `room` bytes (default: without a limit).
        """
        moves: list[Move] = []
        self._holds, self._room, self.held = holds or _hold_none, room, False
        for home, first in self._memory.firsts_aside():
            if first is None or not self._holds(first):
                self._memory.take_back(home)
        self._handle_all(most, moves)
        if self._unwritten.is_due(self.time):
            self._flush(moves)
        if self.behind:
            self._catch_up()
        return moves

    def _handle_all(self, most: int, moves: list[Move]) -> None:
        heads, memory, time = self._heads, self._memory.heap, self.time
        self._limit = self._bound()
        count = 0
        for _ in range(most):
            if count < len(moves):
                count += 1
                self._room -= len(moves[-1][1].record)
            if self._room <= 0:
                break
            head = heads[0] if heads else _NEVER
            if memory and memory[0] < head and not self._hides_message(head, memory[0]):
                due, offset, order, _, message = memory[0]
                if self._must_rest(memory[0]):
                    break
                if order < 0:
                    self._cancel((due, offset), moves)
                elif not self._is_held(message):
                    self._memory.end(self._memory.pop())
                    self._release((due, offset), message, moves)
                elif self._has_room(message):
                    self._set_aside(message, [self._memory.pop()])
                else:
                    self.held = True
                    break
            elif head[0] <= time and head[:2] <= self._limit:
                self._handle(head[2], self._take_head(head[2]), moves)
            else:
                break

    def _flush(self, moves: list[Move]) -> None:
        moves += [(TO_DEAD, each) for each in self._unwritten.flush(self.time)]
        back = self._memory.put_back()
        for number, tier in enumerate(self.tiers):
            moves += [(number, each) for each in tier.flush(back.get(number + 1, ()))]
        self._find_heads()

    def next_at(self) -> int | None:
        """When the next thing is to be handled; None: nothing waits here."""
        keys = [each[0] for each in (self._heads[:1], self._memory.heap[:1]) if each]
        times = [key[0] for key in keys]
        times += [tier.low[0] for tier in self.tiers if tier.unknown and tier.low[0] > self.time]
        times += [at] if (at := self._unwritten.due_at) is not None else []
        return min(times) if times else None

    def next_tick_at(self) -> int | None:
        """Returns when a tick is wanted, by the clock of all that has a `now`; None: not as things are, 0: at once."""
        if self.ingest.undated:
            return self.ticks.next_at(None)
        at = self.next_at()
        if at is not None and at <= self.time:
            return None
        if self.others_at > self.time:
            at = self.others_at if at is None else min(at, self.others_at)
        return None if at is None else self.ticks.next_at(at)

    def tick_wanted(self, now: int) -> bool:
        """Whether a tick is to be appended now; the caller appends it."""
        at = self.next_tick_at()
        if at is None or now < at:
            return False
        self.ticks.ask(now)
        return True

    def progress(self) -> dict[int, IngestProgress | Progress]:
        """The progress to commit now, of the sources whose progress changed since the last call."""
        found = {}
        for source, last in enumerate(self._last_progress):
            now = self._progress_now(source)
            if now != last:
                found[source] = self._last_progress[source] = now
        return found

    def last_ingest(self) -> IngestProgress | None:
        """Returns the progress of ingest that `progress` returned last; None: there was none."""
        said = self._last_progress[_INGEST]
        return said if isinstance(said, IngestProgress) else None

    # -- handling -----------------------------------------------------------------------------------------------

    def _home_before(self) -> int:
        """Returns the time before which all that was read is home; what is read later is due at `time` or after it."""
        first = [head[0] for head in self._heads[:1]]
        rested: list[list[Rested]] = [self._memory.heap, *self._memory.aside.values()]
        first += [some[0][0] for some in rested if some]
        return max(0, min(self._bound()[0], *first, _NO_LIMIT))

    def _bound(self) -> Key:
        """The lowest key that something may have that wasn't read yet."""
        return min((tier.low for tier in self.tiers if tier.unknown), default=_NEVER[:2])

    def _find_heads(self) -> None:
        heads = ((self._head_of(source), source) for source in range(len(self.tiers) + 1))
        self._heads = sorted((*head[:2], source) for head, source in heads if head is not None)

    def _head_of(self, source: int) -> Waiting | None:
        if source:
            return self.tiers[source - 1].head
        return self.ingest.arrived[0] if self.ingest.arrived else None

    def _take_head(self, source: int) -> Waiting:
        message = self.tiers[source - 1].take() if source else self.ingest.take()
        head = self._head_of(source)
        if head is not None:
            heapreplace(self._heads, (head[0], head[1], source))
            return message
        heappop(self._heads)
        if source != _INGEST and self.tiers[source - 1].unknown:
            self._limit = min(self._limit, self.tiers[source - 1].low)
        return message

    def _handle(self, source: int, message: Waiting, moves: list[Move]) -> None:
        """Its time has come to leave the log from which it was read."""
        position = message.position
        again = UNWRITTEN < position < self._handled[source]
        if not again:
            self._handled[source] = max(self._handled[source], position + 1)
        if message.home is None:
            if not again:
                self._unwritten.dead.append(message)
                self._unwritten.add(message)
        elif key_of(message) <= self._mark_of(message) or (again and message.left):
            return
        elif message.left:
            self._hop(message)
        elif again or message.target >= 0 or message.due > message.at or self._stays(message):
            self._memory.rest(source, message)
        else:
            self._release((message.due, message.offset), message, moves)

    def _hop(self, message: Waiting) -> None:
        at, offset, due, left, home, _, record, target = message
        tier = left.bit_length() - 1
        at += self._unit << tier
        self._room -= len(record)
        self._unwritten.add(message)
        left -= 1 << tier
        if self.tiers[tier].put(Waiting(at, offset, due, left, home, UNWRITTEN, record, target)):
            heappush(self._heads, (at, offset, tier + 1))

    def _hides_message(self, head: tuple[int, int, int], rested: Rested) -> bool:
        """Whether the head is a record of another program, before the message that a request is to cancel."""
        if rested[2] >= 0 or head[:2] != rested[:2]:
            return False
        found = self._head_of(head[2])
        return found is not None and found.home is None

    def _cancel(self, key: Key, moves: list[Move]) -> None:
        """Drops the message of this key with all requests to cancel it, or sets all of them aside."""
        memory = self._memory
        found = []
        while memory.heap and memory.heap[0][:3] == (*key, -1):
            found.append(memory.pop())
        if self._heads and self._heads[0][:2] == key:
            self._rest_if_due(self._heads[0][2], key)
        message = None
        if memory.heap and memory.heap[0][:2] == key:
            found.append(memory.pop())
            message = found[-1][4]
            if number_of(message.home or "") in memory.aside:
                self._set_aside(message, found)
                return
        for each in found:
            memory.end(each)
        if message is not None:
            self._pass(key, message)
            moves.append((TO_NOTHING, message))

    def _rest_if_due(self, source: int, key: Key) -> None:
        """Puts the head with this key into memory, if the message is due with that key and isn't home."""
        head = self._head_of(source)
        if head is not None and head.due == key[0] and self._mark_of(head) < key:
            message = self._take_head(source)
            self._handled[source] = max(self._handled[source], message.position + 1)
            self._memory.rest(source, message)

    def _release(self, key: Key, message: Waiting, moves: list[Move]) -> None:
        self._pass(key, message)
        moves.append((TO_HOME, message))

    # -- marks --------------------------------------------------------------------------------------------------

    def _pass(self, key: Key, message: Waiting) -> None:
        """A message of this key is home, or was cancelled."""
        self.mark = max(self.mark, key)
        if self.behind and (home := number_of(message.home or "")) in self.behind:
            self.behind[home] = key

    def _mark_of(self, message: Waiting) -> Key:
        """Returns up to which key the messages of its home are there; a request names no home."""
        if not self.behind:
            return self.mark
        if message.target >= 0:
            return min(self.mark, *self.behind.values())
        return self.behind.get(number_of(message.home or ""), self.mark)

    def _waits(self, message: Waiting) -> bool:
        return self.shares is not None and message.due >= self.only_before and self.shares(message)

    def _stays(self, message: Waiting) -> bool:
        return self._waits(message) or self._is_held(message)

    def _must_rest(self, first: Rested) -> bool:
        """Whether the first message in memory, or a request to cancel, has to stay there."""
        due, offset, order, _, message = first
        if due > self.time or (due, offset) > self._limit:
            return True
        # The head that isn't known may be the message of a request itself.
        return (due, offset) == self._limit if order < 0 else self._waits(message)

    def _is_held(self, message: Waiting) -> bool:
        aside = self._memory.aside
        return (bool(aside) and number_of(message.home or "") in aside) or self._holds(message)

    def _has_room(self, message: Waiting) -> bool:
        if self._memory.aside_size > self._aside_room:
            return False
        return len(self.behind) < _HOMES or number_of(message.home or "") in self.behind

    def _set_aside(self, message: Waiting, found: Sequence[Rested]) -> None:
        home = number_of(message.home or "")
        self.behind.setdefault(home, self.mark)
        self._memory.set_aside(home, found)

    def _catch_up(self) -> None:
        """Forgets the marks of homes of which nothing is left, or comes, that the mark of all would take for home."""
        firsts = [each[0][:2] for each in (self._heads, self._memory.heap) if each]
        if min(self._bound(), (self.time, self.ingest.position), *firsts) > self.mark:
            aside = self._memory.aside
            self.behind = {home: mark for home, mark in self.behind.items() if home in aside}

    def _next(self, source: int) -> int:
        return self.tiers[source - 1].next if source else self.ingest.position

    def _progress_now(self, source: int) -> IngestProgress | Progress:
        if not self._unwritten:
            position = self._memory.lowest(source, self._next(source))
            self._settled[source] = self._progress_of(source, position)
            return self._settled[source]
        said = self._settled[source]
        if not isinstance(said, IngestProgress):
            return said
        before, reached, known = self._step()
        behind = self._marks_behind()
        return said._replace(
            mark=self.mark, behind=behind, home_before=before, reached=reached, partitions=known
        )

    def _progress_of(self, source: int, position: int) -> IngestProgress | Progress:
        handled = max(self._handled[source], self._next(source))
        if source != _INGEST:
            return Progress(position, handled)
        time, behind = self._time_at(position), self._marks_behind()
        return IngestProgress(position, handled, self.mark, time, len(self.tiers), behind, *self._step())

    def _step(self) -> tuple[int, int, int]:
        """Returns what the commits say for others; times only if they share keys, or each tick would be a commit."""
        times = (0, 0) if self.shares is None else (self._home_before(), self.time)
        return *times, self.partitions

    def _time_at(self, position: int) -> int:
        """Returns the time at a position of ingest: if a message lies there, the time of its arrival."""
        rests = self._memory.left_at(_INGEST, position)
        if rests is not None:
            return rests
        arrived = self.ingest.arrived
        return arrived[0].at if arrived and arrived[0].position == position else self.ingest.time

    def _marks_behind(self) -> tuple[tuple[int, int, int], ...]:
        return tuple((home, *mark) for home, mark in sorted(self.behind.items()))

    def check(self) -> None:
        """Raises `InvariantViolated` if the router contradicts itself."""
        self.ingest.check()
        for tier in self.tiers:
            tier.check()
        heads, known = self._heads, sorted(self._heads)
        self._find_heads()
        if self._heads != known:
            raise InvariantViolated(f"the heads are {self._heads}, and {known} are known")
        self._heads = heads
        self._memory.check(afloat=bool(self._unwritten))


def _hold_none(message: Waiting) -> bool:
    return False
