"""Which lane of a partition goes next: by priority, then by the time at which messages came in, and no lane starves.

    merge.add(lane, position)                      each lane of the partition; also later
    merge.receive(lane, [(offset, time, message)]) what was read; merge.reach(lane, position) if there was nothing
    merge.offer(lane, offset)                      with ordering keys: the first message that can be delivered now
    choice = merge.next(now)                       Choice(lane, most, below, aged) or None; changes nothing
    merge.take(count, now)                         the first `count` messages of that lane begin; or
    merge.took(offsets, now)                       these messages of that lane begin, up to `most`, below `below`
    if merge.wants_ends(now):                      ask for the ends of all lanes in one request:
        request = merge.ask(now)
        merge.ends(request, {lane: end})           the answer; leave out a lane whose leader doesn't answer
    merge.wants_read(now)                          lanes that must be read on, even if their buffer is full

A caller without ordering keys calls neither `offer` nor `took`. A caller with keys calls `offer` for a lane after
each change of what can be delivered: after `receive`, `took`, `put_back`, and when a key becomes free. It offers `DUE`
while a message is due for its redelivery, else the offset of the first message whose key is free, else None. A message
is *held* from `receive` until it begins. `put_back` takes back messages that were taken and haven't begun after all.

Theory. Kafka reads each lane by itself, so an empty buffer doesn't say that the lane is empty. A lane counts as empty
only by an end that was asked for after the message was read for which it steps aside: whatever came in before that
message is below that end. A choice holds for a run of messages, so that lanes cost nothing for each message.

Rules
1. The highest priority with a head goes first; `priority` says which of its lanes.
2. A choice waits while a lane of its own or a higher priority holds nothing and isn't known to be empty. A lane whose
   messages are all blocked, or that is paused, holds up no other.
3. `next` changes nothing. `take` and `took` move the chosen lane only. A choice holds until something else is called,
   or until time ages a head; a caller asks again before each run.
4. A priority that was passed over for `bound` seconds may go out of turn (`ageing`), but it holds up no higher one:
   while the order of its own lanes isn't known, the others go on in turn. Without a `bound` priorities are strict.
5. An answer without a lane makes that lane count as empty: its messages can't be read now.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar

from kafka_pubsub.core.lanes.ageing import BOUND, NEVER, SHARE, Ageing
from kafka_pubsub.core.lanes.names import Lane
from kafka_pubsub.core.lanes.priority import Choice, Missing, Pick, Priority, Sent
from kafka_pubsub.core.lanes.read_ahead import DUE, FIRST, ReadAhead
from kafka_pubsub.errors import InvariantViolated

__all__ = ["BOUND", "DUE", "FIRST", "RUN", "SHARE", "Choice", "LaneMerge"]

T = TypeVar("T")

#: The most messages of one choice; ends are asked for when fewer than `SPARE` of its lane may go before an answer.
RUN, SPARE = 1000, 500
#: Seconds after which ends are asked for again if a choice still waits: a leader may be gone.
PATIENCE = 1.0
#: Above every priority, and newer than every request.
_ABOVE_ALL = 2**63 - 1


class LaneMerge(Generic[T]):
    """The lanes of one partition.

    `sent` tells the publisher of a message and its number there, or None; it is called only where times are equal.
    `bound`: seconds after which a head that is passed over is aged; None: never.
    """

    def __init__(self, sent: Callable[[T], Sent | None], bound: float | None = BOUND) -> None:
        self.ageing = Ageing(bound)
        self._sent = sent
        self._lanes: dict[Lane, ReadAhead[T]] = {}
        # By number, the highest first.
        self._priorities: dict[int, Priority[T]] = {}
        #: How many requests for ends were made.
        self.requests = 0
        self._unanswered: int | None = None
        self._asked_at = -NEVER
        # The choice as last found, up to when time can't change it, and what was missing for it.
        self._choice: Choice | None = None
        self._until = -NEVER
        #: The priority that goes in turn, also where an aged one was chosen.
        self.turn = -1
        self._missing = Missing()
        # Whether messages wait that were read after the last request.
        self._uncovered = False

    # -- lanes --------------------------------------------------------------------------------------------------

    def add(self, lane: Lane, position: int) -> None:
        """Adds a lane, which is read from this position on."""
        if lane in self._lanes:
            raise InvariantViolated(f"{lane} was added twice")
        added: ReadAhead[T] = ReadAhead(lane, position, self.requests)
        self._lanes[lane] = added
        found = self._priorities.setdefault(lane.priority, Priority(lane.priority, self._sent))
        self._priorities = dict(sorted(self._priorities.items(), reverse=True))
        found.put(lane, added)
        self._change(lane)

    def forget(self, lane: Lane) -> None:
        """Forgets a lane and what it holds; unknown ones are no error."""
        if self._lanes.pop(lane, None) is None:
            return
        self._change(lane)
        priority = self._priorities[lane.priority]
        priority.put(lane, None)
        if not priority.lanes:
            del self._priorities[lane.priority]
            self.ageing.forget(lane.priority)

    def reset(self) -> dict[Lane, int]:
        """Drops all that is held and forgets the ends; returns the offset from which each lane is to be read again.

        That is the first offset that hasn't begun; later ones may have begun out of order.
        """
        self._until, self._unanswered = -NEVER, None
        for priority in self._priorities.values():
            priority.unsettle()
        for lane in self._lanes.values():
            lane.asked_before = self.requests
        return {name: lane.reset() for name, lane in self._lanes.items()}

    @property
    def lanes(self) -> list[Lane]:
        """The lanes: the highest priority first, the durable one before the transient one."""
        return [each.lane for priority in self._priorities.values() for each in priority.lanes]

    def held(self, lane: Lane) -> int:
        """Returns how many messages of the lane were read and haven't begun."""
        return len(self._lanes[lane].offsets)

    def position(self, lane: Lane) -> int:
        """Returns the offset below which the lane was read."""
        return self._lanes[lane].position

    # -- what comes in ------------------------------------------------------------------------------------------

    def receive(self, lane: Lane, entries: Sequence[tuple[int, int, T]]) -> None:
        """Takes messages that were read, in the order of the log: offset, the broker's time in milliseconds, message.

        What was read before is left out.
        """
        time = self._lanes[lane].receive(entries, self.requests)
        self._priorities[lane.priority].come(time)
        self._change(lane)

    def put_back(self, lane: Lane, entries: Sequence[tuple[int, int, T]]) -> None:
        """Takes back messages that were taken and haven't begun."""
        self._lanes[lane].put_back(entries)
        self._priorities[lane.priority].unsettle()
        self._change(lane)

    def drop(self, lane: Lane, offsets: Sequence[int]) -> None:
        """Forgets messages that are held: they go another way, and don't begin from here."""
        self._lanes[lane].take_these(offsets)
        self._priorities[lane.priority].unsettle()
        self._change(lane)

    def reach(self, lane: Lane, position: int) -> None:
        """The lane was read up to this offset, markers included."""
        self._lanes[lane].reach(position)
        self._change(lane)

    def offer(self, lane: Lane, offset: int | None) -> None:
        """Says which message of the lane can be delivered first.

        An offset, None for none of those held, `DUE` for one before all held, or `FIRST`, as at the beginning.
        """
        self._lanes[lane].offer(offset)
        self._change(lane)

    def pause(self, lane: Lane) -> None:
        """Says that nothing of the lane can be delivered, whatever it holds; it holds up no other then."""
        self._lanes[lane].pause(paused=True)
        self._change(lane)

    def resume(self, lane: Lane) -> None:
        """Ends a pause."""
        self._lanes[lane].pause(paused=False)
        self._change(lane)

    # -- ends ---------------------------------------------------------------------------------------------------

    def wants_ends(self, now: float) -> bool:
        """Whether to ask for the ends of all lanes now; urgent if there is no choice, else soon enough for the next.

        False while a request is unanswered, for a second; then its answer is given up.
        """
        self.next(now)
        missing = self._missing
        if (missing.ends or missing.lanes) and now >= self._asked_at + PATIENCE:
            return True
        return self._unanswered is None and (missing.ends or self._uncovered)

    def ask(self, now: float) -> int:
        """Notes that the ends are asked for now; returns the number of the request."""
        self.requests += 1
        self._unanswered, self._asked_at = self.requests, now
        return self.requests

    def ends(self, request: int, ends: Mapping[Lane, int]) -> None:
        """Takes the answer to a request: the offset after the last readable message of each lane.

        A lane that is left out counts as empty: its leader doesn't answer. Older answers than the last are ignored.
        """
        if self._unanswered is not None and request >= self._unanswered:
            self._unanswered = None
        for name, lane in self._lanes.items():
            if request > max(lane.request, lane.asked_before):
                lane.end, lane.request = ends.get(name, 0), request
                self._priorities[name.priority].answered()
                self._change(name)

    # -- choices ------------------------------------------------------------------------------------------------

    def next(self, now: float) -> Choice | None:
        """Returns the lane that goes next, and how far; None: nothing can be delivered, or more must be known first."""
        if now >= self._until:
            self._choice = self._choose(now)
        return self._choice

    def has_next(self, now: float) -> bool:
        """Whether a lane can go now."""
        return self.next(now) is not None

    def wants_read(self, now: float) -> list[Lane]:
        """Returns the lanes of which more must be read before the next message can be chosen."""
        self.next(now)
        return list(self._missing.lanes)

    def read_ahead_to(self, number: int) -> int:
        """Returns the lowest priority that goes soon: all between `number` and it were read to their ends."""
        for lower, priority in self._priorities.items():
            if lower <= number:
                number = lower
                if not all(lane.reached for lane in priority.lanes):
                    break
        return number

    def wakeup_at(self) -> float | None:
        """Returns when time alone may change what `next` or `wants_ends` said last; None: never."""
        waits = self._missing.ends or bool(self._missing.lanes)
        at = min(self._until, self._asked_at + PATIENCE if waits else NEVER)
        return None if at == NEVER else at

    def take(self, count: int, now: float) -> None:
        """The first `count` messages of the chosen lane begin; `took` is for a lane of which another one is offered."""
        choice = self._chosen(count, now)
        self._lanes[choice.lane].take(count)
        self._count(choice, count, now)
        if count < choice.most and not choice.aged:
            # What is known is the same, so the run goes on.
            self._choice = Choice(choice.lane, choice.most - count, choice.below)
            self.ageing.aged(now)
            self._until = self.ageing.next_at
        else:
            self._change(choice.lane)

    def took(self, offsets: Sequence[int], now: float, *, due: int = 0) -> None:
        """These messages of the chosen lane begin, and `due` ones that it doesn't hold, which are delivered again."""
        count = len(offsets) + due
        choice = self._chosen(count, now)
        if offsets and max(offsets) >= choice.below:
            raise InvariantViolated(f"offset {max(offsets)} was taken, and {choice} was chosen")
        self._lanes[choice.lane].take_these(offsets)
        self._count(choice, count, now)
        self._change(choice.lane)

    def _chosen(self, count: int, now: float) -> Choice:
        choice = self.next(now)
        if choice is None or not 0 < count <= choice.most:
            raise InvariantViolated(f"{count} messages were taken, and {choice} was chosen")
        return choice

    def _count(self, choice: Choice, count: int, now: float) -> None:
        """Counts a choice that was carried out (rule 4)."""
        number, ageing = choice.lane.priority, self.ageing
        if choice.aged:
            ageing.go_out_of_turn(number, now)
        else:
            ageing.go_in_turn(number, count)
        self.pass_over(number, now)

    def pass_over(self, number: int, now: float) -> None:
        """A message of this priority went, here or in another partition, before the heads of lower ones."""
        for lower, priority in self._priorities.items():
            if lower < number and lower not in self.ageing.passed and priority.has_head:
                self.ageing.pass_over(lower, now)
                self._until = -NEVER

    def _choose(self, now: float) -> Choice | None:
        self._missing, self._uncovered = Missing(), False
        ripe = self.ageing.aged(now)
        self._until = self.ageing.next_at
        first = self._in_turn(self._missing)
        self.turn = top = _ABOVE_ALL if first is None else first.lane.lane.priority
        aged = [each for each in ripe if each < top and self._priorities[each].has_head]
        most = (self.ageing.share_left or SHARE) if aged else RUN
        if aged and not self.ageing.share_left:
            for number in aged:
                pick = self._priorities[number].pick(self._missing)
                if pick is not None and pick.lane.head is not None:
                    return Choice(pick.lane.lane, 1, pick.lane.head + 1, aged=True)
        if first is None:
            return None
        lane, below, request = first
        if request != _ABOVE_ALL and (covered := lane.covered_by(request)) < below:
            below, self._uncovered = covered, lane.count_below(covered) < SPARE
        if lane.time >= 0:
            most = min(most, lane.count_below(below))
        return Choice(lane.lane, most, below)

    def _in_turn(self, missing: Missing) -> Pick[T] | None:
        """Returns what goes first by priority (rules 1 and 2)."""
        request = _ABOVE_ALL
        for number, priority in self._priorities.items():
            if not priority.has_head:
                empty = priority.empty_since(missing)
                if empty is None:
                    if not any(each.has_head for lower, each in self._priorities.items() if lower < number):
                        missing.clear()
                    return None
                request = min(request, empty)
                continue
            pick = priority.pick(missing)
            if pick is None or request == _ABOVE_ALL:
                return pick
            if request <= pick.lane.head_requests:
                missing.ends = True
                return None
            return pick if pick.request < request else Pick(pick.lane, pick.below, request)
        return None

    def _change(self, lane: Lane) -> None:
        """The next choice is found anew."""
        self._until = -NEVER
        if lane.priority in self.ageing.passed and self._priorities[lane.priority].drained:
            self.ageing.forget(lane.priority)

    def check(self) -> None:
        """Raises `InvariantViolated` if it contradicts itself."""
        for priority in self._priorities.values():
            priority.check()
        numbers = list(self._priorities)
        if numbers != sorted(set(numbers), reverse=True):
            raise InvariantViolated(f"priorities are out of order: {numbers}")
        if sorted(self.lanes) != sorted(self._lanes):
            raise InvariantViolated(f"the lanes are {self.lanes} by priority, and {sorted(self._lanes)}")
        self.ageing.check()
        if any(lane.request > self.requests for lane in self._lanes.values()):
            raise InvariantViolated("an answer came to a request that wasn't made")
        choice = self._choice if self._until > -NEVER else None
        if choice is not None and self._lanes[choice.lane].head is None:
            raise InvariantViolated(f"{choice} was chosen, and has no head")
