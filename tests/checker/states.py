"""The states that the log stored for the group: each a single commit, each commit on top of the one before.

Theory. An ownership begins with a state that somebody wrote, and writes its own on top. So the accepted commits of a
partition form a chain, whatever the clocks say; a fork is a lost commit or a former owner that was let in. A commit
that was never answered belongs to the chain when somebody reads its state, or its answer comes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any

from tests.checker.survey import standing_id

__all__ = ["Chain", "State", "Tenure", "holds"]

Found = Callable[[str, str], None]
Standing = Sequence[Any]


def holds(standing: Standing, offset: int) -> bool:
    """Whether a standing calls the offset finished."""
    position, runs = standing[0], standing[1]
    return offset < position or bisect_right(runs, offset) % 2 == 1


class Tenure:
    """One assignment of a topic's partition: from which state it began."""

    __slots__ = ("name", "number", "since")

    def __init__(self, name: str, number: int, since: int) -> None:
        self.name, self.number, self.since = name, number, since


class State:
    """A content that was written."""

    __slots__ = ("accepted", "author", "next", "readers", "sent", "since", "standing", "with_it")

    def __init__(self, standing: Standing, author: Tenure | None, accepted: bool | None) -> None:
        self.standing = standing
        self.author = author
        #: None: not answered.
        self.accepted = accepted
        #: When the commit was sent, and when it was known to be accepted.
        self.sent = self.since = 0
        #: The commits that were accepted on top.
        self.next: State | None = None
        self.readers: list[Tenure] = []
        #: To be called when somebody reads a commit whose answer said nothing, or no: its transaction's records are
        #: stored too.
        self.with_it: Callable[[], None] | None = None


class Chain:
    """All states of a partition of a topic."""

    def __init__(self, topic: str, begins: int, skew: int) -> None:
        self._topic, self._skew = topic, skew
        start = State((begins, ()), None, True)
        self._known = {standing_id(start.standing): start}
        self._count = 0
        #: By tenure's number: the state on which its next commit lies.
        self._tops: dict[int, State] = {}

    def knows(self, state: int) -> bool:
        """Whether the commit has been written."""
        return state in self._known

    def read(self, name: str, standing: Standing, now: int, found: Found, *, owner: bool = True) -> Tenure:
        """Somebody begins with this state; who isn't an owner any more by then takes over from nobody."""
        state = self._known.get(standing_id(standing))
        self._count += 1
        if state is None:
            found("state", f"{name} began with a {self._topic} state that nobody wrote: {_short(standing)}")
            state = self._known[standing_id(standing)] = State(standing, None, True)
        tenure = Tenure(name, self._count, now)
        if (
            not state.accepted and state.author is not None
        ):  # an error may have hidden that the commit was stored
            self.accepted(state.author, state, now, found)
            if state.with_it is not None:
                state.with_it()
        if owner and state.next is not None and state.next.since + self._skew < now:
            by = state.next.author
            found(
                "state",
                f"{name} began with an outdated {self._topic} state {_short(standing)}: "
                f"{by.name if by else '?'} had {_short(state.next.standing)} accepted on top of it",
            )
        if owner:
            state.readers.append(tenure)
        self._tops[tenure.number] = state
        return tenure

    def write(self, tenure: Tenure, standing: Standing, now: int) -> State:
        """A commit is sent."""
        identity = standing_id(standing)
        if identity == standing_id(self._tops[tenure.number].standing):
            return self._tops[tenure.number]
        state = self._known[identity] = State(standing, tenure, None)
        state.sent = now
        return state

    def accepted(self, tenure: Tenure, state: State, now: int, found: Found) -> None:
        """The commit has been stored."""
        below = self._tops[tenure.number]
        if state is below or state.accepted:
            return
        state.accepted, state.since = True, now
        known = state.sent if self._skew else now
        newer = [
            reader
            for reader in below.readers
            if reader.number > tenure.number
            and reader.since + self._skew <= known
            and reader.since > tenure.since + self._skew
        ]
        rival = below.next.author if below.next is not None else None
        if newer or rival is not None:
            who = newer[0].name if newer else rival.name if rival is not None else "?"
            text = f"{tenure.name}'s {self._topic} commit {_short(state.standing)} was accepted after {who} took over"
            found("fence", text)
        below.next = state
        self._tops[tenure.number] = state

    def top(self, tenure: Tenure) -> Standing:
        """The stored content, as far as the tenure goes."""
        return self._tops[tenure.number].standing


def _short(standing: Standing) -> str:
    text = f"{standing[0]} and {list(standing[1])}"
    return text if len(text) < 200 else text[:200] + "..."
