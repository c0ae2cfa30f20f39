"""The rules of causal multicast, each broken on purpose: the world must notice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from kafka_pubsub.multicast.release_queue import ReleaseQueue
from kafka_pubsub.multicast.sequencer import START, Checkpoint, Sequencer
from kafka_pubsub.multicast.values import Output, Proposal, Propose, Refuse, Release, Stage, Timestamp
from tests.property.multicast_losses import LossyWorld
from tests.property.multicast_world import Topic, World

__all__ = ["MUTATIONS", "MUTATIONS_OF_LOSSES", "NOTICED_IN_PLANS"]

Patch = pytest.MonkeyPatch


def checkpoint_of() -> Callable[[Sequencer], Checkpoint]:
    """Returns the function behind `Sequencer.checkpoint`."""
    return cast("Callable[[Sequencer], Checkpoint]", vars(Sequencer)["checkpoint"].fget)


def clock_behind(patch: Patch) -> None:
    """A clock isn't brought up to the timestamps that become known."""
    real = Sequencer._finish

    def finish(self: Sequencer, pending: Any, outputs: list[Output]) -> None:
        before = self.clock
        real(self, pending, outputs)
        self.clock = max(
            [before, *(each.proposal.timestamp.clock for each in outputs if isinstance(each, Propose))]
        )

    patch.setattr(Sequencer, "_finish", finish)


def one_by_one(patch: Patch) -> None:
    """A proposal reaches the inboxes in turn."""
    real = World.__init__

    def init(self: World, *arguments: Any, **settings: Any) -> None:
        real(self, *arguments, **settings)
        self.together = False

    patch.setattr(World, "__init__", init)


def no_blocks(patch: Patch) -> None:
    """A message is released although another message may get a lower timestamp."""
    real = Sequencer._release

    def release(self: Sequencer) -> Any:
        blocked = {each: at for each, at in self._queue._bounds.items() if self._pending[each].final is None}
        for each in blocked:
            self._queue.remove(each)
        yield from real(self)
        for each, at in blocked.items():
            self._queue.raise_to(each, at)

    patch.setattr(Sequencer, "_release", release)


def any_sender(patch: Patch) -> None:
    """A sender stages a message while an earlier message isn't sent."""
    patch.setattr(World, "waits", lambda self, mine: False)


def no_ties(patch: Patch) -> None:
    """Equal clocks aren't decided by the topics' names, but by the order in which messages came."""
    real = ReleaseQueue.raise_to

    def raise_to(self: ReleaseQueue, message: str, bound: Timestamp) -> None:
        came = len(self._heap) if message not in self._bounds else int(self._bounds[message].topic)
        real(self, message, Timestamp(bound.clock, f"{came:06}"))

    patch.setattr(ReleaseQueue, "raise_to", raise_to)


def computed_again(patch: Patch) -> None:
    """A successor computes the proposals anew."""
    real = Sequencer.__init__

    def init(self: Sequencer, name: str, checkpoint: Checkpoint = START, own: Any = None) -> None:
        real(self, name, checkpoint._replace(position=0), {})

    patch.setattr(Sequencer, "__init__", init)


def oldest_forgotten(patch: Patch) -> None:
    """A checkpoint doesn't name the oldest unreleased stage."""
    real = checkpoint_of()
    patch.setattr(Sequencer, "checkpoint", property(lambda self: _at_position(real(self))))


def _at_position(checkpoint: Checkpoint) -> Checkpoint:
    return checkpoint._replace(oldest=checkpoint.position)


def position_lowered(patch: Patch) -> None:
    """A successor commits how far it has read again, which is less than its predecessor committed."""
    real = checkpoint_of()
    patch.setattr(
        Sequencer, "checkpoint", property(lambda self: real(self)._replace(position=self._position))
    )


def clock_forgotten(patch: Patch) -> None:
    """A checkpoint doesn't hold the clock."""
    real = checkpoint_of()
    patch.setattr(Sequencer, "checkpoint", property(lambda self: real(self)._replace(clock=0)))


def deletion_at_once(patch: Patch) -> None:
    """A topic proposes for its own deletion before earlier messages have their timestamps."""
    real = Sequencer._stage

    def stage(self: Sequencer, offset: int, stage: Stage, outputs: list[Output]) -> None:
        finals = {each: pending.final for each, pending in self._pending.items()}
        for each in self._pending.values():
            each.final = each.final or Timestamp(0, "")
        real(self, offset, stage, outputs)
        for message, final in finals.items():
            self._pending[message].final = final

    patch.setattr(Sequencer, "_stage", stage)


def behind_accepted(patch: Patch) -> None:
    """Messages behind a deletion in the topic's inbox aren't refused."""
    real = Sequencer._propose

    def propose(self: Sequencer, pending: Any, outputs: list[Output]) -> None:
        alive, self.alive = self.alive, "id"
        real(self, pending, outputs)
        self.alive = alive

    patch.setattr(Sequencer, "_propose", propose)


def deletion_forgotten(patch: Patch) -> None:
    """A successor doesn't know that its topic was deleted."""
    real = checkpoint_of()
    patch.setattr(Sequencer, "checkpoint", property(lambda self: real(self)._replace(alive="id")))


def refused_here_only(patch: Patch) -> None:
    """A destination that isn't deleted releases a message that another destination refuses."""
    real = Sequencer._release

    def release(self: Sequencer) -> Iterator[Output]:
        for each in real(self):
            if isinstance(each, Refuse) and each.timestamp is not None and self.name not in each.deleted:
                yield Release(each.message, each.timestamp)
            else:
                yield each

    patch.setattr(Sequencer, "_release", release)


def out_of_order(patch: Patch) -> None:
    """An inbox is taken in another order than the log's: a proposal before its stage is dropped."""
    real = World.take

    def take(self: World, topic: Topic) -> None:
        at = topic.sequencer._position
        if at + 1 < len(topic.inbox) and self.random.random() < 0.3:
            one, other = topic.inbox[at : at + 2]
            if isinstance(one, Stage) and isinstance(other, Stage | Proposal):
                topic.inbox[at : at + 2] = other, one
        real(self, topic)

    patch.setattr(World, "take", take)


def position_apart(patch: Patch) -> None:
    """A position is stored although the results of the records below it aren't."""
    real = World.take

    def take(self: World, topic: Topic) -> None:
        before = topic.checkpoint
        real(self, topic)
        if topic.checkpoint == before and topic.inbox[before.position :] and self.random.random() < 0.3:
            topic.checkpoint = before._replace(position=before.position + 1, oldest=before.position + 1)
            topic.restart()

    patch.setattr(World, "take", take)


def read_to_the_position(patch: Patch) -> None:
    """A successor reads its inbox up to its position, and no further to the end, before it goes on."""
    real = Topic.restart

    def restart(self: Topic) -> None:
        whole = self.inbox
        self.inbox = whole[: self.checkpoint.position]
        real(self)
        self.inbox = whole

    patch.setattr(Topic, "restart", restart)


def handles_always_valid(patch: Patch) -> None:
    """A message keeps handles to topics that were deleted before it."""
    real = Sequencer._release

    def release(self: Sequencer) -> Iterator[Output]:
        for each in real(self):
            yield each._replace(invalid=()) if isinstance(each, Release) else each

    patch.setattr(Sequencer, "_release", release)


def gone_on_the_spot(patch: Patch) -> None:
    """A sequencer acts at once when the catalog doesn't list a participant, without a record of it."""

    def say(self: LossyWorld, topic: Topic, name: str) -> None:
        outputs: list[Output] = []
        topic.sequencer._drop(name, outputs)
        outputs += topic.sequencer._release()
        topic.home += [each for each in outputs if not isinstance(each, Propose)]
        topic.checkpoint = topic.sequencer.checkpoint

    patch.setattr(LossyWorld, "say", say)


def gone_by_a_broker(patch: Patch) -> None:
    """A participant counts as gone because a broker doesn't find it."""
    real = LossyWorld.unsaid

    def unsaid(self: LossyWorld) -> list[tuple[Topic, str]]:
        there = [each for each in self.topics.values() if each.name not in self.lost]
        wrong = [(each, name) for each in there for name in sorted(each.sequencer.lacking())]
        return real(self) + (wrong if self.random.random() < 0.05 else [])

    patch.setattr(LossyWorld, "unsaid", unsaid)


def gone_unfenced(patch: Patch) -> None:
    """The catalog says that an inbox is gone while its sequencer still stores proposals."""
    real = LossyWorld.lose

    def lose(self: LossyWorld, topic: Topic) -> None:
        while topic.sequencer._position < len(topic.inbox):
            at = topic.sequencer._position
            for output in topic.sequencer.take(at, topic.inbox[at]):
                if isinstance(output, Propose):
                    names = set(output.topics) - self.lost - {topic.name}
                    self.in_transit += [(self.topics[each], output.proposal) for each in sorted(names)]
        real(self, topic)

    patch.setattr(LossyWorld, "lose", lose)


def gone_said_once(patch: Patch) -> None:
    """A participant that was said to be gone isn't named again for later stages."""
    patch.setattr(LossyWorld, "take", World.take)


def any_deletion(patch: Patch) -> None:
    """A deletion that is repeated deletes the topic that was made meanwhile."""
    real = Sequencer._stage

    def stage(self: Sequencer, offset: int, stage: Stage, outputs: list[Output]) -> None:
        name, _, deleted = stage.deletes.partition("@")
        named = stage._replace(deletes=f"{name}@{self.alive}") if deleted and self.alive else stage
        real(self, offset, named, outputs)

    patch.setattr(Sequencer, "_stage", stage)


def alive_forgotten(patch: Patch) -> None:
    """A topic that was made again stays deleted for a successor."""
    real = checkpoint_of()

    def checkpoint(self: Sequencer) -> Checkpoint:
        said = real(self)
        return said._replace(alive="" if len(said.alive) > len("id") else said.alive)

    patch.setattr(Sequencer, "checkpoint", property(checkpoint))


#: Mutations that only a world notices in which inboxes get lost and topics are made again.
MUTATIONS_OF_LOSSES: list[Callable[[Patch], None]] = [
    alive_forgotten,
    any_deletion,
    gone_by_a_broker,
    gone_on_the_spot,
    gone_said_once,
    gone_unfenced,
]

MUTATIONS: list[Callable[[Patch], None]] = [
    clock_behind,
    one_by_one,
    no_blocks,
    any_sender,
    no_ties,
    computed_again,
    oldest_forgotten,
    position_lowered,
    clock_forgotten,
    deletion_at_once,
    behind_accepted,
    deletion_forgotten,
    refused_here_only,
    out_of_order,
    position_apart,
    read_to_the_position,
    handles_always_valid,
]

#: Mutations that break a promise in some schedule of a small plan; the others need more messages, or chance.
NOTICED_IN_PLANS = [
    each
    for each in MUTATIONS
    if each not in (any_sender, deletion_at_once, one_by_one, out_of_order, position_apart)
]
