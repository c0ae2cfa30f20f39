"""The rules of the lanes, each broken on purpose: the world must notice.

The first nine are the mutations of the protocol's model; the others break the core's additions: runs, answers that
come late or not at all, keys that block, clocks that step back, and ageing by time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from kafka_pubsub.lane_names import AGEING
from kafka_pubsub.lanes import merge
from kafka_pubsub.lanes.ageing import Ageing
from kafka_pubsub.lanes.merge import Choice, LaneMerge
from kafka_pubsub.lanes.priority import Missing, Pick, Priority
from kafka_pubsub.lanes.read_ahead import ReadAhead

__all__ = ["MUTATIONS"]

Patch = pytest.MonkeyPatch
Read = ReadAhead[Any]

_FAR = 2**62


def old_ends(patch: Patch) -> None:
    """A lane counts as empty by an end that was asked for before the chosen head had come in."""
    patch.setattr(ReadAhead, "head_requests", property(lambda self: 0))
    patch.setattr(ReadAhead, "covered_by", lambda self, request: _FAR)


def own_time(patch: Patch) -> None:
    """The two classes of a priority are merged by time alone."""
    patch.setattr(Priority, "_is_behind", lambda *arguments: False)


def any_log(patch: Patch) -> None:
    """An offset counts though the log is another log."""

    def behind(self: Priority[Any], lane: Read, at: int, other: Read, head: int) -> bool:
        sent = self._sent(lane.messages[at])
        return sent is not None and sent.other is not None and other.offsets[head] <= sent.other.offset

    patch.setattr(Priority, "_is_behind", behind)


def both_wait(patch: Patch) -> None:
    """Heads that name each other's place both wait."""
    real = Priority.pick

    def pick(self: Priority[Any], missing: Missing) -> Pick[Any] | None:
        a, b = self.durable, self.transient
        both = [each for each in (a, b) if each is not None and each.head is not None and each.time >= 0]
        if len(both) == 2 and all(self._is_behind(x, x.index, y, y.index) for x, y in (both, reversed(both))):
            return None
        return real(self, missing)

    patch.setattr(Priority, "pick", pick)


def copy_unread(patch: Patch) -> None:
    """In a copy the other class isn't read on to find the messages behind which a message goes."""
    patch.setattr(Priority, "_is_unread", lambda *arguments: False)


def no_sequence(patch: Patch) -> None:
    """The two classes of a priority aren't merged by time: the durable class goes first."""
    real = Priority.pick

    def pick(self: Priority[Any], missing: Missing) -> Pick[Any] | None:
        lane = self.durable
        if (
            lane is not None
            and lane.head is not None
            and self.transient is not None
            and self.transient.offsets
        ):
            return Pick(lane, lane.head + 1, _FAR)
        return real(self, missing)

    patch.setattr(Priority, "pick", pick)


def no_ageing(patch: Patch) -> None:
    """Low lanes wait for ever."""
    patch.setattr(Ageing, "aged", lambda self, now: [])


def ageing_first(patch: Patch) -> None:
    """Aged lanes always go first."""
    patch.setattr(Ageing, "share_left", property(lambda self: 0))


def advance_all(patch: Patch) -> None:
    """A choice advances every lane."""
    real = LaneMerge._count

    def advance(self: LaneMerge[Any], choice: Choice, count: int, now: float) -> None:
        for lane, side in self._lanes.items():
            if lane != choice.lane and side.head in side.offsets[:1]:
                side.take_these(side.offsets[:1])
        real(self, choice, count, now)

    patch.setattr(LaneMerge, "_count", advance)


def peek_moves(patch: Patch) -> None:
    """`next` isn't idempotent."""
    real = LaneMerge.next

    def look(self: LaneMerge[Any], now: float) -> Choice | None:
        choice = real(self, now)
        if choice is not None and choice.most > 1:
            lane = self._lanes[choice.lane]
            lane.take_these(lane.offsets[:1])
        return choice

    patch.setattr(LaneMerge, "next", look)


def uncovered_run(patch: Patch) -> None:
    """A run goes on past the messages that had come in when the ends were asked for."""
    patch.setattr(ReadAhead, "covered_by", lambda self, request: _FAR)


def uncut_run(patch: Patch) -> None:
    """A run goes on past the other class's head."""
    patch.setattr(Priority, "_below", lambda self, lane, *rest: lane.position)


def sibling_unknown(patch: Patch) -> None:
    """The other class of the same priority needn't be known to be empty."""

    def pick(self: Priority[Any], lane: Read, missing: Missing) -> Pick[Any] | None:
        return None if lane.head is None else Pick(lane, lane.head + 1, _FAR)

    patch.setattr(Priority, "_pick_alone", pick)


def higher_unknown(patch: Patch) -> None:
    """A higher priority needn't be known to be empty."""
    real = Priority.empty_since

    def empty_since(self: Priority[Any], missing: Missing) -> int | None:
        return real(self, missing) if self.has_head else _FAR

    patch.setattr(Priority, "empty_since", empty_since)


def early_answer(patch: Patch) -> None:
    """A lane that was added after the question counts as empty by the answer."""
    real = LaneMerge.ends

    def ends(self: LaneMerge[Any], request: int, answer: Any) -> None:
        for lane in self._lanes.values():
            lane.asked_before = 0
        real(self, request, answer)

    patch.setattr(LaneMerge, "ends", ends)


def counted_at_answer(patch: Patch) -> None:
    """An answer covers messages that had come in before the answer, instead of before the question."""
    real = LaneMerge.ends

    def ends(self: LaneMerge[Any], request: int, answer: Any) -> None:
        for lane in self._lanes.values():
            lane._marks = [(offset, min(last, request - 1)) for offset, last in lane._marks[:1]]
        real(self, request, answer)

    patch.setattr(LaneMerge, "ends", ends)


def own_answer(patch: Patch) -> None:
    """A request covers messages below the end that it finds itself."""
    real = LaneMerge.ends

    def ends(self: LaneMerge[Any], request: int, answer: Any) -> None:
        real(self, request, answer)
        for lane in self._lanes.values():
            if lane.end is not None and lane._marks[-1][0] < lane.end:
                lane._marks = [(lane.end, lane._marks[-1][1])]

    patch.setattr(LaneMerge, "ends", ends)


def tails_are_kept(patch: Patch) -> None:
    """Messages below an answered end of a transient lane count as come in, though its leader may lose them."""
    real = ReadAhead.ask

    def ask(self: Read, request: int) -> None:
        lane = self.lane
        self.lane = lane._replace(durable=True)
        real(self, request)
        self.lane = lane

    patch.setattr(ReadAhead, "ask", ask)


def _pass_if(patch: Patch, may: Callable[[LaneMerge[Any], Read, Sequence[Read]], bool]) -> None:
    """Messages pass by another rule, which gets their lane, and the others that go before it."""

    def passes(self: LaneMerge[Any], lane: Any, last: int, now: float) -> bool:
        side = self._lanes[lane]
        others = [each for each in self._lanes.values() if each is not side]
        before = [each for each in others if each.lane.priority >= lane.priority]
        return not side.paused and not side.offsets and side.head is None and may(self, side, before)

    patch.setattr(LaneMerge, "passes", passes)


def pass_uncovered(patch: Patch) -> None:
    """Messages pass that the last request doesn't cover."""
    _pass_if(
        patch,
        lambda merge, side, before: (
            all(each.head is None and (each.offsets or each.paused or each.reached) for each in before)
            and not merge.ageing.aged(0.0)
        ),
    )


def pass_heads(patch: Patch) -> None:
    """Messages pass though others with a head go before them."""
    _pass_if(patch, lambda merge, side, before: not merge.ageing.aged(0.0))


def pass_aged(patch: Patch) -> None:
    """Messages pass though lower ones are aged."""
    real = LaneMerge.passes

    def passes(self: LaneMerge[Any], lane: Any, last: int, now: float) -> bool:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(Ageing, "aged", lambda self, now: [])
            return real(self, lane, last, now)

    patch.setattr(LaneMerge, "passes", passes)


def pass_unnoticed(patch: Patch) -> None:
    """Messages that pass through make no lower lane older."""
    real = LaneMerge.pass_through

    def pass_through(self: LaneMerge[Any], lane: Any, position: int, count: int, now: float) -> None:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(LaneMerge, "pass_over", lambda self, number, now: None)
            real(self, lane, position, count, now)

    patch.setattr(LaneMerge, "pass_through", pass_through)


def lost_leader_waits(patch: Patch) -> None:
    """A lane that an answer leaves out holds up the others."""
    real = LaneMerge.ends

    def ends(self: LaneMerge[Any], request: int, answer: Any) -> None:
        real(self, request, {lane: answer.get(lane, _FAR) for lane in self._lanes})

    patch.setattr(LaneMerge, "ends", ends)


def lost_answer(patch: Patch) -> None:
    """Ends aren't asked for again while a question is unanswered."""
    patch.setattr(merge, "PATIENCE", float("inf"))


def _hold_up(patch: Patch, waits: Callable[[Read], bool]) -> None:
    """Lanes without a head hold up the others, if they wait."""
    real = Priority.empty_since

    def empty_since(self: Priority[Any], missing: Missing) -> int | None:
        found = real(self, missing)
        return None if any(lane.head is None and waits(lane) for lane in self.lanes) else found

    patch.setattr(Priority, "empty_since", empty_since)


def blocked_is_empty(patch: Patch) -> None:
    """A lane whose messages are all blocked needn't be read on."""
    real = Priority.empty_since

    def empty_since(self: Priority[Any], missing: Missing) -> int | None:
        lanes, self.lanes = self.lanes, tuple(each for each in self.lanes if not each.offsets)
        try:
            return real(self, missing)
        finally:
            self.lanes = lanes

    patch.setattr(Priority, "empty_since", empty_since)


def paused_waits(patch: Patch) -> None:
    """A paused lane holds up the others."""
    _hold_up(patch, lambda lane: lane.paused and not lane.reached)


def blocked_goes(patch: Patch) -> None:
    """The first message held goes, though another is offered."""
    real = ReadAhead.offer
    patch.setattr(
        ReadAhead, "offer", lambda self, offset, lift: real(self, next(iter(self.offsets), None), lift)
    )


def times_go_back(patch: Patch) -> None:
    """Times that step back count as they are."""
    patch.setattr(ReadAhead, "_lower", lambda self: None)


def full_buffer(patch: Patch) -> None:
    """The merge doesn't say which lanes it needs more of."""
    patch.setattr(LaneMerge, "wants_read", lambda self, now: [])


def aged_once(patch: Patch) -> None:
    """After each message out of turn a lane waits for the whole bound again."""
    real = Ageing.go_out_of_turn

    def go(self: Ageing, number: int, now: float) -> None:
        real(self, number, now)
        self.forget(number)

    patch.setattr(Ageing, "go_out_of_turn", go)


def youngest_first(patch: Patch) -> None:
    """Of aged lanes, the lane that has waited for the shortest time goes first."""
    real = Ageing.aged
    patch.setattr(Ageing, "aged", lambda self, now: real(self, now)[::-1])


def share_by_choice(patch: Patch) -> None:
    """A run counts as a single message of the share."""
    real = Ageing.go_in_turn
    patch.setattr(Ageing, "go_in_turn", lambda self, number, count: real(self, number, 1))


def long_run(patch: Patch) -> None:
    """A run goes on past the moment at which an aged head may go."""
    real = LaneMerge._choose

    def choose(self: LaneMerge[Any], now: float) -> Choice | None:
        choice = real(self, now)
        if choice is None or choice.aged:
            return choice
        return choice._replace(most=self._lanes[choice.lane].count_below(choice.below) or choice.most)

    patch.setattr(LaneMerge, "_choose", choose)


def aged_for_ever(patch: Patch) -> None:
    """A priority that went in turn, or is empty, is still aged."""
    patch.setattr(Ageing, "forget", lambda self, number: None)

    def go(self: Ageing, number: int, count: int) -> None:
        self._since = min(merge.SHARE, self._since + count)

    patch.setattr(Ageing, "go_in_turn", go)


def not_strict(patch: Patch) -> None:
    """Strict priorities age too."""
    real = Ageing.__init__
    patch.setattr(Ageing, "__init__", lambda self, bound: real(self, AGEING))


MUTATIONS: Sequence[Callable[[Patch], None]] = (
    old_ends,
    own_time,
    any_log,
    both_wait,
    copy_unread,
    no_sequence,
    no_ageing,
    ageing_first,
    advance_all,
    peek_moves,
    uncovered_run,
    uncut_run,
    sibling_unknown,
    higher_unknown,
    early_answer,
    counted_at_answer,
    own_answer,
    tails_are_kept,
    pass_uncovered,
    pass_heads,
    pass_aged,
    pass_unnoticed,
    lost_leader_waits,
    lost_answer,
    blocked_is_empty,
    paused_waits,
    blocked_goes,
    times_go_back,
    full_buffer,
    aged_once,
    youngest_first,
    share_by_choice,
    long_run,
    aged_for_ever,
    not_strict,
)
