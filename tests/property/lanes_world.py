"""A world for a merge: logs of lanes, a reader that fetches now and then, and the naive account of the right order.

The merge is the real core; the logs are lists. Each message names its publisher's last message of the other class; in a
copy, by an offset of another log. `expected` says by plain lists which lane must go next, from the same knowledge.
`_judge` looks at the logs themselves, which the reader never sees as a whole: I9 must hold of all that was visible,
whatever the merge knew.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kafka_pubsub.lane_names import Lane
from kafka_pubsub.lanes.headers import Name, Sent
from kafka_pubsub.lanes.merge import LaneMerge
from tests.property.lanes_logs import Message, Side

__all__ = ["BOUND", "SHARE", "LaneWorld", "Message"]

BOUND, SHARE = 5.0, 10
#: Messages of a lane that are read ahead, unless the merge wants more.
WINDOW = 6


class LaneWorld:
    """Logs, reader, and the chosen messages."""

    def __init__(
        self,
        lanes: list[Lane],
        *,
        keyed: bool = False,
        bound: float | None = BOUND,
        copied: bool = False,
        skews: Sequence[int] = (0,),
    ) -> None:
        self.merge: LaneMerge[Message] = LaneMerge(self._sent, bound)
        self.keyed, self.bound, self.copied = keyed, bound, copied
        #: How far each leader's clock is ahead.
        self.skews = skews
        #: Whether a leader lost its tail, so that offsets were given twice.
        self.lost = False
        self.last: dict[tuple[int, Lane], tuple[int, int]] = {}
        self.now = 0.0
        self.clock = 100
        #: Whether the broker's clock has stepped back: then times don't say which message came in first.
        self.stepped = False
        self.sides: dict[Lane, Side] = {}
        self.requests = self.came = 0
        self.sequences = [0, 0, 0]
        # The request on its way, and the ends when it was made.
        self.unanswered: tuple[int, dict[Lane, int], int] | None = None
        self.visible = 0
        #: The messages that have begun, by the time of coming in; the newest last.
        self.begun: dict[int, Message] = {}
        # Keys of each lane that are with a callback.
        self.busy: set[tuple[Lane, int]] = set()
        self.passed: dict[int, tuple[float, int]] = {}
        self.out_of_turn: list[bool] = []
        self.since_aged = SHARE
        self.alone: dict[int, int] = {}
        #: How many messages began as soon as they were read.
        self.gone_through = 0
        for lane in lanes:
            self.add(lane)

    # -- the world's steps --------------------------------------------------------------------------------------

    def add(self, lane: Lane) -> None:
        if lane not in self.sides:
            self.sides[lane] = Side(self.requests)
            self.merge.add(lane, 0, str(lane))
            self._drain(lane)
            self.merge.check()

    def publish(self, lane: Lane, publisher: int, number: int, key: int | None) -> None:
        """`publisher` below 0: a program that says nothing of itself."""
        log = self.sides[lane].log
        self.came += 1
        if publisher >= 0:
            self.sequences[publisher] += 1
        sequence = self.sequences[publisher] if publisher >= 0 else 0
        key = key if self.keyed else None
        other = self.last.get((publisher, Lane(lane.priority, not lane.durable)))
        time = self.clock + self.skews[sorted(self.sides).index(lane) % len(self.skews)]
        log.append(Message(lane, len(log), time, publisher, sequence, self.came, number, key, other))
        if publisher >= 0:
            self.last[publisher, lane] = sequence, len(log) - 1

    def _sent(self, message: Message) -> Sent | None:
        if message.publisher < 0:
            return None
        name = None
        if message.other is not None:
            other = Lane(message.lane.priority, not message.lane.durable)
            sequence, offset = message.other
            name = Name(sequence, offset, str(other))
            if self.copied:
                name = Name(sequence, offset * 7 % 5, "elsewhere")
        return Sent(str(message.publisher), message.sequence, name)

    def lose_tail(self, lane: Lane) -> None:
        """A transient lane's leader loses messages that no reader has seen; later messages take these offsets."""
        side = self.sides[lane]
        if not lane.durable and side.position < len(side.log):
            self.lost = True
            del side.log[side.position :]

    def mark(self, lane: Lane) -> None:
        self.sides[lane].log.append(None)

    def step_back(self, by: int) -> None:
        self.clock, self.stepped = self.clock - by, True

    def lose_leader(self, lane: Lane, *, gone: bool) -> None:
        self.sides[lane].gone = gone

    def pause(self, lane: Lane, *, paused: bool) -> None:
        self.sides[lane].paused = paused
        (self.merge.pause if paused or self._full(lane) else self.merge.resume)(lane)
        self._drain(lane)

    def fetch(self, lane: Lane, most: int, *, through: bool = False) -> bool:
        """Reads on, unless the buffer is full; False if there was nothing to read. `through`: it begins if it may."""
        side = self.sides[lane]
        if len(side.held) >= WINDOW and lane not in self.merge.wants_read(self.now):
            return False
        found = [] if side.gone else side.log[side.position : side.position + most]
        if not found:
            return False
        messages = [message for message in found if message is not None]
        side.held += messages
        side.position += len(found)
        if through and messages and self._go_through(lane, messages):
            return True
        self.merge.receive(lane, [(message.offset, message.time, message) for message in messages])
        self.merge.reach(lane, side.position)
        self._changed(lane)
        return True

    def _go_through(self, lane: Lane, messages: Sequence[Message]) -> bool:
        """Begins the message that was just read, if it passes."""
        side = self.sides[lane]
        free = all(self.deliverable(message) for message in messages)
        if not free or not self.merge.passes(lane, messages[-1].offset, self.now):
            return False
        for message in messages:
            exact, reason = self.expected()
            assert exact == lane, f"{lane} passed, {exact} goes next ({reason})"
            self._judge(message, aged=False)
            side.held.remove(message)
            self._count(lane, aged=False)
        self.merge.pass_through(lane, side.position, len(messages), self.now)
        self.gone_through += len(messages)
        self._changed(lane)
        return True

    def ask(self) -> bool:
        """Asks for the ends if the merge wants them; an earlier request that isn't answered never is."""
        wanted = self.merge.wants_ends(self.now)
        if wanted:
            self.requests += 1
            assert self.merge.ask(self.now) == self.requests
            for lane, side in self.sides.items():
                end = side.end if lane.durable and side.end else 0
                side.sure[self.requests] = max(side.position, end, *side.sure.values())
            ends = {lane: len(side.log) for lane, side in self.sides.items() if not side.gone}
            self.unanswered = (self.requests, ends, self.came)
        return wanted

    def answer(self) -> None:
        if self.unanswered is None:
            return
        request, ends, came = self.unanswered
        self.unanswered, self.visible = None, came
        self.merge.ends(request, ends)
        for lane, side in self.sides.items():
            if side.asked < request:
                side.end, side.request = ends.get(lane, 0), request
                side.left_out = lane not in ends
            self._drain(lane)
        self.merge.check()

    def finish(self, at: int) -> None:
        """A callback ends, and its key is free."""
        if self.busy:
            lane, key = sorted(self.busy)[at % len(self.busy)]
            self.busy.remove((lane, key))
            self._changed(lane)

    def _changed(self, lane: Lane) -> None:
        side, head = self.sides[lane], self.head(lane, offered=True)
        self.merge.offer(lane, None if head is None else head.offset)
        (self.merge.pause if side.paused or self._full(lane) else self.merge.resume)(lane)
        self._drain(lane)
        self.merge.check()

    def _full(self, lane: Lane) -> bool:
        """Whether a lane is full, and nothing of it can be delivered."""
        return len(self.sides[lane].held) >= WINDOW and self.head(lane, offered=True) is None

    # -- choices ------------------------------------------------------------------------------------------------

    def deliverable(self, message: Message) -> bool:
        return message.key is None or (message.lane, message.key) not in self.busy

    def head(self, lane: Lane, *, offered: bool = False) -> Message | None:
        side = self.sides[lane]
        if side.paused and not offered:
            return None
        return next((message for message in side.held if self.deliverable(message)), None)

    def choose(self, most: int) -> bool:
        """Begins up to `most` messages of the next run; False: there is none."""
        choice = self.merge.next(self.now)
        assert self.merge.next(self.now) == choice, "looking twice changes the choice"
        self.merge.check()
        if choice is None:
            self._stuck()
            return False
        lane, side = choice.lane, self.sides[choice.lane]
        run: list[Message] = []
        for message in [each for each in side.held if self.deliverable(each)]:
            if len(run) == min(most, choice.most) or message.offset >= choice.below:
                break
            if not self.deliverable(message):
                continue
            exact, reason = self.expected()
            # Of a copy, messages that a run has taken are no longer known to have been read.
            forgotten = self.copied and exact is None
            assert self.keyed or forgotten or exact == lane, (
                f"{lane} was chosen, {exact} goes next ({reason})"
            )
            self._judge(message, aged=choice.aged)
            side.held.remove(message)
            self._count(lane, aged=choice.aged)
            run.append(message)
            if message.key is not None:
                self.busy.add((lane, message.key))
        assert run, "nothing of the run can be delivered"
        self.merge.took([message.offset for message in run], self.now)
        self._changed(lane)
        return True

    def put_back(self) -> None:
        """The message that began last comes back, and its key is free."""
        if self.begun:
            _, message = self.begun.popitem()
            side = self.sides[message.lane]
            if message.offset < side.position:
                side.held = sorted([*side.held, message], key=lambda each: each.offset)
                self.merge.put_back(message.lane, [(message.offset, message.time, message)])
            if message.key is not None:
                self.busy.discard((message.lane, message.key))
            self._changed(message.lane)

    def _stuck(self) -> None:
        """If nothing is chosen, nothing may go by the reader's knowledge; the merge then names its needs."""
        exact, reason = self.expected()
        blurred = (
            self.keyed and self.stepped
        )  # a message that stepped back and has begun may have lowered times
        assert exact is None or blurred, f"nothing was chosen, {exact} goes next ({reason})"
        if any(self.head(lane) for lane in self.sides):
            wants = self.merge.wants_ends(self.now) or self.merge.wants_read(self.now)
            assert wants or self.unanswered, "a message can be delivered, isn't chosen, and nothing is wanted"

    def _count(self, lane: Lane, *, aged: bool) -> None:
        """Keeps the books of ageing."""
        if aged:
            self.since_aged = 1
            self.passed[lane.priority] = (self.now - BOUND, len(self.begun))
        else:
            self.since_aged = min(SHARE, self.since_aged + 1)
            self.passed.pop(lane.priority, None)
        for other in self.sides:
            if other.priority < lane.priority and self.head(other):
                self.passed.setdefault(other.priority, (self.now, 0))

    def _drain(self, lane: Lane) -> None:
        """A priority that is empty, as far as its ends are known, is passed over no more."""
        mine = [side for each, side in self.sides.items() if each.priority == lane.priority]
        if not any(side.held or (side.end is not None and side.position < side.end) for side in mine):
            self.passed.pop(lane.priority, None)

    def expected(self) -> tuple[Lane | None, str]:
        """Returns the lane that must go next, by the reader's knowledge, and why."""
        turn = self._in_turn()
        top = 10 if turn is None else turn.priority
        due = sorted(
            (since, served, -number)
            for number, (since, served) in self.passed.items()
            if number < top and self.bound is not None and since + self.bound <= self.now
        )
        if self.since_aged >= SHARE:
            for _, _, number in due:
                first, _ = self._first(-number)
                if first is not None:
                    return first, "aged"
        return turn, "in turn"

    def _in_turn(self) -> Lane | None:
        empty = 2**62
        for number in sorted({lane.priority for lane in self.sides}, reverse=True):
            first, request = self._first(number)
            if request is None:
                return None
            empty = min(empty, request)
            if first is not None:
                head = self.head(first)
                assert head is not None
                return first if self.sides[first].uncovered(head.offset) < empty else None
        return None

    def _first(self, number: int) -> tuple[Lane | None, int | None]:
        """Returns which lane of a priority goes first, and by which request others are empty; None: not known."""
        lanes = [lane for lane in (Lane(number, True), Lane(number, False)) if lane in self.sides]
        heads = [(lane, head) for lane in lanes if (head := self.head(lane)) is not None]
        empty = [
            side
            for lane in lanes
            if not (side := self.sides[lane]).paused and self.head(lane) is None and not self._full(lane)
        ]
        if not all(side.reached() for side in empty):
            return None, None if len(heads) < 2 else 2**62
        request = min((side.request for side in empty), default=2**62)
        if len(heads) < 2:
            if heads and self.sides[heads[0][0]].uncovered(heads[0][1].offset) >= request:
                return None, None
            return heads[0][0] if heads else None, request
        (durable, a), (transient, b) = heads
        if self._must_read(a, transient) or self._must_read(b, durable):
            return None, None
        behind = self._is_behind(a, b), self._is_behind(b, a)
        if any(behind):
            return transient if behind == (True, False) else durable, request
        times = {lane: list(self._times(lane)) for lane in lanes}
        first, second = (times[lane][self.sides[lane].held.index(m)] for lane, m in heads)
        if first != second:
            return durable if first < second else transient, request
        return durable, request

    def _is_behind(self, message: Message, head: Message) -> bool:
        """Whether a message names the other class's head, or a message behind it."""
        if message.other is None:
            return False
        sequence, offset = message.other
        if not self.copied:
            return head.offset <= offset
        held = [each for each in self.sides[head.lane].held if each.offset >= head.offset]
        return any(each.publisher == message.publisher and each.sequence <= sequence for each in held)

    def _must_read(self, message: Message, other: Lane) -> bool:
        """Whether more of the other class must be read to know behind which messages a message of a copy goes."""
        side = self.sides[other]
        if not self.copied or message.other is None or side.reached():
            return False
        return not any(
            each.publisher == message.publisher and each.sequence >= message.other[0] for each in side.held
        )

    def _times(self, lane: Lane) -> Iterator[int]:
        """Yields the times that count: none is later than those behind it."""
        held = self.sides[lane].held
        for at in range(len(held)):
            yield min(message.time for message in held[at:])

    # -- rules --------------------------------------------------------------------------------------------------

    def _waiting(self, message: Message) -> Iterator[Message]:
        """Yields the messages that are visible beside a message that begins now, and can be delivered."""
        visible = max(self.visible, message.came)
        for side in self.sides.values():
            if side.paused:
                continue
            held, hidden = {each.offset for each in side.held}, side.gone or side.left_out
            stuck = any(map(self.deliverable, side.held)) or len(held) >= WINDOW
            for each in side.log:
                if each is None or each is message or each.came in self.begun or not self.deliverable(each):
                    continue
                # Unread messages count, unless their leader is gone, or others of their lane go first or fill it.
                if each.offset in held or (each.came <= visible and not stuck and not hidden):
                    yield each

    def _judge(self, message: Message, *, aged: bool) -> None:
        assert message.came not in self.begun, "begun twice"
        waiting = [each for each in self._waiting(message) if each.offset >= 0]
        mine = [each for each in waiting if each.lane.priority == message.lane.priority]
        for other in mine:
            mine_too = other.publisher == message.publisher >= 0
            assert not (mine_too and other.sequence < message.sequence), f"{other} was sent before {message}"
        if not (self.stepped or self.copied or self.lost or any(self.skews)):
            for other in mine:
                assert not other.came_before(message), f"{other} came in before {message}"
        for other in mine:
            if other.lane == message.lane:
                assert other.offset > message.offset, "out of the lane's order"
        higher = [each for each in waiting if each.lane.priority > message.lane.priority]
        if aged:
            since = self.passed.get(message.lane.priority, (self.now, 0))[0]
            assert self.bound is not None, "strict priorities, and one went out of turn"
            assert since + BOUND <= self.now, "it went out of turn, and isn't aged"
        else:
            assert not higher, f"{higher[0]} waits, and {message} goes in turn"
        self.out_of_turn.append(aged and bool(higher))
        assert sum(self.out_of_turn[-SHARE:]) <= 1, "aged lanes take more than their share"
        self._judge_bound(message)
        self.begun[message.came] = message

    def _judge_bound(self, message: Message) -> None:
        """The only aged priority waits for no more than `SHARE` messages, once it is known which of its lanes goes."""
        if self.bound is None or (
            self.keyed and self.stepped
        ):  # times may be lower than they look, as in `_stuck`
            return
        old = {
            number
            for number, (since, _) in self.passed.items()
            if since + BOUND <= self.now and any(self.head(e) for e in self.sides if e.priority == number)
        }
        for number in {lane.priority for lane in self.sides}:
            if old == {number} and message.lane.priority > number and self._first(number)[0] is not None:
                self.alone[number] = self.alone.get(number, 0) + 1
                assert self.alone[number] <= SHARE, "an aged lane waits for too long"
            else:
                self.alone[number] = 0

    def settle(self) -> None:
        """Everything begins in the end, by what the merge wants alone; a leader that is gone holds up no other."""
        for lane in self.sides:
            self.pause(lane, paused=False)
        for gone in (True, False):
            for lane in self.sides:
                if not gone:
                    self.lose_leader(lane, gone=False)
            self._run_dry()
            left = [
                message
                for side in self.sides.values()
                for message in side.log
                if message is not None and message.came not in self.begun and not side.gone
            ]
            assert not left, f"{len(left)} messages never began"

    def _run_dry(self) -> None:
        quiet = 0
        while quiet < 3:
            self.now += 2.0
            busy = sum([self.fetch(lane, 3) for lane in self.sides]) > 0
            if self.ask():
                self.answer()
            busy |= self.choose(5)
            while self.busy:
                self.finish(0)
            quiet = 0 if busy else quiet + 1
