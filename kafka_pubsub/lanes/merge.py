"""Which lane of a partition goes next: by priority, then by the time at which messages came in, and no lane starves.

    merge.add(lane, position, log)                 each lane of the partition; also later
    merge.receive(lane, [(offset, time, message)]) new messages; merge.reach(lane, position) if there were none
    merge.offer(lane, offset, lift)                the first message that can be delivered now
    choice = merge.next(now)                       Choice(lane, most, below, aged) or None; changes nothing
    merge.took(offsets, now)                       these messages of that lane begin, up to `most`, below `below`
    if merge.wants_ends(now):                      ask for the ends of all lanes in one request:
        request = merge.ask(now)
        merge.ends(request, {lane: end})           the answer; leave out a lane whose leader doesn't answer
    merge.wants_read(now)                          lanes that must be read on, even if their buffer is full

A caller calls `offer` for a lane after each change of its deliverable messages: after `receive`, `took`, `put_back`,
and when a key becomes free. The offer is `DUE` while a message is due for its redelivery, else the offset of the first
message whose key is free, else None. A message is *held* from `receive` until it begins. `put_back` takes back messages
that were taken and haven't begun after all.

Theory. Kafka reads each lane by itself, so an empty buffer doesn't say that the lane is empty.
Before a message may pass an empty lane, the lane's end must have been asked for after that message came in: all
messages that came in before lie below that end. A message has come in if it was read, or if it is below an end that was
answered before. A choice holds for a run of messages, so that lanes cost nothing for each message.

Rules
1. The highest priority with a head goes first; `priority` says which of its lanes.
2. A choice waits while a lane of its own or a higher priority offers nothing and wasn't read to an end that was asked
   for after the chosen message was read. A paused lane holds up no other, nor does a lane that may not begin yet,
   nor a lane full of messages that can't begin.
3. `next` changes nothing. `took` moves the chosen lane only. A choice holds until something else is called,
   or until time ages a head; a caller asks again before each run.
4. A priority that was passed over for `bound` seconds may go out of turn (`ageing`), but it holds up no higher
   priority: while the order of its own lanes isn't known, the others go on in turn. Without a `bound` priorities are
   strict.
5. Lifting: a message for which a message of a higher priority waits goes with that priority, behind all of its messages
   that may begin. The lifted message doesn't count as a turn of its own priority.
6. An answer without a lane makes that lane count as empty: its messages can't be read now.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from kafka_pubsub.errors import InvariantViolated
from kafka_pubsub.lane_names import AGEING, Lane
from kafka_pubsub.lanes.ageing import NEVER, SHARE
from kafka_pubsub.lanes.headers import Sent
from kafka_pubsub.lanes.held_lanes import HeldLanes
from kafka_pubsub.lanes.passing import SPARE, Passing, may_pass
from kafka_pubsub.lanes.priority import Choice, Missing, Pick
from kafka_pubsub.lanes.read_ahead import DUE

__all__ = ["DUE", "NEAR", "RUN", "SHARE", "Choice", "LaneMerge"]

T = TypeVar("T")

#: The most messages of a choice.
RUN = 1000
#: Messages of a lane that aren't read yet, from which on the next lane is read ahead, too: its first fetch takes time.
NEAR = 2000
#: Seconds after which ends are asked for again if a choice still waits: a leader may be gone.
PATIENCE = 1.0
#: Above every priority, and newer than every request.
_ABOVE_ALL = 2**63 - 1


class LaneMerge(HeldLanes[T]):
    """Chooses among the lanes of a partition (`HeldLanes`)."""

    def __init__(self, sent: Callable[[T], Sent | None], bound: float | None = AGEING) -> None:
        super().__init__(sent, bound)
        self._unanswered: int | None = None
        self._asked_at = -NEVER
        # The last choice, and the lanes that were missing for it.
        self._choice: Choice | None = None
        #: The priority that goes in turn, also where an aged priority was chosen.
        self.turn = -1
        self._missing = Missing()
        # Whether messages wait that the last request doesn't cover.
        self._uncovered = False
        self._passing: Passing[T] = Passing()

    # -- ends ---------------------------------------------------------------------------------------------------

    def wants_ends(self, now: float) -> bool:
        """Whether to ask for the ends of all lanes now; urgent if there is no choice, else soon enough for the next.

        False while a request is unanswered, for a second; then its answer is given up.
        """
        self.next(now)
        missing = self._missing
        if (missing.ends or missing.lanes) and now >= self._asked_at + PATIENCE:
            return True
        return self._unanswered is None and (
            missing.ends or self._uncovered or self._passing.wants_ends(now - self._asked_at)
        )

    def ask(self, now: float) -> int:
        """Notes that the ends are asked for now; returns the number of the request."""
        self.requests += 1
        self._unanswered, self._asked_at = self.requests, now
        self._passing.asked()
        for lane in self._lanes.values():
            lane.ask(self.requests)
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
                self._change(name)

    # -- choices ------------------------------------------------------------------------------------------------

    def next(self, now: float) -> Choice | None:
        """Returns the lane that goes next, and how far; None: nothing can be delivered, or more must be known first."""
        if now >= self._until:
            self._choice = self._choose(now)
        return self._choice

    def wants_read(self, now: float) -> list[Lane]:
        """Returns the lanes of which more must be read before the next message can be chosen."""
        self.next(now)
        return list(self._missing.lanes)

    def read_ahead_to(self, number: int) -> int:
        """Returns the lowest priority that goes soon: the first below `number` that wasn't read to its end.

        Or the priority below that, if it was read nearly to its end.
        """
        near = False
        for lower, priority in self._priorities.items():
            if lower > number:
                continue
            number = lower
            if near:
                break
            if not all(lane.reached for lane in priority.lanes):
                near = all(
                    lane.end is not None and lane.end <= lane.position + NEAR for lane in priority.lanes
                )
                if not near:
                    break
        return number

    @property
    def waits(self) -> bool:
        """Whether the choice that was looked for last waits for something."""
        return self._missing.ends or bool(self._missing.lanes)

    def wakeup_at(self) -> float | None:
        """Returns when time alone may change the last answer of `next` or `wants_ends`; None: never."""
        until = self._until if self._until > -NEVER else NEVER  # a change, not time, has changed the answer
        at = min(until, self._asked_at + PATIENCE if self.waits else NEVER)
        return None if at == NEVER else at

    def took(self, offsets: Sequence[int], now: float, *, due: int = 0) -> None:
        """These messages of the chosen lane begin; `due` ones, which it doesn't hold, are delivered again."""
        count = len(offsets) + due
        choice = self._chosen(count, now)
        if offsets and max(offsets) >= choice.below:
            raise InvariantViolated(f"offset {max(offsets)} was taken, and {choice} was chosen")
        self._count(choice, count, now)  # first: a lifted message passes over the head of its own lane
        self._lanes[choice.lane].take_these(offsets)
        self._change(choice.lane)

    def passes(self, lane: Lane, last: int, now: float) -> bool:
        """Whether messages of a lane that holds none, up to the offset `last`, may go as soon as they are read."""
        return not self.ageing.aged(now) and may_pass(self._lanes[lane], last, self._priorities)

    def pass_through(self, lane: Lane, position: int, count: int, now: float) -> None:
        """So many messages below this position went as soon as they were read."""
        side = self._lanes[lane]
        side.reach(position)
        self._passing.went(side)
        self.ageing.go_in_turn(lane.priority, count)
        self.pass_over(lane.priority, now)
        self._change(lane)

    def _chosen(self, count: int, now: float) -> Choice:
        choice = self.next(now)
        if choice is None or not 0 < count <= choice.most:
            raise InvariantViolated(f"{count} messages were taken, and {choice} was chosen")
        return choice

    def _count(self, choice: Choice, count: int, now: float) -> None:
        """Counts a choice that was carried out (rules 4 and 5)."""
        number = choice.lane.priority if choice.aged else self.turn
        if choice.aged:
            self.ageing.go_out_of_turn(number, now)
        else:
            self.ageing.go_in_turn(number, count)
        self.pass_over(number, now)

    def pass_over(self, number: int, now: float) -> None:
        """A message of this priority went, here or in another partition, before the heads of lower ones."""
        for lower, priority in self._priorities.items():
            if lower < number and lower not in self.ageing.passed and priority.has_head:
                self.ageing.pass_over(lower, now)
                self._until = -NEVER

    def _choose(self, now: float) -> Choice | None:
        self._missing, self._uncovered = Missing(), False
        old = self.ageing.aged(now)
        self._until = self.ageing.next_at
        first = self._in_turn(self._missing)
        self.turn = top = _ABOVE_ALL if first is None else first.priority
        aged = [each for each in old if each < top and self._priorities[each].has_head]
        most = (self.ageing.share_left or SHARE) if aged else RUN
        if aged and not self.ageing.share_left:
            for number in aged:
                pick = self._priorities[number].pick(self._missing)
                if pick is not None and pick.lane.head is not None:
                    return Choice(pick.lane.lane, 1, pick.lane.head + 1, aged=True)
        if first is None:
            return None
        lane, below, request, lift = first
        if lift is not None:
            return Choice(lane.lane, 1, below, key=lift.key)
        if request != _ABOVE_ALL and (covered := lane.covered_by(request)) < below:
            below, self._uncovered = covered, lane.count_below(covered) < SPARE
        if lane.time >= 0:
            most = min(most, lane.count_below(below))
        return Choice(lane.lane, most, below)

    def _in_turn(self, missing: Missing) -> Pick[T] | None:
        """Returns the lane that goes first by priority (rules 1 and 2)."""
        request = _ABOVE_ALL
        lifted = {
            lane.lift.priority: Pick(lane, lane.lift.offset + 1, _ABOVE_ALL, lane.lift)
            for lane in self._lanes.values()
            if lane.lift is not None and not lane.paused
        }
        for number, priority in self._priorities.items():
            if not priority.has_head:
                empty = priority.empty_since(missing)
                if empty is None:
                    if not any(each.has_head for lower, each in self._priorities.items() if lower < number):
                        missing.clear()
                    return None
                request = min(request, empty)
                if number not in lifted:
                    continue
            pick = priority.pick(missing) if priority.has_head else lifted[number]
            if pick is None or request == _ABOVE_ALL:
                return pick
            if request <= pick.requests:
                missing.ends = True
                return None
            return pick if pick.request < request else pick._replace(request=request)
        return None

    def check(self) -> None:
        """Raises `InvariantViolated` if the merge contradicts itself."""
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
