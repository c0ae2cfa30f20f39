"""Topics that are deleted and made again, and inboxes that get lost, under a random schedule.

A lost inbox takes no records any more, and its sequencer makes no proposals; the catalog doesn't list it. Senders whose
catalog is old still stage messages for it, at their other topics. Sequencers that wait for it say `Gone` in their own
inboxes, some time. A deletion in doubt is repeated, also after the topic was made again.

Checked beside the promises of `multicast_world.py`
1. A message is released at all of its destinations that are there, or at none.
2. Nothing waits for ever.
3. A message whose topics are all there and weren't deleted isn't refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from kafka_pubsub.multicast.values import Alive, Gone, Refuse, Said, Stage
from tests.property.multicast_world import Topic, World

__all__ = ["LossyWorld", "run_lossy"]


class LossyWorld(World):
    """A world in which inboxes get lost and topics are made again."""

    def __init__(self, seed: int, **settings: Any) -> None:
        super().__init__(seed, **settings)
        self.lost: set[str] = set()
        #: Participants that are said to be gone in each inbox, where that wasn't read yet.
        self.said: dict[str, set[str]] = {name: set() for name in self.topics}
        self.ids = dict.fromkeys(self.topics, 1)

    def disturbances(self) -> list[Callable[[], None]]:
        found: list[Callable[[], None]] = [partial(self.say, *each) for each in self.unsaid()]
        there = [each for each in self.topics.values() if each.name not in self.lost]
        busy = len(self.stages) < self.messages
        if busy and len(there) > 1 and self.random.random() < 0.02:
            found.append(partial(self.lose, self.random.choice(there)))
        for topic in there:
            deleted = any(self.stages[each.message].deletes == self.deletion_of(topic) for each in topic.home)
            if busy and deleted:
                found.append(partial(self.make_again, topic))
        return found

    def deletion_of(self, topic: Topic) -> str:
        """Returns how a deletion names the topic that is there."""
        return f"{topic.name}@{self.id_of(topic.name)}"

    def id_of(self, name: str) -> str:
        """Returns the id of the topic of this name."""
        return "id" * self.ids[name]

    def unsaid(self) -> list[tuple[Topic, str]]:
        """Returns which sequencers wait for which lost inboxes, and haven't said so."""
        return [
            (topic, name)
            for topic in self.topics.values()
            if topic.name not in self.lost
            for name in sorted((topic.sequencer.lacking() & self.lost) - self.said[topic.name])
        ]

    def say(self, topic: Topic, name: str) -> None:
        """Says in a topic's inbox that a participant is gone."""
        self.said[topic.name].add(name)
        topic.inbox.append(Gone(name))

    def lose(self, topic: Topic) -> None:
        """An inbox gets lost: it takes no record any more, and none of it can be read."""
        self.lost.add(topic.name)
        del topic.inbox[topic.sequencer._position :]

    def make_again(self, topic: Topic) -> None:
        """A topic that was deleted is made again."""
        self.ids[topic.name] += 1
        topic.inbox.append(Alive(self.id_of(topic.name)))

    def write(self, names: Sequence[str], record: Said) -> None:
        super().write([each for each in names if each not in self.lost], record)

    def draw(self, name: str) -> Stage:
        stage = super().draw(name)
        stale = self.random.random() < 0.2
        there = tuple(each for each in stage.destinations if stale or each not in self.lost)
        deleted = stage.deletes.partition("@")[0]
        if not there or not set(there) - self.lost or (deleted and deleted not in there):
            there, deleted = (self.random.choice(sorted(set(self.topics) - self.lost)),), ""
        number = self.random.randint(1, self.ids[deleted]) if deleted else 0
        deletes = f"{deleted}@{'id' * number}" if deleted else ""
        handles = () if deleted else tuple(each for each in stage.handles if stale or each not in self.lost)
        return stage._replace(destinations=there, deletes=deletes, handles=handles)

    def waits(self, mine: list[str]) -> bool:
        return super().waits([each for each in mine if set(self.stages[each].destinations) - self.lost])

    def take(self, topic: Topic) -> None:
        record = topic.inbox[topic.sequencer._position]
        super().take(topic)
        if isinstance(record, Gone) and topic.checkpoint.position == topic.sequencer._position:
            self.said[topic.name].discard(record.participant)

    def present(self) -> Sequence[Topic]:
        return [each for each in self.topics.values() if each.name not in self.lost]

    def check(self) -> None:
        for name in self.lost:
            self.topics[name].home.clear()
        for topic in self.present():
            assert not topic.sequencer.waiting, f"{topic.name} waits for ever"
        super().check()
        for name, stage in self.stages.items():
            there = [self.topics[each] for each in stage.destinations if each not in self.lost]
            kinds = {type(each) for topic in there for each in topic.home if each.message == name}
            assert len(kinds) < 2, f"{name} is torn"
            refused = [each for topic in there for each in topic.home if each.message == name]
            assert self.lost & set(stage.participants) or not any(
                isinstance(each, Refuse) and each.timestamp is None for each in refused
            ), f"{name} was refused for no reason"


def run_lossy(seed: int, **settings: Any) -> None:
    """Plays a single schedule and checks it."""
    world = LossyWorld(seed, **settings)
    world.play()
    world.check()
