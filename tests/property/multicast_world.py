"""Topics, senders and handles under a random schedule: the promises of causal multicast, on the sequencers alone.

Inboxes are lists, and a sequencer's answers are appended to them at a moment, as a transaction does. A sequencer
may be replaced by a successor at any step, which knows its checkpoint and the log. Senders know which messages were
released anywhere (side channels), and stage nothing while a deletion or a message to several topics of theirs wasn't
released.

Checked
1. Each message is released once at each of its destinations, or refused at all of its participants' destinations.
2. Two messages with common destinations come in a single order at all of them: that of their timestamps.
3. A message comes after all messages that were released anywhere before its staging, after the messages that its sender
   staged before, and after the causes of all these.
4. The world comes to an end.
5. A message is refused if and only if it lies behind the deletion of one of its destinations in that topic's inbox; a
   handle is invalid if and only if the message lies behind the deletion of its topic there. A topic's messages come
   before its deletion.
6. A successor is in the state of its predecessor. From the beginning it claims to be as far, because it may commit
   that position and die before it has read again.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

from kafka_pubsub.multicast.sequencer import START, Checkpoint, Sequencer
from kafka_pubsub.multicast.values import (
    Alive,
    Proposal,
    Propose,
    Refuse,
    Release,
    Said,
    Stage,
    Timestamp,
)

__all__ = ["Topic", "World", "place", "run"]


#: More than any schedule needs.
STEPS = 20_000


class Topic:
    """A topic: its inbox, its home, and its present sequencer."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.inbox: list[Said] = [Alive("id")]
        self.home: list[Release | Refuse] = []
        self.checkpoint: Checkpoint = START
        self.sequencer = Sequencer(name)

    def succeed(self) -> None:
        """Replaces the sequencer by a successor, which knows the same."""
        before = self.sequencer
        self.restart()
        assert state(self.sequencer) == state(before), "a successor differs"

    def restart(self) -> None:
        """Begins at the checkpoint, and reads the log up to where it was stored."""
        checkpoint = self.checkpoint
        own: dict[int, list[Proposal]] = {}
        for record in self.inbox:
            if isinstance(record, Proposal) and record.timestamp.topic == self.name:
                own.setdefault(record.cause, []).append(record)
        self.sequencer = Sequencer(self.name, checkpoint, own)
        assert self.sequencer.checkpoint == checkpoint, "it commits less than its predecessor"
        for offset in range(checkpoint.oldest, checkpoint.position):
            assert self.sequencer.take(offset, self.inbox[offset]) == []
            assert self.sequencer.checkpoint.position == checkpoint.position


def place(output: Release | Refuse) -> Timestamp:
    """Returns the place in the order; nothing is gone here, so each message has a place."""
    assert output.timestamp is not None
    return output.timestamp


def state(sequencer: Sequencer) -> Any:
    """A sequencer's knowledge, in a form that can be compared."""
    pending = {
        message: (each.stage, each.offset, each.final, each.before, dict(sorted(each.proposals.items())))
        for message, each in sequencer._pending.items()
    }
    return sequencer.checkpoint, pending, sequencer._queue._bounds, sequencer._deletions


class World:
    """Some topics and senders; `seed` gives the schedule."""

    def __init__(
        self,
        seed: int,
        topics: int = 4,
        senders: int = 3,
        messages: int = 16,
        crashes: float = 0.1,
        each: int | None = None,
    ) -> None:
        self.random = random.Random(seed)
        self.topics = {f"t{number}": Topic(f"t{number}") for number in range(topics)}
        self.senders, self.messages, self.crashes = senders, messages, crashes
        #: How many messages a sender stages at most.
        self.each = messages if each is None else each
        self.stages: dict[str, Stage] = {}
        self.sender: dict[str, int] = {}
        self.causes: dict[str, set[str]] = {}
        self.released: set[str] = set()
        self.timestamps: dict[str, Timestamp] = {}
        #: Proposals that aren't stored yet, with their topic. Only a broken sequencer sends them separately.
        self.in_transit: list[tuple[Topic, Proposal]] = []
        self.together = True

    def play(self) -> None:
        """Takes steps until nothing is left to do."""
        for _ in range(STEPS):
            busy = [each for each in self.topics.values() if each.sequencer._position < len(each.inbox)]
            choices: list[Topic | str | Callable[[], None]] = [*busy, *self.disturbances()]
            choices += ["stage"] * (len(self.stages) < self.messages) + ["arrive"] * bool(self.in_transit)
            if not choices:
                return
            choice = self.random.choice(choices)
            if choice == "stage":
                self.stage()
            elif isinstance(choice, Topic):
                self.take(choice)
            elif callable(choice):
                choice()
            else:
                topic, proposal = self.in_transit.pop(self.random.randrange(len(self.in_transit)))
                topic.inbox.append(proposal)
        raise AssertionError("it doesn't come to an end")

    def disturbances(self) -> list[Callable[[], None]]:
        """Returns the other steps that may happen now."""
        return []

    def stage(self) -> None:
        """Lets a sender stage a message, unless an earlier message isn't sent yet."""
        sender = self.random.randrange(self.senders)
        mine = [each for each in self.stages if self.sender[each] == sender]
        if len(mine) == self.each or self.waits(mine):
            return
        self.add(sender, self.draw(f"m{len(self.stages)}"))

    def waits(self, mine: list[str]) -> bool:
        """Whether a sender has a deletion, or a message to several topics, that wasn't released anywhere."""
        stages = (self.stages[each] for each in mine if each not in self.released)
        return any(each.deletes or len(each.participants) > 1 for each in stages)

    def draw(self, name: str) -> Stage:
        """Returns any message."""
        names = sorted(self.topics)
        destinations = tuple(self.random.sample(names, self.random.randint(1, len(names))))
        deletes = f"{self.random.choice(destinations)}@id" if self.random.random() < 0.1 else ""
        handles = tuple(self.random.sample(names, 1)) if not deletes and self.random.random() < 0.3 else ()
        estimate = self.random.choice([0, max((at.clock for at in self.timestamps.values()), default=0)])
        return Stage(name, destinations, handles, deletes, estimate)

    def add(self, sender: int, stage: Stage) -> None:
        """Stores a stage in all inboxes at a single moment."""
        name = stage.message
        causes = self.released | {each for each in self.stages if self.sender[each] == sender}
        self.causes[name] = causes.union(*(self.causes[each] for each in causes))
        self.stages[name], self.sender[name] = stage, sender
        self.write(stage.participants, stage)

    def write(self, names: Sequence[str], record: Said) -> None:
        """Appends a record to inboxes."""
        for each in names:
            self.topics[each].inbox.append(record)

    def take(self, topic: Topic) -> None:
        """Lets a sequencer take a record; its answer and its position are stored at a single moment, or neither."""
        if self.random.random() < self.crashes:
            topic.succeed()
        offset = topic.sequencer._position
        outputs = topic.sequencer.take(offset, topic.inbox[offset])
        if self.random.random() < self.crashes:  # its transaction is aborted
            topic.restart()
            return
        topic.checkpoint = topic.sequencer.checkpoint
        for output in outputs:
            if not isinstance(output, Propose):
                if output.timestamp is not None:
                    assert self.timestamps.setdefault(output.message, place(output)) == output.timestamp
                topic.home.append(output)
                self.released.add(output.message)
                continue
            if self.together:
                self.write(output.topics, output.proposal)
                continue
            self.write([topic.name], output.proposal)
            others = (self.topics[each] for each in output.topics if each != topic.name)
            self.in_transit += [(each, output.proposal) for each in others]

    def present(self) -> Sequence[Topic]:
        """Returns the topics whose homes count."""
        return list(self.topics.values())

    def check(self) -> None:
        """Raises `AssertionError` if a promise is broken."""
        for topic in self.present():
            got = sorted(
                each.message for each in topic.home if topic.name in self.stages[each.message].destinations
            )
            want = sorted(name for name, stage in self.stages.items() if topic.name in stage.destinations)
            assert got == want, f"lost or doubled at {topic.name}"
            clocks = [each.timestamp for each in topic.home if each.timestamp is not None]
            assert clocks == sorted(set(clocks)), f"{topic.name} isn't in the order of timestamps"
        places = {
            topic.name: {each.message: at for at, each in enumerate(topic.home) if each.timestamp is not None}
            for topic in self.topics.values()
        }
        for one, other in combinations(self.stages, 2):
            orders = {at[one] < at[other] for at in places.values() if one in at and other in at}
            assert len(orders) < 2, f"{one} and {other} come in two orders"
        for message, causes in self.causes.items():
            for at in places.values():
                assert all(at[each] < at[message] for each in causes if each in at and message in at), (
                    f"{message} comes before its cause"
                )
        self._check_deletions()

    def _check_deletions(self) -> None:
        behind = {topic.name: self._behind(topic) for topic in self.topics.values()}
        for topic in self.topics.values():
            for each in topic.home:
                if each.timestamp is None:
                    continue
                stage = self.stages[each.message]
                after = {name for name, some in behind.items() if each.message in some}
                gone = () if stage.deletes else tuple(name for name in stage.destinations if name in after)
                if isinstance(each, Refuse):
                    assert each.deleted == gone
                    assert gone, f"{each.message} was refused for no reason"
                else:
                    assert not gone, f"{each.message} came to a topic after its deletion"
                    assert each.invalid == tuple(name for name in stage.handles if name in after)
            if sum(isinstance(each, Alive) for each in topic.inbox) == 1:
                self._check_nothing_follows(topic)

    def _behind(self, topic: Topic) -> set[str]:
        """Returns the messages that lie where the topic is deleted."""
        alive, found = "", set()
        for record in topic.inbox:
            if isinstance(record, Alive):
                alive = record.topic_id
            elif isinstance(record, Stage):
                if record.deletes == f"{topic.name}@{alive}":
                    alive = ""
                elif not alive:
                    found.add(record.message)
        return found

    def _check_nothing_follows(self, topic: Topic) -> None:
        came = [self.stages[each.message] for each in topic.home if isinstance(each, Release)]
        own = [each.deletes.partition("@")[0] == topic.name for each in came]
        if True in own:
            assert all(each.deletes for each in came[own.index(True) :]), (
                f"{topic.name} got more after its end"
            )


def run(seed: int, **settings: Any) -> None:
    """Plays a single schedule and checks it."""
    world = World(seed, **settings)
    world.play()
    world.check()
