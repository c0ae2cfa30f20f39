"""A world for a router: logs, clocks, restarts, and the naive account of the deliveries that must follow.

The router is the real core; the logs are lists. Times are small: a unit is 4 ms and there are 4 tiers, so that messages
pass several tiers within a run. Brokers stamp records of ingest by the leader's clock, which is wrong by
`MOST_SKEW` at most; routers have another clock, of which only the differences mean anything. `judge` derives from the
log of ingest alone when each message is due, and how many tiers it must pass.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, cast

from kafka_pubsub.delays.progress import (
    IngestProgress,
    Progress,
    RouterStart,
    parse_ingest,
    parse_tier,
)
from kafka_pubsub.delays.router import ASIDE, Router
from kafka_pubsub.delays.ticks import TickPace
from kafka_pubsub.delays.values import TO_DEAD, TO_HOME, TO_NOTHING, Came, Key, Move, Tick, Waiting

__all__ = ["LITTLE_ROOM", "LONGEST", "TIERS", "UNIT", "DelayWorld"]

UNIT, TIERS = 4, 4
LONGEST = UNIT * 2**TIERS - 1
#: By how much a broker's clock may be wrong.
MOST_SKEW = 60
#: The longest pause between two ticks, after which a tick counts as lost, and the most that is no lateness.
PACE = TickPace(beat=20, lost=6)
MOMENT = PACE.lost + 2
#: Between two flushes into tiers.
PAUSE = 3
#: So many ticks in succession may leave time as before; so many may be stored and not be readable.
IDLE_TICKS, UNREAD_TICKS = 9, 3
#: Bytes of messages without a stamp that the router keeps: three messages.
KEEP = 2000
#: Bytes that a router with little room sets aside: two messages.
LITTLE_ROOM = 1000
#: A record of a tier that another program wrote, and its offset among the dead letters.
STRAY, STRAY_OFFSET = "stray", -7


@dataclasses.dataclass
class Body:
    """A record as far as the core looks at it, and the number of tiers that it has passed."""

    hops: int = 0

    def __len__(self) -> int:
        return 1


def body(hops: int = 0) -> Any:
    return Body(hops)


#: The body of each stray record of a tier.
stray = body()


def home_of(offset: int) -> str:
    """The home of the message that came in at an offset."""
    return f"home{offset % 2}"


class DelayWorld:
    """The logs, the committed positions, and the router that lives now."""

    def __init__(self, *, in_step: bool = False, room: int = ASIDE) -> None:
        #: The brokers' clocks are right.
        self.in_step = in_step
        #: Bytes that routers set aside.
        self.room = room
        #: By how much a message may be late where clocks are right.
        self.moment = MOMENT
        self.now = 1000
        self.skew = 0
        #: Somebody has set ingest to CreateTime, so that brokers stamp nothing.
        self.unstamped = False
        self.ingest: list[Came | Tick] = []
        #: Transactions of publishers: offsets of records that can't be read yet, and of those that were aborted.
        self.open: set[int] = set()
        self.aborted: set[int] = set()
        # Ticks that routers have made and that aren't stored.
        self.made: list[Router] = []
        self._idle_ticks = 0
        # When each message was published, by offset.
        self.published: dict[int, int] = {}
        # When all was well again; None: not yet.
        self.healed: int | None = None
        # A record of a tier, None for a transaction's marker, or `STRAY`.
        self.tiers: list[list[Waiting | str | None]] = [[] for _ in range(TIERS)]
        # Due, offset, the log's time at the release, hops.
        self.home: list[tuple[int, int, int, int]] = []
        # By offset: the time of the release.
        self.released: dict[int, int] = {}
        self.dead: list[int] = []
        #: Records of other programs in tiers.
        self.strays = 0
        #: Messages that were cancelled.
        self.dropped: list[int] = []
        #: Messages with an even offset, which are for the same home, may not go there now.
        self.holding = False
        #: After so many questions that changes; None: it doesn't.
        self.turns_after: int | None = None
        self._held_ever = False
        self.texts = [(0, "")] * (TIERS + 1)
        self._clock_offset = 0
        self._ticks_of: dict[Router, set[int]] = {}
        self.restart()

    # -- the world's steps --------------------------------------------------------------------------------------

    def set_clock(self, skew: int) -> None:
        self.skew = 0 if self.in_step else skew

    def stamp(self) -> int | None:
        return None if self.unstamped else max(0, self.now + self.skew)

    def publish_after(self, delay: int, state: str = "committed") -> None:
        self._publish(None, delay, state)

    def publish_at(self, due: int, state: str = "committed") -> None:
        self._publish(due, None, state)

    def _publish(self, due: int | None, delay: int | None, state: str) -> None:
        offset = len(self.ingest)
        self.published[offset] = self.now
        self.ingest.append(Came(offset, home_of(offset), due, delay, body(), stamp=self.stamp()))
        if state == "open":
            self.open.add(offset)
        elif state == "aborted":
            self.aborted.add(offset)

    def end_transactions(self, *, abort: bool) -> None:
        """The publishers' open transactions end."""
        if abort:
            self.aborted |= self.open
        self.open.clear()

    def publish_cancel(self, choice: int, wrong: int = 0) -> None:
        """Asks to cancel a message whose due time a client can know; `wrong` misses that time."""
        known = list(self.due_times())
        if known:
            due, target = known[choice % len(known)]
            self.ingest.append(
                Came(len(self.ingest), "", due + wrong, None, body(), target, stamp=self.stamp())
            )

    def publish_stray(self) -> None:
        self.ingest.append(Came(len(self.ingest), None, None, None, body(), stamp=self.stamp()))

    def write_stray(self, tier: int) -> None:
        """Another program writes to a tier."""
        self.tiers[tier].append(STRAY)
        self.strays += 1

    def write_tick(self) -> None:
        """As a router does that was replaced."""
        self.ingest.append(Tick(len(self.ingest), self.stamp()))

    def store_tick(self, *, answered: bool = True) -> None:
        """A tick is stored that was made before, perhaps by a router that was replaced."""
        if not self.made:
            return
        maker, stamp, offset = self.made.pop(0), self.stamp(), len(self.ingest)
        self.ingest.append(Tick(offset, stamp))
        if answered and stamp is not None and maker is self.router:
            # If the first record of a restart shows this at once, the tick was idle all the same.
            self._idle_ticks = 0 if stamp > maker.time else self._idle_ticks + 1
            assert self._idle_ticks <= IDLE_TICKS, "ticks that leave time where it is"
            maker.ticks.answer(offset, stamp, self.clock())
        unread = [each for each in self.ingest[self.router.ingest.read :] if isinstance(each, Tick)]
        hidden = [each for each in unread if each.offset in self._told(maker)]
        # Ticks of a router that was replaced lie above the records that the next router has read by then.
        assert maker is not self.router or len(hidden) <= UNREAD_TICKS, "ticks that can't be read"

    def _told(self, maker: Router) -> set[int]:
        """Returns the offsets of the ticks of the router that lives now, this tick included."""
        self._ticks_of = {maker: self._ticks_of.get(maker, set()) | {len(self.ingest) - 1}}
        return self._ticks_of[maker]

    def lose_tick(self) -> None:
        """A tick is lost on its way."""
        if self.made:
            self.made.pop(0)

    def clock(self) -> int:
        """The clock of the router that lives now."""
        return self.now + self._clock_offset

    def restart(self) -> None:
        """The router dies; another begins at the committed positions."""
        (at, text), *others = self.texts
        ingest = parse_ingest(at, text)
        tiers = [parse_tier(position, said) for position, said in others]
        self.fetched = [ingest.position, *(each.position for each in tiers)]
        unstored = [source for source, (_, said) in enumerate(self.texts) if not said]
        start = RouterStart(ingest, tiers, [len(tier) for tier in self.tiers], unstored)
        self.router = Router(start, UNIT, KEEP, PACE, PAUSE, self.room)
        self._clock_offset += 12_345

    # -- the router's steps -------------------------------------------------------------------------------------

    def fetch(self, source: int, most: int) -> bool:
        """Reads on in one of the logs; False if there was nothing to read."""
        log: list[Any] = self.tiers[source - 1] if source else self.ingest[: min(self.open, default=None)]
        at = self.fetched[source]
        found = log[at : at + most]
        self.fetched[source] += len(found)
        if source:
            tier = self.router.tiers[source - 1]
            self.router.receive_tier(source - 1, list(self._of_tier(tier.low, at, found)))
            self.router.reach_tier(source - 1, self.fetched[source])
        else:
            read = [each for each in found if each.offset not in self.aborted]
            self.router.receive_ingest(read, self.clock())
            if self.router.ingest.seek is not None:
                self.fetched[0] = self.router.ingest.seek
                self.router.ingest.sought()
        self.router.check()
        return bool(found)

    def _of_tier(self, low: Key, at: int, found: list[Any]) -> Iterator[Waiting]:
        """Yields the records of a tier as its reader tells them to the router; markers aren't records."""
        for position, each in enumerate(found, at):
            if each == STRAY:
                yield Waiting(low[0], low[1], 0, 0, None, position, stray)
            elif each is not None:
                yield each
                low = each[:2]

    def tick(self) -> bool:
        """Makes a tick if the router wants a tick."""
        wanted = self.router.tick_wanted(self.clock())
        if wanted:
            self.made.append(self.router)
        return wanted

    def transact(self, most: int, outcome: str = "stored") -> bool:
        """Handles up to `most` things; `outcome`: stored, aborted, or unanswered. False: there was nothing to do."""
        turns = self.turns_after is not None
        moves = self.router.take(most, self._holds)
        if not turns:
            wrong = [to for to, message in moves if to == TO_HOME and self._holds(message)]
            assert not wrong, "it may not go home"
        assert self.room < ASIDE or not self.router.held, "one home holds up the others"
        progress = self.router.progress()
        self.router.check()
        if not moves and not progress:
            return False
        if outcome != "aborted":
            self._store(moves, progress)
        if outcome != "stored":
            self.restart()
        return bool(moves)

    def _holds(self, message: Waiting) -> bool:
        if self.turns_after is not None:
            self.turns_after -= 1
            if self.turns_after < 0:
                self.holding, self.turns_after = not self.holding, None
        held = self.holding and message.home == home_of(0)
        self._held_ever = self._held_ever or held
        return held

    def _store(self, moves: list[Move], progress: dict[int, IngestProgress | Progress]) -> None:
        written = set()
        for to, message in moves:
            if to == TO_DEAD:
                self.dead.append(STRAY_OFFSET if message.record is stray else message.offset)
            elif to == TO_NOTHING:
                self.dropped.append(message.offset)
            elif to == TO_HOME:
                hops = cast(Body, message.record).hops
                self.home.append((message.due, message.offset, self.router.time, hops))
                self.released[message.offset] = self.now
            else:
                hops = cast(Body, message.record).hops + 1
                log = self.tiers[to]
                log.append(message._replace(position=len(log), record=body(hops)))
                written.add(to)
        for tier in written:
            self.tiers[tier].append(None)
        for source, said in progress.items():
            text = said.text("writer") if isinstance(said, IngestProgress) else said.text()
            self.texts[source] = said.position, text

    def settle(self) -> None:
        """Lets time pass until everything is home."""
        self.holding = self.unstamped = False
        self.turns_after = None
        self.skew = 0
        self.end_transactions(abort=False)
        if self.healed is None and self.now % 2:  # only a new router goes on, after a while
            self.now += self.now % 50
            self.made.clear()
            self.restart()
        self.healed = self.healed or self.now
        for _ in range(MOST_SKEW + UNIT * 2 ** (TIERS + 1) + 3 * PACE.beat):
            busy = True
            while busy:
                busy = sum(self.fetch(source, 100) for source in range(TIERS + 1)) > 0
                busy |= self.transact(100)
                busy |= self.tick()
                self.store_tick()
            self.now += 1

    # -- the deliveries that must follow -------------------------------------------------------------------------

    def judge(self) -> None:
        """Once, in order, never early, by the right number of tiers."""
        self.settle()
        self.settle()
        offsets = [offset for _, offset, _, _ in self.home]
        twice = sorted({each for each in offsets if offsets.count(each) > 1})
        assert not twice, f"twice: {twice[:5]}"
        strays = [each.offset for each in self._messages() if each.home is None]
        dead = [each for each in self.dead if each != STRAY_OFFSET]
        assert dead == strays, f"dead letters {self.dead}, strays {strays}"
        assert len(self.dead) - len(dead) == self.strays, "a stray record of a tier"
        cancelled = self.cancelled()
        assert sorted(self.dropped) == sorted(cancelled), f"dropped {self.dropped}, cancelled {cancelled}"
        messages = {each.offset for each in self._messages() if each.home} - cancelled
        assert set(offsets) == messages, f"lost: {sorted(messages - set(offsets))[:5]}"
        for home in range(2 if self._held_ever else 1):
            keys = [each[:2] for each in self.home if not self._held_ever or each[1] % 2 == home]
            assert keys == sorted(keys), "out of order"
        assert not self.router.behind, "a home is behind for ever"
        for tier in self.tiers:
            passed = [each.offset for each in tier if isinstance(each, Waiting)]
            assert len(set(passed)) == len(passed), "a message was in a tier twice"
        self._judge_times({offset: each for each in self.home for offset in each[1:2]})

    def _messages(self) -> Iterator[Came]:
        """Yields the readable records of ingest, without ticks."""
        for each in self.ingest[: min(self.open, default=None)]:
            if isinstance(each, Came) and each.offset not in self.aborted:
                yield each

    def due_times(self) -> Iterator[tuple[int, int]]:
        """Yields when each message is due, and its offset; messages without a stamp behind them aren't known."""
        for time, record in self._arrivals():
            if record.home:
                wanted = time + record.delay if record.delay is not None else record.due
                yield max(time, wanted or 0), record.offset

    def cancelled(self) -> set[int]:
        """Returns the messages that were cancelled before they were due."""
        due = {offset: at for at, offset in self.due_times()}
        asked = [(time, each) for time, each in self._arrivals() if each.target >= 0]
        return {each.target for time, each in asked if due[each.target] == each.due and each.due > time}

    def _arrivals(self) -> Iterator[tuple[int, Came]]:
        time, waiting = 0, list[Came]()
        for record in self.ingest[: min(self.open, default=None)]:
            if record.offset in self.aborted:
                continue
            if isinstance(record, Came):
                waiting.append(record)
            if record.stamp is not None:
                time = max(time, record.stamp)
                yield from ((time, each) for each in waiting)
                waiting = []

    def _judge_times(self, home: dict[int, tuple[int, int, int, int]]) -> None:
        time_of = {each.offset: time for time, each in self._arrivals()}
        for wanted, offset in self.due_times():
            if offset in self.dropped:
                continue
            time = time_of[offset]
            due, _, released, hops = home[offset]
            assert due == wanted, f"{offset} is due at {wanted}, not {due}"
            assert released >= wanted, f"{offset} came early"
            came = cast(Came, self.ingest[offset])
            apart = 0 if self.in_step else MOST_SKEW
            soonest = came.due if came.delay is None else self.published[offset] + came.delay
            assert self.released[offset] >= (soonest or 0) - 2 * apart, f"{offset} came early by the clock"
            if self.in_step and came.delay is not None and came.stamp is not None:
                assert wanted == self.published[offset] + came.delay, f"{offset}: its delay began late"
            if self.healed is not None and self.released[offset] > self.healed:
                late = self.released[offset] - max(self.healed, wanted)
                assert late <= self.moment + (0 if self.in_step else PACE.beat), f"{offset} is late by {late}"
            units = min((wanted - time) // UNIT, 2**TIERS - 1)
            # In a backlog a message leaves some tiers before it is written there.
            assert hops <= units.bit_count(), f"{hops} hops for {wanted - time}"
