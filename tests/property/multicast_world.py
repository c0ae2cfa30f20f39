"""Topics, senders and handles under a random schedule: what causal multicast promises, on the sequencers alone.

Inboxes are lists, and what a sequencer answers is appended to them at one moment, as a transaction does. A sequencer
may be replaced by a successor at any step, which knows its checkpoint and the log. Senders know what was released
anywhere (side channels), and stage nothing while a deletion or a message to several topics of theirs wasn't released.

What is checked
1. Each message is released once at each of its destinations, or refused at all of its participants' destinations.
2. Two messages with common destinations come in one order at all of them: that of their timestamps.
3. A message comes after all messages that were released anywhere before it was staged, after those that its sender
   staged before, and after the causes of all these.
4. It comes to an end.
5. A message is refused if and only if the deletion of one of its destinations comes before it; a handle is invalid if
   and only if the deletion of its topic does.
6. A successor is in the state of its predecessor. It says from the beginning that it is as far, because it may commit
   that and die before it has read again.
"""

from __future__ import annotations

import random
from itertools import combinations
from typing import Any

from kafka_pubsub.core.multicast.sequencer import START, Checkpoint, Sequencer
from kafka_pubsub.core.multicast.values import Proposal, Propose, Refuse, Release, Stage, Timestamp

__all__ = ["Topic", "World", "run"]


#: More than any schedule needs.
STEPS = 20_000


class Topic:
    """A topic: its inbox, its home, and its present sequencer."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.inbox: list[Stage | Proposal] = []
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


def state(sequencer: Sequencer) -> Any:
    """What a sequencer knows, in a form that can be compared."""
    pending = {
        message: (each.stage, each.offset, each.final, each.before, dict(sorted(each.proposals.items())))
        for message, each in sequencer._pending.items()
    }
    return sequencer.checkpoint, pending, sequencer._queue._bounds, sequencer._deletions, sequencer._untold


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
        #: How many messages one sender stages at most.
        self.each = messages if each is None else each
        self.stages: dict[str, Stage] = {}
        self.sender: dict[str, int] = {}
        self.causes: dict[str, set[str]] = {}
        self.released: set[str] = set()
        self.timestamps: dict[str, Timestamp] = {}
        #: Proposals that aren't stored yet, with their topic. Only a broken sequencer sends them one by one.
        self.in_transit: list[tuple[Topic, Proposal]] = []
        self.together = True

    def play(self) -> None:
        """Takes steps until nothing is left to do."""
        for _ in range(STEPS):
            busy = [each for each in self.topics.values() if each.sequencer._position < len(each.inbox)]
            choices: list[Topic | str] = [*busy]
            choices += ["stage"] * (len(self.stages) < self.messages) + ["arrive"] * bool(self.in_transit)
            if not choices:
                return
            choice = self.random.choice(choices)
            if choice == "stage":
                self.stage()
            elif isinstance(choice, Topic):
                self.take(choice)
            else:
                topic, proposal = self.in_transit.pop(self.random.randrange(len(self.in_transit)))
                topic.inbox.append(proposal)
        raise AssertionError("it doesn't come to an end")

    def stage(self) -> None:
        """Lets a sender stage a message, unless an earlier one isn't sent yet."""
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
        deletes = self.random.choice(destinations) if self.random.random() < 0.1 else ""
        handles = tuple(self.random.sample(names, 1)) if not deletes and self.random.random() < 0.3 else ()
        estimate = self.random.choice([0, max((at.clock for at in self.timestamps.values()), default=0)])
        return Stage(name, destinations, handles, deletes, estimate)

    def add(self, sender: int, stage: Stage) -> None:
        """Stores a stage in all inboxes at one moment."""
        name = stage.message
        causes = self.released | {each for each in self.stages if self.sender[each] == sender}
        self.causes[name] = causes.union(*(self.causes[each] for each in causes))
        self.stages[name], self.sender[name] = stage, sender
        for each in stage.participants:
            self.topics[each].inbox.append(stage)

    def take(self, topic: Topic) -> None:
        """Lets a sequencer take a record; its answer and its position are stored at one moment, or neither."""
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
                assert self.timestamps.setdefault(output.message, output.timestamp) == output.timestamp
                topic.home.append(output)
                self.released.add(output.message)
                continue
            for name in output.topics:
                if self.together or name == topic.name:
                    self.topics[name].inbox.append(output.proposal)
                else:
                    self.in_transit.append((self.topics[name], output.proposal))

    def check(self) -> None:
        """Raises `AssertionError` if a promise is broken."""
        for topic in self.topics.values():
            got = sorted(
                each.message for each in topic.home if topic.name in self.stages[each.message].destinations
            )
            want = sorted(name for name, stage in self.stages.items() if topic.name in stage.destinations)
            assert got == want, f"lost or doubled at {topic.name}"
            clocks = [each.timestamp for each in topic.home]
            assert clocks == sorted(set(clocks)), f"{topic.name} isn't in the order of timestamps"
        places = {
            topic.name: {each.message: at for at, each in enumerate(topic.home)}
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
        deleted: dict[str, Timestamp] = {}
        for name, stage in self.stages.items():
            if stage.deletes:
                at = self.timestamps[name]
                deleted[stage.deletes] = min(at, deleted.get(stage.deletes, at))
        for topic in self.topics.values():
            for each in topic.home:
                stage, after = (
                    self.stages[each.message],
                    {n for n, at in deleted.items() if at < each.timestamp},
                )
                gone = () if stage.deletes else tuple(name for name in stage.destinations if name in after)
                if isinstance(each, Refuse):
                    assert each.deleted == gone
                    assert gone, f"{each.message} was refused for no reason"
                else:
                    assert not gone, f"{each.message} came to a topic after its deletion"
                    assert each.invalid == tuple(name for name in stage.handles if name in after)


def run(seed: int, **settings: Any) -> None:
    """Plays one schedule and checks it."""
    world = World(seed, **settings)
    world.play()
    world.check()
