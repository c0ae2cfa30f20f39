"""Commits, moves to the retry topic and dead letters: the owner's writes, and the log's answers."""

from __future__ import annotations

from functools import partial
from typing import Protocol

from tests.checker.ownership import DEAD, FINISHED, MOVED, REJECTED, Move, Ownership, Request, runs_missing
from tests.checker.reading import Event
from tests.checker.report import Report
from tests.checker.states import Chain
from tests.checker.survey import Survey

__all__ = ["ACK", "DEAD_LETTER", "PARKED", "Writing"]

#: The outcome of a message, over all processes; 0: nothing yet, 1: there is none.
ACK, DEAD_LETTER, PARKED = 2, 4, 8
KNOWN = 2


class Court(Protocol):
    """The parts of the judge that are needed."""

    report: Report
    survey: Survey
    replayed: dict[int, set[int]]
    time: int
    outcomes: dict[int, bytearray]
    due: dict[int, dict[int, tuple[int, int | None]]]
    rejected: dict[int, set[int]]

    def found(self, kind: str, text: str, *about: tuple[int, int]) -> None: ...
    def chain(self, partition: int, topic: str) -> Chain: ...
    def mine(self, event: Event) -> Ownership | None: ...
    def is_durable(self, partition: int, offset: int) -> None: ...
    def revives(self, mine: Ownership, offset: int, retry: int | None) -> bool: ...


class Writing:
    """Takes the events that are about writing."""

    def __init__(self, court: Court) -> None:
        self._court = court

    def relocate(self, event: Event) -> None:
        mine = self._court.mine(event)
        if mine is None:
            return
        request = mine.request(event["n"])
        for offset, retry, attempt, due_ms, why in event["moves"]:
            self._court.report.move_requests += 1
            before = self._leaves(mine, offset, retry, "moved")
            if not mine.leaves_rejection(offset, why):
                text = f"{mine.partition}:{offset} is moved ({why}); its callback had given it up"
                self._court.found("rejected", text, (mine.partition, offset))
            mine.main[offset] |= MOVED
            request.moves.append(Move(offset, retry, attempt, due_ms, before, why))

    def _leaves(self, mine: Ownership, offset: int, retry: int | None, how: str) -> int:
        """A message leaves its place; returns its state before."""
        about = (mine.partition, offset)
        mine.forget_crossed(offset)
        self._court.revives(mine, offset, retry)
        before = mine.main[offset]
        if offset in mine.leases:
            text = f"{about[0]}:{offset} is {how} while a handler holds it"
            self._court.found("relocation", text, about)
        if before & FINISHED:
            self._court.found("after_ack", f"{about[0]}:{offset} is {how}; it was finished", about)
        if retry != mine.places.get(offset):
            text = f"{about[0]}:{offset} is {how} from {retry}, it lies at {mine.places.get(offset)}"
            self._court.found("relocation", text, about)
        if retry is not None:
            mine.retry[retry] = KNOWN
        return before

    def dead_letter(self, event: Event) -> None:
        mine = self._court.mine(event)
        if mine is None:
            return
        offset, retry = event["offset"], event["retry"]
        self._court.report.dead_letters += 1
        before = self._leaves(mine, offset, retry, "dead-lettered")
        mine.main[offset] |= DEAD
        mine.request(event["n"]).dead.append((offset, retry, before))

    def commit(self, event: Event) -> None:
        court, mine = self._court, self._court.mine(event)
        if mine is None:
            return
        court.report.commits += 1
        if mine.ended is not None:
            court.found("unowned", f"{mine.name} commits after its end")
        if any(request.sent for request in mine.requests.values()):
            court.found("in_flight", f"{mine.name} commits before its last commit was answered")
        request = mine.request(event["n"])
        request.sent, request.sent_at = True, court.time
        request.main, request.retry = event.get("main"), event.get("retry")
        if mine.blocked_since is None:
            mine.blocked_since = court.time
        for topic, standing in (("main", request.main), ("retry", request.retry)):
            if standing is None:
                continue
            self._check(mine, topic, standing)
            if topic not in mine.tenures:
                court.found(
                    "unowned", f"{mine.name} commits its {topic} partition, of which it read no state"
                )
                continue
            chain = court.chain(mine.partition, topic)
            before = chain.top(mine.tenures[topic])
            forgotten = runs_missing(before, standing)
            if standing[0] < before[0] or forgotten:
                text = f"{mine.name} commits {standing[0]} above {before[0]}, forgets {forgotten[:5]}"
                court.found("commit_back", text)
            state = chain.write(mine.tenures[topic], standing, court.time)
            if state.author is mine.tenures[topic] and (request.dead or request.moves):
                state.with_it = partial(self._stored, mine.partition, request)
            request.states.append((topic, state))

    def _check(self, mine: Ownership, topic: str, standing: list[object]) -> None:
        early = mine.early_in(standing, topic)
        if early:
            origins = early if topic == "main" else [mine.retry_log.origin[at] for at in early]
            text = f"{mine.name} commits its {topic} partition at {standing[0]}; unfinished are {early}"
            self._court.found("commit_early", text, *[(mine.partition, offset) for offset in origins])
            book = mine.main if topic == "main" else mine.retry
            for at in early:  # told once is enough
                book[at] = KNOWN

    def answer(self, event: Event) -> None:
        mine = self._court.mine(event)
        if mine is None:
            return
        request = mine.requests.pop(event["n"], None)
        if request is None or not request.sent:
            self._court.found("stray", f"{mine.name} has an answer to a commit that wasn't sent")
            return
        accepted = event["accepted"]
        if accepted is None:
            return
        for topic, state in request.states:
            if accepted:
                self._court.chain(mine.partition, topic).accepted(
                    mine.tenures[topic], state, self._court.time, self._court.found
                )
            elif not state.accepted:
                state.accepted = False
        if accepted:
            self._accepted(mine, request, event)
        else:
            mine.refused_at = self._court.time
            mine.undo(request)

    def _accepted(self, mine: Ownership, request: Request, event: Event) -> None:
        partition, court = mine.partition, self._court
        mine.blocked_since = None
        for offset in mine.settle(request.main, request.retry):
            court.is_durable(partition, offset)
        placed = dict(event.get("placed", ()))
        for move in request.moves:
            if move.offset not in placed:
                court.found(
                    "relocation",
                    f"{partition}:{move.offset} was moved nobody knows where",
                    (partition, move.offset),
                )
            else:
                mine.places[move.offset] = placed[move.offset]
        self._stored(partition, request)

    def _stored(self, partition: int, request: Request) -> None:
        """Its transaction has committed."""
        court = self._court
        outcomes, due, rejected = court.outcomes[partition], court.due[partition], court.rejected[partition]
        for move in request.moves:
            due[move.offset] = (move.attempt, move.due_ms)
            (rejected.add if move.why == REJECTED else rejected.discard)(move.offset)
            outcomes[move.offset] = outcomes[move.offset] & ~PARKED | (PARKED if move.due_ms is None else 0)
        for offset, _, _ in request.dead:
            outcomes[offset] |= DEAD_LETTER
            rejected.discard(offset)
            court.is_durable(partition, offset)
            if (partition, offset) in court.survey.replays:
                court.replayed[partition].add(offset)
