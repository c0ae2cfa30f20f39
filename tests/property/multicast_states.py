"""Every schedule of a small plan of multicasts, instead of random ones: all states that can be reached are visited.

A state is everything that survives a crash: inboxes, homes, checkpoints and which stage caused which. So a sequencer
that takes a record is always the successor of a crashed one, and after the record it must be in the state of another
successor: a crash between any two steps leads to no other state.

Why it is small enough
1. A state is visited once, however it was reached.
2. A record whose taking nobody else can notice (no proposals, no first release of a message) is taken at once: every
   other step has the same result before and after it.
3. Records that a sequencer has taken count as its knowledge, in whatever order the log has them; its own proposals,
   which it passes over, don't count.

Every step takes a record, stores a stage, or lets a proposal arrive, and there are finitely many of them. So a schedule
comes to an end, and a message that is complete at each end always makes progress.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kafka_pubsub.multicast.sequencer import Sequencer
from kafka_pubsub.multicast.values import Proposal, Said, Stage
from tests.property.multicast_world import Topic, World

__all__ = ["LARGE_PLANS", "PLANS", "Plan", "explore"]

#: The messages of each sender, in the order of staging. Their names are given later.
Plan = Sequence[Sequence[Stage]]


def _to(*destinations: str, handles: tuple[str, ...] = (), deletes: str = "") -> Stage:
    return Stage("", destinations, handles, deletes)


#: Plans of a few thousand states, by their peculiarity; the small plans come first.
PLANS: dict[str, Plan] = {
    "a message to one topic behind one to two": [[_to("a", "b"), _to("b")], [_to("a", "b")]],
    "handles to a topic that is deleted": [[_to("a", handles=("b",))] * 2, [_to("a", "b", deletes="b@id")]],
    "messages to a topic that is deleted": [[_to("a", "b")] * 2, [_to("a", "b", deletes="b@id")]],
    "two messages of each of two senders": [[_to("a", "b")] * 2] * 2,
    "three pairs of three topics": [[_to("a", "b")], [_to("b", "c")], [_to("a", "c")]],
    "three senders": [[_to("a", "b")]] * 3,
    "three topics of two senders": [[_to("a", "b", "c")]] * 2,
}

#: Plans of many states.
LARGE_PLANS: dict[str, Plan] = {
    "three topics of three senders": [[_to("a", "b", "c")]] * 3,
    "messages to one topic each beside one to two": [
        [_to("a", "b")],
        [_to("a"), _to("b")],
        [_to("b"), _to("a")],
    ],
    "two messages of each of three senders": [[_to("a", "b")] * 2] * 3,
    "pairs of topics and another message": [[_to("a", "b"), _to("b", "c")], [_to("b", "c")], [_to("a", "c")]],
    "deletions of two topics": [
        [_to("a", "b", "c")],
        [_to("a", "b", deletes="b@id")],
        [_to("a", "b", deletes="a@id")],
    ],
}


class PlannedWorld(World):
    """A world in which each sender stages its messages of a plan, and chance has no part."""

    def __init__(self, plan: Plan, topics: Sequence[str]) -> None:
        super().__init__(0, topics=0, senders=len(plan), messages=sum(map(len, plan)), crashes=0)
        self.topics = {name: Topic(name) for name in topics}
        self.plan = plan
        #: The knowledge of the sequencers, without places in logs.
        self.known: dict[str, object] = {}

    def key(self) -> object:
        """Returns the parts that tell this state from others."""
        topics = []
        for name, topic in self.topics.items():
            unread = topic.inbox[topic.checkpoint.position :]
            topics.append(
                (
                    self.known.get(name),
                    len(unread),
                    tuple(_without_cause(each) for each in unread if not _is_own(each, name)),
                    tuple(each.message for each in topic.home),
                )
            )
        causes = frozenset((name, frozenset(causes)) for name, causes in self.causes.items())
        return (
            tuple(topics),
            causes,
            tuple(sorted(repr((topic.name, each)) for topic, each in self.in_transit)),
        )

    def copy(self) -> PlannedWorld:
        """Returns a world in the same state, whose sequencers have crashed."""
        made = PlannedWorld(self.plan, ())
        made.known = dict(self.known)
        for name, topic in self.topics.items():
            made.topics[name] = again = Topic(name)
            again.inbox, again.home, again.checkpoint = list(topic.inbox), list(topic.home), topic.checkpoint
        made.stages, made.sender, made.causes = dict(self.stages), dict(self.sender), dict(self.causes)
        made.released, made.timestamps = set(self.released), dict(self.timestamps)
        made.in_transit = [(made.topics[topic.name], proposal) for topic, proposal in self.in_transit]
        return made

    def next_worlds(self) -> Iterator[PlannedWorld]:
        """Yields the next steps; of steps that nobody else can notice only the first."""
        taken = []
        for name, topic in self.topics.items():
            if topic.checkpoint.position < len(topic.inbox):
                after = self._take(name)
                if self._is_local(after, name):
                    yield after
                    return
                taken.append(after)
        yield from taken
        for sender, planned in enumerate(self.plan):
            mine = [each for each in self.stages if self.sender[each] == sender]
            if len(mine) < len(planned) and not self.waits(mine):
                after = self.copy()
                after.add(sender, planned[len(mine)]._replace(message=f"m{sender}{len(mine)}"))
                yield after
        for number in range(len(self.in_transit)):
            after = self.copy()
            arrived, proposal = after.in_transit.pop(number)
            arrived.inbox.append(proposal)
            yield after

    def _take(self, name: str) -> PlannedWorld:
        after = self.copy()
        topic = after.topics[name]
        topic.restart()
        after.take(topic)
        topic.succeed()
        after.known[name] = _knowledge(topic.sequencer)
        return after

    def _is_local(self, after: PlannedWorld, name: str) -> bool:
        """Whether only the topic `name` differs, and senders know nothing new."""
        if after.released != self.released or len(after.in_transit) != len(self.in_transit):
            return False
        return all(len(each.inbox) == len(self.topics[other].inbox) for other, each in after.topics.items())


def _is_own(record: Said, topic: str) -> bool:
    return isinstance(record, Proposal) and record.timestamp.topic == topic


def _without_cause(record: Said) -> Said:
    return record._replace(cause=0) if isinstance(record, Proposal) else record


def _knowledge(sequencer: Sequencer) -> object:
    pending = frozenset(
        (
            message,
            each.final,
            frozenset(each.before),
            frozenset(proposal._replace(cause=0) for proposal in each.proposals.values()),
        )
        for message, each in sequencer._pending.items()
    )
    return sequencer.clock, sequencer.alive, pending, tuple(sequencer._deletions)


def explore(plan: Plan, at_most: int = 10**9) -> int:
    """Visits all states of a plan, or fails; returns how many there are. Stops after `at_most`."""
    first = PlannedWorld(plan, sorted({name for some in plan for each in some for name in each.participants}))
    seen, left = {first.key()}, [first]
    while left and len(seen) < at_most:
        world, at_end = left.pop(), True
        for after in world.next_worlds():
            at_end = False
            key = after.key()
            if key not in seen:
                seen.add(key)
                left.append(after)
        if at_end:
            assert len(world.stages) == world.messages, "a sender waits for ever"
            world.check()
    return len(seen)
