"""After crashes: which messages may have killed the process, and how each gets its turn alone.

Theory. One owner that ends in disorder was mostly killed by something else, so the next one starts at full speed. Its
commits say how far its predecessor may have come (`doubt`), until the position has passed that. If it ends in disorder
before, one of those messages may be what kills. A commit's metadata notes what was started (`notes`), so the next owner
finds suspects in it, but a message that kills at once may not have been noted. So until the position has passed (`end`)
no callback starts unnoted: a lease waits until a commit that notes it has been answered.
The next crash then leaves the culprit among the noted ones. Suspects are delivered one at a time, over all partitions
of the process, each noted as *the trial*; if its process dies then, it was the one, and only its crash count rises.

A lease here is BENCHED (a suspect that waits for the trial), UNNOTED (waits for a commit to be made), ON ITS WAY
(that commit isn't answered), and then given out, still noted until it is over.

Rules
1. What is noted as a duty stays noted until it is finished, through any number of commits and crashes (but rule 5).
2. One trial at a time in a process (`TrialLock`): else a neighbour partition's innocent would share the blame each
   time. A trial isn't over before the log has stopped naming it: who was acked a moment before a neighbour's trial
   killed the process would share the blame, too. The next one of the same log is named by the same commit, so some go
   in a row.
3. Messages of a key that isn't suspected are noted several together, or a key would go forward by one message a commit
   until the takeover's position is passed. After another crash each of them would be tried alone, so they are few, and
   fewer where many keys are noted.
4. Others may start beside a trial, noted. A culprit among them is blamed at its own trial, one crash later; the
   message on trial then has one crash too many, but never again for the same culprit.
5. The last word at a revoke names only what dead owners left. It shows that this process lives, so no message that
   started here has killed it: a look, an ack that is withheld and a clean close count as no failure.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Sequence

from kafka_pubsub.core.commit import notes
from kafka_pubsub.core.commit.notes import NO_DOUBT, Doubt, Notes
from kafka_pubsub.core.delivery.leases import Lease, LeaseState
from kafka_pubsub.errors import InvariantViolated

__all__ = ["CrashSuspects", "TrialLock"]


#: Messages that aren't suspected and that are noted at a time. After the next crash each of them is a suspect, and a
#: trial costs a commit; and beside so many suspects others must have room to go on. Fewer would cost those who wait for
#: the backlog behind a crash: so many are delivered for each commit.
FRESH = 48
#: Messages of one key that are noted together, and the share of the room for notes that they may take.
TOGETHER, SHARE = 8, 4
#: Trials in a row, before a neighbour is asked whether it has suspects.
ROW = 8
#: Notes beyond `notes.MOST` for which the metadata has room: of messages that were tried alone for lack of it, one a
#: crash at most.
SPARE = 32


class TrialLock:
    """Whose trial it is; shared by the partitions of a process, whatever threads they are decided on."""

    def __init__(self) -> None:
        #: Empty: no stream's. Of two that ask at the same time `setdefault` lets one be the first.
        self._lease_runner: dict[None, object] = {}

    @property
    def holder(self) -> object:
        """Whose trial it is; None: there is none."""
        return self._lease_runner.get(None)

    def take(self, who: object) -> bool:
        """True if the trial is now `who`'s."""
        return self._lease_runner.setdefault(None, who) is who

    def give_back(self, who: object) -> None:
        """The trial is over, if it was `who`'s."""
        if self.holder is who:
            del self._lease_runner[None]


class CrashSuspects:
    """The suspects in one log (main or retry) of one partition. Offsets are that log's own."""

    def __init__(self, turn: TrialLock, found: Notes = notes.NOTHING, doubt: Doubt = NO_DOUBT) -> None:
        self._turn = turn
        #: What the commits say of owners that ended in disorder.
        self.doubt = doubt
        #: Below this offset no callback starts unnoted; 0: not more than one owner has ended in disorder.
        self.end = end = doubt.end if doubt.twice else 0
        #: Noted by dead owners and not finished since. Empty: nothing is under suspicion.
        self.left: set[int] = set(notes.offsets(found)) if end else set()
        #: The one that was on trial when its process died.
        self.culprit = found.trial if end else None
        self._bench: deque[tuple[int, Lease]] = deque()
        self._unnoted: dict[Lease, Sequence[int]] = {}
        self._on_its_way: dict[Lease, Sequence[int]] = {}
        self._given: dict[Lease, Sequence[int]] = {}
        self._trial: Lease | None = None
        #: Trials since it is our turn.
        self._row = 0
        #: Whether the commit that was made last names no trial.
        self._cleared = False
        #: False once the partition is revoked: the next commit is its last word (rule 5).
        self._open = True

    @property
    def _lingers(self) -> bool:
        """Whether the trial is over, and the log may still name it."""
        return self._trial is None and self._turn.holder is self

    @property
    def waiting(self) -> bool:
        """Whether a lease, or a neighbour, waits for a commit to be made."""
        return bool(self._unnoted) or self._lingers

    @property
    def wants_turn(self) -> bool:
        """Whether a suspect could be tried now."""
        if not self._bench or self._trial is not None:
            return False
        return self._turn.holder is None or (self._turn.holder is self and self._row < ROW)

    @property
    def tries(self) -> bool:
        """Whether the trial is one of these."""
        return self._trial is not None

    @property
    def busy(self) -> bool:
        """Whether anything here has to be told what becomes of leases."""
        return bool(self._bench or self._unnoted or self._on_its_way or self._given or self._lingers)

    @property
    def benched(self) -> int:
        """How many leases wait for their trial."""
        return len(self._bench)

    @property
    def duty(self) -> bool:
        """Whether anything is under suspicion, or noted."""
        return bool(self._duty())

    @property
    def inherited(self) -> set[int]:
        """What dead owners left: their suspects, and the message that was on trial when the last one died."""
        return self.left if self.culprit is None else self.left | {self.culprit}

    @property
    def room(self) -> int:
        """How many more may be noted."""
        duty = self._duty()
        return min(notes.MOST - len(duty), FRESH - len(duty - self.left))

    def concerns(self, offset: int) -> bool:
        """Whether that message must not start unnoted."""
        return offset < self.end

    def takes(self, offset: int | None) -> bool:
        """Whether that message may be admitted: it is noted already, or can be, or would be the only one to be tried.

        Without the last a partition whose dead owner has left all room filled would stand still for ever: a suspect's
        turn may have to wait for an earlier message of its key, which must be noted too.
        """
        return offset in self.left or self.room > 0 or not self._bench

    def together(self, offset: int | None) -> int:
        """How many messages of its key may be noted together with that one, itself included (rule 3)."""
        if offset is None or any(each >= offset for each in self.left):
            return 1
        return max(1, min(TOGETHER, self.room // SHARE))

    def passed(self, committable: int) -> None:
        """All below that offset is finished."""
        if committable >= self.doubt.end:
            self.doubt = NO_DOUBT
            self.end = 0
            self.left.clear()

    def finished(self, offsets: Collection[int]) -> None:
        """These are finished: under suspicion no more."""
        if self.left or self.culprit is not None:
            self.left.difference_update(offsets)
            if self.culprit in offsets:
                self.culprit = None
        runs = [lease for lease, noted in self._given.items() if len(noted) > 1]
        done = set(offsets) if runs else ()
        for lease in runs:
            self._given[lease] = [offset for offset in self._given[lease] if offset not in done]

    def admit(self, lease: Lease, offsets: Sequence[int], crashes: int = 0) -> None:
        """A lease of messages that must not start unnoted; of one, if it is a suspect or there is no room."""
        if offsets[0] in self.left or crashes or self.room <= 0:
            self._bench.append((offsets[0], lease))
        else:
            self._unnoted[lease] = offsets

    def try_next(self) -> None:
        """Begins a trial if it is our turn."""
        while self.wants_turn and self._turn.take(self):
            offset, lease = self._bench.popleft()
            if lease.state is LeaseState.OVER:
                if not self._row:
                    self._turn.give_back(self)
                continue
            self._trial = lease
            self._row += 1
            self._unnoted[lease] = (offset,)

    def note(self, wishes: Iterable[int], position: int, gone: Collection[int] = ()) -> Notes:
        """The notes for a commit; what waited for one is on its way from now on.

        `gone`: what the same commit calls finished.
        """
        self._on_its_way.update(self._unnoted)
        self._unnoted = {}
        tried = () if self._trial is None else (self._on_its_way | self._given).get(self._trial, ())
        trial = tried[0] if tried else None
        self._cleared = trial is None
        named = self._duty()
        if not self._open:
            named, wishes, trial = self.inherited, (), None
        if trial is None and self.culprit is not None:
            trial = self.culprit  # its move hasn't committed: a second crash must not make it innocent
        duty = {offset for offset in named if offset >= position and offset not in gone}
        return notes.fit(duty, wishes, position, trial if trial in duty else None)

    def _duty(self) -> set[int]:
        known = [self._unnoted, self._on_its_way, self._given]
        return self.inherited.union(*(offsets for each in known for offsets in each.values()))

    def answered(self, *, accepted: bool) -> list[Lease]:
        """The commit was answered; returns the leases that may start."""
        on_its_way, self._on_its_way = self._on_its_way, {}
        if not accepted:
            self._unnoted = on_its_way | self._unnoted
            return []
        if self._cleared and self._lingers:
            self._give_back()
        started = {lease: at for lease, at in on_its_way.items() if lease.state is not LeaseState.OVER}
        self._given |= started
        return list(started)

    def over(self, lease: Lease) -> None:
        """The callback of a lease has ended, or will never begin."""
        for some in (self._unnoted, self._on_its_way, self._given):
            some.pop(lease, None)
        if lease is self._trial:
            self._trial = None
            self._cleared = False
            if not self._open:  # else the turn is ours until the log has stopped naming it
                self._give_back()

    def unstarted(self) -> list[Lease]:
        """Takes back the leases that no callback has seen: the partition is revoked."""
        self._open = False
        if self._lingers:
            self._give_back()
        some = [*(lease for _, lease in self._bench), *self._unnoted, *self._on_its_way]
        self._bench.clear()
        some = [lease for lease in some if lease.state is not LeaseState.OVER]
        for lease in some:
            self.over(lease)
        return some

    def returned(self) -> None:
        """The partition came back."""
        self._open = True

    def close(self) -> None:
        """The partition isn't ours any more."""
        self._give_back()
        self._trial = None

    def _give_back(self) -> None:
        self._turn.give_back(self)
        self._row = 0

    def check(self) -> None:
        """Raises `InvariantViolated` if a rule is broken."""
        if self._trial is not None and self._turn.holder is not self:
            raise InvariantViolated("a suspect is tried out of turn")
        places = [self._unnoted.keys(), self._on_its_way.keys(), self._given.keys()]
        if sum(map(len, places)) != len(set().union(*places)):
            raise InvariantViolated("a lease is noted twice")
        if self.room < -SPARE:
            raise InvariantViolated(f"{notes.MOST - self.room} notes, room for {notes.MOST}")
