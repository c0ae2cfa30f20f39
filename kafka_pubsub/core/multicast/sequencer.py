"""The order of the messages to one topic: a state machine over the topic's inbox.

Theory. Each inbox has a Lamport clock. A message's timestamp is the maximum of what its participants propose, so all of
them know the same one, and every destination releases its messages in the order of the timestamps (Skeen's algorithm).
All that a sequencer knows follows from its inbox, so a successor knows the same.

Rules
1. The records of an inbox are taken in the order of the log.
2. A stage ticks the clock, and the clock's time is proposed to all participants at one moment. A message with one
   participant is final at once; its proposal is stored only if it has to wait.
3. When a message's timestamp is known, the clock is brought up to it. So a message that is staged after another one was
   released anywhere gets a higher timestamp: all proposals of the other lie before its stage.
4. A message is released when no unreleased one can get a lower timestamp.
5. A topic proposes for its own deletion once the messages that were staged before have their timestamps: so they come
   before the deletion, and nothing that said `deleted=False` can come after it.
6. While a deletion has no timestamp, later messages are told `deleted=None`. Both timestamps decide, once they are
   known. No other proposal waits. A deletion doesn't wait for that of another topic, so two of them never wait for each
   other.
7. A successor takes the proposals of this topic from the log, at the records that caused them. To compute them again
   would give others, because timestamps that came later have moved the clock.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from kafka_pubsub.core.multicast.release_queue import ReleaseQueue
from kafka_pubsub.core.multicast.values import Output, Proposal, Propose, Refuse, Release, Stage, Timestamp

__all__ = ["START", "Checkpoint", "Sequencer"]


class Checkpoint(NamedTuple):
    """From what a successor goes on: it reads the inbox from `oldest`, and is a successor of itself until `position`.

    `oldest`: the offset of the first stage that isn't released, else `position`. `deleted`: when the topic was deleted.
    """

    clock: int
    oldest: int
    position: int
    deleted: Timestamp | None


#: Of a new inbox.
START = Checkpoint(0, 0, 0, None)


class _Pending:
    """A message that isn't released."""

    __slots__ = ("before", "final", "offset", "proposals", "stage")

    def __init__(self, stage: Stage, offset: int) -> None:
        self.stage = stage
        self.offset = offset
        self.proposals: dict[str, Proposal] = {}
        self.final: Timestamp | None = None
        #: Of a deletion of this topic: the messages whose timestamps it waits for.
        self.before: set[str] = set()

    @property
    def decided(self) -> bool:
        return self.final is not None and all(each.deleted is not None for each in self.proposals.values())


class Sequencer:
    """The sequencer of one topic's inbox. `own`: the topic's proposals in the log, by their cause, in their order."""

    def __init__(
        self,
        topic: str,
        checkpoint: Checkpoint = START,
        own: Mapping[int, Sequence[Proposal]] = MappingProxyType({}),
    ) -> None:
        self.topic = topic
        self.clock = checkpoint.clock
        self.deleted = checkpoint.deleted
        self._position = checkpoint.oldest
        self._known_until = checkpoint.position
        self._own = own
        self._proposed = {each.message for some in own.values() for each in some}
        # Whether the record that is being taken was taken before, by an earlier sequencer.
        self._again = False
        # By the order of their stages.
        self._pending: dict[str, _Pending] = {}
        self._queue = ReleaseQueue()
        # Deletions of this topic without a timestamp, and for which of them a message must wait to be told.
        self._deletions: dict[str, None] = {}
        self._untold: dict[str, set[str]] = {}

    @property
    def checkpoint(self) -> Checkpoint:
        """From what a successor goes on; never less than what this sequencer began with."""
        first = next(iter(self._pending.values()), None)
        oldest = self._position if first is None else first.offset
        return Checkpoint(self.clock, oldest, max(self._position, self._known_until), self.deleted)

    @property
    def waiting(self) -> int:
        """How many messages aren't released."""
        return len(self._pending)

    def holds(self, message: str) -> bool:
        """Returns whether the message is staged and isn't released."""
        return message in self._pending

    def blocked(self) -> tuple[str, tuple[str, ...]] | None:
        """Returns the unreleased message that no other may pass, and the participants that it waits for.

        These haven't proposed, or haven't said yet whether their topic is deleted. None: all messages are released.
        """
        message = self._queue.first() or next(iter(self._pending), None)
        if message is None:
            return None
        pending = self._pending[message]
        told = {name for name, each in pending.proposals.items() if each.deleted is not None}
        return message, tuple(each for each in pending.stage.participants if each not in told)

    def take(self, offset: int, record: Stage | Proposal) -> list[Output]:
        """Takes the next record; returns what is to be stored together with the position behind it."""
        self._again, self._position = offset < self._known_until, offset + 1
        outputs: list[Output] = []
        if isinstance(record, Stage):
            self._stage(offset, record, outputs)
        elif record.timestamp.topic != self.topic and record.message in self._pending:
            self._add(record, outputs)
        if self._again:
            for own in self._own.get(offset, ()):
                self._recall(own, outputs)
        outputs += self._release()
        if self._again:
            return []  # it was stored before
        if (
            isinstance(record, Stage)
            and len(record.participants) == 1
            and record.message not in self._pending
        ):
            return [each for each in outputs if not isinstance(each, Propose) or len(each.topics) > 1]
        return outputs

    def pass_over(self, offset: int) -> None:
        """Takes a record that says nothing."""
        self._position = offset + 1

    def _stage(self, offset: int, stage: Stage, outputs: list[Output]) -> None:
        if self.topic not in stage.participants or stage.message in self._pending:
            return
        pending = _Pending(stage, offset)
        if stage.deletes == self.topic:
            pending.before = {
                message
                for message, each in self._pending.items()
                if each.final is None and each.stage.deletes in ("", self.topic)
            }
        alone = len(stage.participants) == 1
        if self._again and alone and not pending.before and stage.message not in self._proposed:
            return  # it was released at once
        self._pending[stage.message] = pending
        if stage.deletes == self.topic:
            self._deletions[stage.message] = None
        elif self._deletions and not stage.deletes:
            self._untold[stage.message] = set(self._deletions)
        if not pending.before:
            self._propose(pending, outputs)

    def _recall(self, own: Proposal, outputs: list[Output]) -> None:
        if own.message not in self._pending:
            return  # it was released, and its stage lies before all that is read
        if own.deleted is None:
            self._untold.setdefault(own.message, set())
        else:
            self._untold.pop(own.message, None)
        self._add(own, outputs)

    def _propose(self, pending: _Pending, outputs: list[Output]) -> None:
        if self._again:
            return
        stage = pending.stage
        self.clock = max(self.clock, stage.estimate) + 1
        deleted = None if stage.message in self._untold else self.deleted is not None and not stage.deletes
        self._tell(pending, Timestamp(self.clock, self.topic), deleted, outputs)

    def _tell(
        self, pending: _Pending, timestamp: Timestamp, deleted: bool | None, outputs: list[Output]
    ) -> None:
        proposal = Proposal(pending.stage.message, timestamp, deleted, self._position - 1)
        outputs.append(Propose(pending.stage.participants, proposal))
        self._add(proposal, outputs)

    def _add(self, proposal: Proposal, outputs: list[Output]) -> None:
        pending = self._pending[proposal.message]
        pending.proposals[proposal.timestamp.topic] = proposal
        if self.topic in pending.proposals:
            self._queue.raise_to(proposal.message, max(each.timestamp for each in pending.proposals.values()))
        if pending.final is None and len(pending.proposals) == len(pending.stage.participants):
            self._finish(pending, outputs)

    def _finish(self, pending: _Pending, outputs: list[Output]) -> None:
        message = pending.stage.message
        pending.final = final = max(each.timestamp for each in pending.proposals.values())
        self.clock = max(self.clock, final.clock)
        if message in self._deletions:
            del self._deletions[message]
            self.deleted = final if self.deleted is None else min(final, self.deleted)
            for other in list(self._untold):
                self._untold[other].discard(message)
                self._decide(other, outputs)
        self._decide(message, outputs)
        for other in list(self._deletions):
            deletion = self._pending[other]
            if message in deletion.before:
                deletion.before.discard(message)
                if not deletion.before:
                    self._propose(deletion, outputs)

    def _decide(self, message: str, outputs: list[Output]) -> None:
        """Tells a message whether the topic's deletion comes before it, once both timestamps are known."""
        pending = self._pending[message]
        if self._again or pending.final is None or self._untold.get(message, True):
            return
        del self._untold[message]
        deleted = self.deleted is not None and self.deleted < pending.final
        self._tell(pending, pending.proposals[self.topic].timestamp, deleted, outputs)

    def _release(self) -> Iterator[Output]:
        while (message := self._queue.first()) is not None:
            pending = self._pending[message]
            if not pending.decided or pending.final is None:
                return
            self._queue.remove(message)
            del self._pending[message]
            stage = pending.stage
            deleted = {topic for topic, each in pending.proposals.items() if each.deleted}
            gone = tuple(each for each in stage.destinations if each in deleted)
            if gone:
                yield Refuse(message, pending.final, gone)
            elif self.topic in stage.destinations:
                invalid = tuple(each for each in stage.handles if each in deleted)
                yield Release(message, pending.final, invalid)
