"""A world for one router: logs, clocks, restarts, and the naive account of what must come of them.

The router is the real core; the logs are lists. Times are small: a unit is 4 ms and there are 4 tiers, so that messages
pass several tiers within a run. `judge` derives from the log of ingest alone when each message is due, and how many
tiers it must pass.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, cast

from kafka_pubsub.core.delays.progress import IngestProgress, Progress, parse_ingest, parse_tier
from kafka_pubsub.core.delays.router import Router, RouterStart
from kafka_pubsub.core.delays.values import TO_DEAD, TO_HOME, TO_NOTHING, Came, Key, Move, Tick, Waiting

__all__ = ["LONGEST", "TIERS", "UNIT", "DelayWorld"]

UNIT, TIERS = 4, 4
LONGEST = UNIT * 2**TIERS - 1
#: By how much a router's clock may lag.
MOST_SKEW = 6
#: Bytes of messages without a tick that the router keeps: three messages.
KEEP = 2000
#: A record of a tier that another program wrote, and its offset among the dead letters.
STRAY, STRAY_OFFSET = "stray", -7


@dataclasses.dataclass
class Body:
    """A record as far as the core looks at it, and how many tiers it has passed."""

    hops: int = 0

    def __len__(self) -> int:
        return 1


def body(hops: int = 0) -> Any:
    return Body(hops)


#: The body of each stray record of a tier.
stray = body()


class DelayWorld:
    """The logs, what is committed, and the router that lives now."""

    def __init__(self) -> None:
        self.now = 0
        self.skew = 0
        self.ingest: list[Came | Tick] = []
        # Ticks that were made and aren't stored: time, and how far their router had read.
        self.made: list[tuple[int, int]] = []
        # When each message with a relative delay was published, by offset.
        self.published: dict[int, int] = {}
        # A record of a tier, None for a transaction's marker, or `STRAY`.
        self.tiers: list[list[Waiting | str | None]] = [[] for _ in range(TIERS)]
        # Due, offset, the time at which it was released, hops.
        self.home: list[tuple[int, int, int, int]] = []
        self.dead: list[int] = []
        #: Records of other programs in tiers.
        self.strays = 0
        #: Messages that were cancelled.
        self.dropped: list[int] = []
        #: Messages with an even offset may not go home now.
        self.holding = False
        self.texts = [(0, "")] * (TIERS + 1)
        self.restart()

    # -- what the world does ------------------------------------------------------------------------------------

    def publish_after(self, delay: int) -> None:
        self.published[len(self.ingest)] = self.now
        self.ingest.append(Came(len(self.ingest), "home", None, delay, body()))

    def publish_at(self, due: int) -> None:
        self.ingest.append(Came(len(self.ingest), "home", due, None, body()))

    def publish_cancel(self, choice: int, wrong: int = 0) -> None:
        """Asks to cancel a message of which a client can know when it is due; `wrong` misses that time."""
        known = list(self.due_times())
        if known:
            due, target = known[choice % len(known)]
            self.ingest.append(Came(len(self.ingest), "", due + wrong, None, body(), target))

    def publish_stray(self) -> None:
        self.ingest.append(Came(len(self.ingest), None, None, None, body()))

    def write_stray(self, tier: int) -> None:
        """Another program writes to a tier."""
        self.tiers[tier].append(STRAY)
        self.strays += 1

    def write_tick(self, time: int) -> None:
        """As a router does that was replaced, or whose clock is wrong."""
        self.ingest.append(Tick(len(self.ingest), max(0, time), len(self.ingest)))

    def make_tick(self, time: int) -> None:
        """A router makes a tick that is stored later."""
        self.made.append((max(0, time), self.router.ingest.read))

    def store_tick(self) -> None:
        """A tick is stored that was made long ago."""
        if self.made:
            self.ingest.append(Tick(len(self.ingest), *self.made.pop(0)))

    def restart(self) -> None:
        """The router dies; another one begins at what is committed."""
        (at, text), *others = self.texts
        ingest = parse_ingest(at, text)
        tiers = [parse_tier(position, said) for position, said in others]
        self.fetched = [ingest.position, *(each.position for each in tiers)]
        unstored = [source for source, (_, said) in enumerate(self.texts) if not said]
        start = RouterStart(ingest, tiers, [len(tier) for tier in self.tiers], unstored)
        self.router = Router(start, UNIT, KEEP)

    # -- what the router does -----------------------------------------------------------------------------------

    def fetch(self, source: int, most: int) -> bool:
        """Reads on in one of the logs; False if there was nothing to read."""
        log: list[Any] = self.tiers[source - 1] if source else self.ingest
        at = self.fetched[source]
        found = log[at : at + most]
        self.fetched[source] += len(found)
        if source:
            tier = self.router.tiers[source - 1]
            self.router.receive_tier(source - 1, list(self._of_tier(tier.low, at, found)))
            tier.reach(self.fetched[source])
        else:
            self.router.receive_ingest(found)
            if self.router.ingest.seek is not None:
                self.fetched[0] = self.router.ingest.seek
                self.router.ingest.sought()
        self.router.check()
        return bool(found)

    def _of_tier(self, low: Key, at: int, found: list[Any]) -> Iterator[Waiting]:
        """Yields what was read of a tier as its reader tells it to the router; markers aren't records."""
        for position, each in enumerate(found, at):
            if each == STRAY:
                yield Waiting(low[0], low[1], 0, 0, None, position, stray)
            elif each is not None:
                yield each
                low = each[:2]

    def tick(self) -> bool:
        """Appends a tick if the router wants one."""
        clock = max(0, self.now + self.skew)
        wanted = self.router.tick_wanted(clock)
        if wanted:
            self.ingest.append(Tick(len(self.ingest), clock, self.router.ingest.read))
        return wanted

    def transact(self, most: int, outcome: str = "stored") -> bool:
        """Handles up to `most` things; `outcome`: stored, aborted, or unanswered. False: there was nothing to do."""
        moves = self.router.take(most, self._holds)
        assert not any(to == TO_HOME and self._holds(message) for to, message in moves), "it may not go home"
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
        return self.holding and not message.offset % 2

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
        self.holding = False
        for _ in range(UNIT * 2 ** (TIERS + 1) + 40):
            self.now += 1
            busy = True
            while busy:
                busy = sum(self.fetch(source, 100) for source in range(TIERS + 1)) > 0
                busy |= self.transact(100)
                busy |= self.tick()
        # A clock that lags must still come to the end.
        self.now += 1200

    # -- what must come of it -----------------------------------------------------------------------------------

    def judge(self) -> None:
        """Once, in order, never early, by the right number of tiers."""
        self.settle()
        self.settle()
        offsets = [offset for _, offset, _, _ in self.home]
        twice = sorted({each for each in offsets if offsets.count(each) > 1})
        assert not twice, f"twice: {twice[:5]}"
        strays = [each.offset for each in self.ingest if isinstance(each, Came) and each.home is None]
        dead = [each for each in self.dead if each != STRAY_OFFSET]
        assert dead == strays, f"dead letters {self.dead}, strays {strays}"
        assert len(self.dead) - len(dead) == self.strays, "a stray record of a tier"
        cancelled = self.cancelled()
        assert sorted(self.dropped) == sorted(cancelled), f"dropped {self.dropped}, cancelled {cancelled}"
        messages = {each.offset for each in self.ingest if isinstance(each, Came) and each.home} - cancelled
        assert set(offsets) == messages, f"lost: {sorted(messages - set(offsets))[:5]}"
        keys = [each[:2] for each in self.home]
        assert keys == sorted(keys), "out of order"
        for tier in self.tiers:
            passed = [each.offset for each in tier if isinstance(each, Waiting)]
            assert len(set(passed)) == len(passed), "a message was in a tier twice"
        self._judge_times({offset: each for each in self.home for offset in each[1:2]})

    def due_times(self) -> Iterator[tuple[int, int]]:
        """Yields when each message is due, and its offset; those without a tick behind them aren't known."""
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
        time, waiting = 0, []
        for record in self.ingest:
            if isinstance(record, Came):
                waiting.append(record)
            else:
                time = max(time, record.time)
                yield from ((time, each) for each in waiting if each.offset < record.read)
                waiting = [each for each in waiting if each.offset >= record.read]

    def _judge_times(self, home: dict[int, tuple[int, int, int, int]]) -> None:
        time_of = {each.offset: time for time, each in self._arrivals()}
        for wanted, offset in self.due_times():
            if offset in self.dropped:
                continue
            time = time_of[offset]
            due, _, released, hops = home[offset]
            assert due == wanted, f"{offset} is due at {wanted}, not {due}"
            assert released >= wanted, f"{offset} came early"
            delay = cast(Came, self.ingest[offset]).delay
            if delay is not None:
                assert wanted >= self.published[offset] - MOST_SKEW + delay, (
                    f"{offset} came early by the clock"
                )
            assert hops == ((wanted - time) // UNIT).bit_count(), f"{hops} hops for {wanted - time}"
