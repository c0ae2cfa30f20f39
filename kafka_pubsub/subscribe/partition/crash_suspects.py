"""After crashes: finds the message that killed the process by giving each suspect a trial of its own.

Theory. An owner that ends in disorder was mostly killed by something else, so the next owner starts at full speed. Its
commits say how far its predecessor may have come (`doubt`), until the position has passed that. If this owner ends in
disorder too, one of those messages may be the killer. A commit's metadata notes the started messages (`notes`), so the
next owner finds suspects there, but a message that kills at once may not have been noted. So until the position has
passed (`end`) no callback starts unnoted: a lease waits until a commit that notes its messages has been answered.
The next crash then leaves the culprit among the noted messages. Suspects are delivered singly, over all partitions
of the process, each noted as *the trial*. If its process dies then, the suspect was the culprit, and only its crash
count rises.

A lease here is WAITING (a suspect that waits for its trial), UNNOTED (waits for a commit to be made), ON ITS WAY
(that commit is unanswered), and then given out, still noted until the lease is over.

Rules
1. A message noted as a duty stays noted until it is finished, through any number of commits and crashes (but rule 5).
2. A single trial at a time in a process (`TrialLock`): else an innocent message of another partition would share the
   blame each time. A trial isn't over before the log has stopped naming its message: a message acked a moment before
   another partition's trial killed the process would share the blame, too. The next trial of the same log is named by
   the same commit, so some trials go in a row.
3. Messages of a key that isn't suspected are noted several together, or a key would go forward by a message a commit
   until the takeover's position is passed. After another crash each of them would be tried alone, so they are few, and
   fewer where many keys are noted.
4. Others may start beside a trial, noted. A culprit among them is blamed at its own trial, a crash later; the
   message on trial then has one crash too many, but never again for the same culprit.
5. The final commit of a revoke names only messages that dead owners left. It shows that this process lives, so no
   message that started here has killed it: a look, an ack that is withheld and a clean close count as no failure.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Sequence

from kafka_pubsub.errors import InvariantViolated
from kafka_pubsub.subscribe.formats import notes
from kafka_pubsub.subscribe.formats.notes import NO_DOUBT, Doubt, Notes
from kafka_pubsub.subscribe.partition.leases import Lease, LeaseState

__all__ = ["CrashSuspects", "TrialLock"]


#: Messages that aren't suspected and are noted at a time. After a crash each is a suspect, and its trial costs a
#: commit. Fewer would slow the backlog behind a crash: so many are delivered for each commit.
FRESH = 48
#: Messages of a key that are noted together, and the share of the room for notes that they may take.
TOGETHER, SHARE = 8, 4
#: Trials in a row, before another partition may try its suspects.
ROW = 8
#: Notes beyond `notes.MOST` for which the metadata has room: of messages that were tried alone for lack of room, one a
#: crash at most.
SPARE = 32


class TrialLock:
    """The lock of the trial; the partitions of a process share the lock, whatever threads decide for them."""

    def __init__(self) -> None:
        #: Empty: no trial. Of two callers at the same time `setdefault` makes either the first.
        self._owner: dict[None, object] = {}

    @property
    def owner(self) -> object:
        """The object that has the trial; None: there is none."""
        return self._owner.get(None)

    def take(self, who: object) -> bool:
        """Returns whether the trial is now `who`'s."""
        return self._owner.setdefault(None, who) is who

    def give_back(self, who: object) -> None:
        """Ends the trial, if it was `who`'s."""
        if self.owner is who:
            del self._owner[None]


class CrashSuspects:
    """The suspects in one log (home or retry) of one partition. Offsets are that log's own."""

    def __init__(self, turn: TrialLock, found: Notes = notes.NOTHING, doubt: Doubt = NO_DOUBT) -> None:
        self._turn = turn
        #: The doubt that the commits record of owners that ended in disorder.
        self.doubt = doubt
        #: Below this offset no callback starts unnoted; 0: at most a single owner has ended in disorder.
        self.end = end = doubt.end if doubt.twice else 0
        #: Offsets noted by dead owners and not finished since: the suspects.
        self.left: set[int] = set(notes.offsets(found)) if end else set()
        #: The offset that was on trial when its process died.
        self.culprit = found.trial if end else None
        self._bench: deque[tuple[int, Lease]] = deque()
        self._unnoted: dict[Lease, Sequence[int]] = {}
        self._on_its_way: dict[Lease, Sequence[int]] = {}
        self._given: dict[Lease, Sequence[int]] = {}
        self._trial: Lease | None = None
        #: Trials since this log has the trial lock.
        self._row = 0
        #: Whether the commit that was made last names no trial.
        self._cleared = False
        #: False once the partition is revoked: the next commit is its final commit (rule 5).
        self._open = True

    @property
    def _lingers(self) -> bool:
        """Whether the trial is over, and the log may still name its message."""
        return self._trial is None and self._turn.owner is self

    @property
    def waiting(self) -> bool:
        """Whether a lease, or another partition, waits for a commit to be made."""
        return bool(self._unnoted) or self._lingers

    @property
    def wants_turn(self) -> bool:
        """Whether a suspect could be tried now."""
        if not self._bench or self._trial is not None:
            return False
        return self._turn.owner is None or (self._turn.owner is self and self._row < ROW)

    @property
    def tries(self) -> bool:
        """Whether any of these suspects is on trial."""
        return self._trial is not None

    @property
    def busy(self) -> bool:
        """Whether any lease here has to be reported when it ends."""
        return bool(self._bench or self._unnoted or self._on_its_way or self._given or self._lingers)

    @property
    def waiting_suspects(self) -> int:
        """The number of leases that wait for their trial."""
        return len(self._bench)

    @property
    def duty(self) -> bool:
        """Whether anything is under suspicion, or noted."""
        return bool(self._duty())

    @property
    def inherited(self) -> set[int]:
        """The notes of dead owners: their suspects, and the message that was on trial when the last owner died."""
        return self.left if self.culprit is None else self.left | {self.culprit}

    @property
    def room(self) -> int:
        """The number of further messages that may be noted."""
        duty = self._duty()
        return min(notes.MOST - len(duty), FRESH - len(duty - self.left))

    def concerns(self, offset: int) -> bool:
        """Returns whether that message must not start unnoted."""
        return offset < self.end

    def takes(self, offset: int | None) -> bool:
        """Returns whether that message may be admitted: noted, with room for a note, or the only one to be tried.

        Without the last a partition whose dead owner has left all room filled would stand still for ever: a suspect may
        have to wait for an earlier message of its key, which must be noted too.
        """
        return offset in self.left or self.room > 0 or not self._bench

    def together(self, offset: int | None) -> int:
        """Returns how many messages of its key may be noted together with that message, itself included (rule 3)."""
        if offset is None or any(each >= offset for each in self.left):
            return 1
        return max(1, min(TOGETHER, self.room // SHARE))

    def passed(self, committable: int) -> None:
        """Takes note that all below that offset is finished."""
        if committable >= self.doubt.end:
            self.doubt = NO_DOUBT
            self.end = 0
            self.left.clear()

    def finished(self, offsets: Collection[int]) -> None:
        """Takes note that these are finished: they are no longer suspects."""
        if self.left or self.culprit is not None:
            self.left.difference_update(offsets)
            if self.culprit in offsets:
                self.culprit = None
        runs = [lease for lease, noted in self._given.items() if len(noted) > 1]
        done = set(offsets) if runs else ()
        for lease in runs:
            self._given[lease] = [offset for offset in self._given[lease] if offset not in done]

    def admit(self, lease: Lease, offsets: Sequence[int], crashes: int = 0) -> None:
        """Takes a lease of messages that must not start unnoted; of a single one for a suspect or for lack of room."""
        if offsets[0] in self.left or crashes or self.room <= 0:
            self._bench.append((offsets[0], lease))
        else:
            self._unnoted[lease] = offsets

    def try_next(self) -> None:
        """Begins a trial if this log may."""
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
        """Returns the notes for a commit; the leases that waited for the commit are on their way from now on.

        `gone`: the messages that the same commit calls finished.
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
            trial = (
                self.culprit
            )  # its move hasn't committed: a second crash must not make the message innocent
        duty = {offset for offset in named if offset >= position and offset not in gone}
        return notes.fit(duty, wishes, position, trial if trial in duty else None)

    def _duty(self) -> set[int]:
        known = [self._unnoted, self._on_its_way, self._given]
        return self.inherited.union(*(offsets for each in known for offsets in each.values()))

    def answered(self, *, accepted: bool) -> list[Lease]:
        """Takes the commit's answer; returns the leases that may start."""
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
        """Forgets a lease whose callback has ended, or will never begin."""
        for some in (self._unnoted, self._on_its_way, self._given):
            some.pop(lease, None)
        if lease is self._trial:
            self._trial = None
            self._cleared = False
            if not self._open:  # else this log keeps the lock until commits name the trial no more
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
        """Goes on after the partition came back."""
        self._open = True

    def close(self) -> None:
        """Ends the trial: the partition is no longer this member's."""
        self._give_back()
        self._trial = None

    def _give_back(self) -> None:
        self._turn.give_back(self)
        self._row = 0

    def check(self) -> None:
        """Raises `InvariantViolated` if a rule is broken."""
        if self._trial is not None and self._turn.owner is not self:
            raise InvariantViolated("a suspect is tried out of turn")
        places = [self._unnoted.keys(), self._on_its_way.keys(), self._given.keys()]
        if sum(map(len, places)) != len(set().union(*places)):
            raise InvariantViolated("a lease is noted twice")
        if self.room < -SPARE:
            raise InvariantViolated(f"{notes.MOST - self.room} notes, room for {notes.MOST}")
