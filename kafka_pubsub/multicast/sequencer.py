"""The order of the messages to a topic: a state machine over the topic's inbox.

Theory. Each inbox has a Lamport clock. A message's timestamp is the maximum of its participants' proposals, so all of
them know the same timestamp, and every destination releases its messages in the order of the timestamps (Skeen's
algorithm). All that a sequencer knows follows from its inbox, so a successor knows the same.

Rules
1. The records of an inbox are taken in the order of the log.
2. A stage ticks the clock, and the clock's time is proposed to all participants at the same moment. A message with a
   single participant is final at once; its proposal is stored only if the message has to wait.
3. When a message's timestamp is known, the clock is brought up to it. So a message that is staged after another was
   released anywhere gets a higher timestamp: all proposals of the other lie before its stage.
4. A message is released when no unreleased message can get a lower timestamp.
5. A deletion is a stage. A message behind it in the topic's inbox is refused, and the topic's proposal says so. The
   topic proposes for its own deletion once the messages that were staged before have their timestamps, except for other
   deletions: so these messages come before the deletion, and two deletions never wait for each other.
6. A deletion names the id of the topic that it deletes, and deletes no later topic. `Alive` names the existing topic.
7. `Gone` refuses messages that lack the proposal of a participant. Proposals are in all inboxes or in none, so all
   decide alike. Such a message gets no timestamp.
8. A successor takes the proposals of this topic from the log, at the records that caused them. To compute them again
   would give others, because timestamps that came later have moved the clock.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from kafka_pubsub.multicast.layout import place_of
from kafka_pubsub.multicast.release_queue import ReleaseQueue
from kafka_pubsub.multicast.values import (
    Alive,
    Gone,
    Output,
    Proposal,
    Propose,
    Refuse,
    Release,
    Said,
    Stage,
    Timestamp,
)

__all__ = ["START", "Checkpoint", "Sequencer"]


class Checkpoint(NamedTuple):
    """The state from which a successor goes on: reads the inbox from `oldest`, is its own successor until `position`.

    `oldest`: the offset of the first stage that isn't released, else `position`. `alive`: the id of the topic that is
    there; empty: the topic was deleted, or never made.
    """

    clock: int
    oldest: int
    position: int
    alive: str = ""


#: Of a new inbox.
START = Checkpoint(0, 0, 0)


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


class Sequencer:
    """The sequencer of an inbox, by its participant's name. `own`: its proposals in the log by their cause."""

    def __init__(
        self,
        name: str,
        checkpoint: Checkpoint = START,
        own: Mapping[int, Sequence[Proposal]] = MappingProxyType({}),
    ) -> None:
        self.name = name
        self._topic = place_of(name).topic
        self.clock = checkpoint.clock
        self.alive = checkpoint.alive
        self._position = checkpoint.oldest
        self._known_until = checkpoint.position
        self._own = own
        self._proposed = {each.message for some in own.values() for each in some}
        # Whether the record that is being taken was taken before, by an earlier sequencer.
        self._again = False
        # By the order of their stages.
        self._pending: dict[str, _Pending] = {}
        self._queue = ReleaseQueue()
        # Deletions of this topic that wait for messages before them.
        self._deletions: dict[str, None] = {}

    @property
    def checkpoint(self) -> Checkpoint:
        """The state from which a successor goes on; never less than the state with which this sequencer began."""
        first = next(iter(self._pending.values()), None)
        oldest = self._position if first is None else first.offset
        return Checkpoint(self.clock, oldest, max(self._position, self._known_until), self.alive)

    @property
    def waiting(self) -> int:
        """How many messages aren't released."""
        return len(self._pending)

    def holds(self, message: str) -> bool:
        """Returns whether the message is staged and isn't released."""
        return message in self._pending

    def lacking(self) -> set[str]:
        """Returns the participants whose proposals are missing, once all that a predecessor took was taken."""
        if self._position < self._known_until:
            return set()
        pending = (each for each in self._pending.values() if each.final is None)
        return {name for each in pending for name in each.stage.participants if name not in each.proposals}

    def blocked(self) -> tuple[str, tuple[str, ...]] | None:
        """Returns the unreleased message that no other may pass, and the participants that haven't proposed.

        None: all messages are released.
        """
        message = self._queue.first() or next(iter(self._pending), None)
        if message is None:
            return None
        pending = self._pending[message]
        return message, tuple(each for each in pending.stage.participants if each not in pending.proposals)

    def take(self, offset: int, record: Said) -> list[Output]:
        """Takes the next record; returns the records to store together with the position behind it."""
        self._again, self._position = offset < self._known_until, offset + 1
        outputs: list[Output] = []
        if isinstance(record, Stage):
            self._stage(offset, record, outputs)
        elif isinstance(record, Gone):
            self._drop(record.participant, outputs)
        elif isinstance(record, Alive):
            self.alive = self.alive if self._again else record.topic_id
        elif record.timestamp.topic != self.name and record.message in self._pending:
            self._add(record, outputs)
        if self._again:
            for own in self._own.get(offset, ()):
                if own.message in self._pending:
                    self._add(own, outputs)
        outputs += self._release()
        if self._again:
            return []  # the proposal was stored before
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
        if self.name not in stage.participants or stage.message in self._pending:
            return
        pending = _Pending(stage, offset)
        topic, _, topic_id = stage.deletes.partition("@")
        mine = topic == self._topic
        if mine:
            pending.before = {
                message
                for message, each in self._pending.items()
                if each.final is None and not each.stage.deletes
            }
        alone = len(stage.participants) == 1
        if self._again and alone and not pending.before and stage.message not in self._proposed:
            return  # the message was released at once
        self._pending[stage.message] = pending
        if mine and topic_id == self.alive and not self._again:
            self.alive = ""
        if pending.before:
            self._deletions[stage.message] = None
        else:
            self._propose(pending, outputs)

    def _propose(self, pending: _Pending, outputs: list[Output]) -> None:
        if self._again:
            return
        stage = pending.stage
        self.clock = max(self.clock, stage.estimate) + 1
        deleted = not self.alive and not stage.deletes
        proposal = Proposal(stage.message, Timestamp(self.clock, self.name), deleted, self._position - 1)
        outputs.append(Propose(stage.participants, proposal))
        self._add(proposal, outputs)

    def _add(self, proposal: Proposal, outputs: list[Output]) -> None:
        pending = self._pending[proposal.message]
        pending.proposals[proposal.timestamp.topic] = proposal
        if self.name in pending.proposals:
            self._queue.raise_to(proposal.message, max(each.timestamp for each in pending.proposals.values()))
        if pending.final is None and len(pending.proposals) == len(pending.stage.participants):
            self._finish(pending, outputs)

    def _finish(self, pending: _Pending, outputs: list[Output]) -> None:
        pending.final = max(each.timestamp for each in pending.proposals.values())
        self.clock = max(self.clock, pending.final.clock)
        self._let_go(pending.stage.message, outputs)

    def _let_go(self, message: str, outputs: list[Output]) -> None:
        """Lets this topic's deletions propose that waited for this message only."""
        for other in list(self._deletions):
            deletion = self._pending[other]
            deletion.before.discard(message)
            if not deletion.before:
                del self._deletions[other]
                self._propose(deletion, outputs)

    def _drop(self, participant: str, outputs: list[Output]) -> None:
        """Refuses messages that lack the proposal of a participant that is gone."""
        for message, pending in list(self._pending.items()):
            if (
                pending.final is not None
                or participant not in pending.stage.participants
                or participant in pending.proposals
            ):
                continue
            del self._pending[message]
            self._queue.remove(message)
            self._deletions.pop(message, None)
            outputs.append(Refuse(message, None, (participant,)))
            self._let_go(message, outputs)

    def _release(self) -> Iterator[Output]:
        while (message := self._queue.first()) is not None:
            pending = self._pending[message]
            if pending.final is None:
                return
            self._queue.remove(message)
            del self._pending[message]
            stage = pending.stage
            deleted = {topic for topic, each in pending.proposals.items() if each.deleted}
            gone = tuple(each for each in stage.destinations if each in deleted)
            if gone:
                yield Refuse(message, pending.final, gone)
            elif self.name in stage.destinations:
                invalid = tuple(each for each in stage.handles if each in deleted)
                yield Release(message, pending.final, invalid)
