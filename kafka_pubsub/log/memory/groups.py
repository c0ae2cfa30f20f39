"""A consumer group's coordinator: members, generations, assignments and commits.

Theory: the classic protocol with the eager `range` assignor. A change of members opens a rebalance; every member
sees it at its next call, gives up its partitions and joins; when the last has joined (or its session has run
out), the generation rises and each member gets its partitions. In between no member has a partition.

Rules
1. A commit is fenced by membership and generation, *not* by ownership: a member of the current generation may
   commit any partition, as on a real broker. A commit while the rebalance is open still counts, because the
   generation hasn't risen yet.
2. Time is an argument. A member is alive from its last call for as long as its own session lasts; the next call
   of any member removes the dead ones.
3. `range` goes topic by topic over the members that list it, in the order of their ids: equal lists and equal
   counts give one member the same partition numbers of all topics. If all members ask for it (`spread`), partitions are
   dealt one by one instead.
4. A member that has gone may come back only as a new one.
5. A transaction's positions are held until its marker comes. Then each counts, unless another commit of that
   partition was written since: the later write counts, even if its writer had read less.
6. A member that was removed while a rebalance waited for it is `OUSTED`: a real client was asked to give up before it
   was removed, so its listener gets an ordinary `revoked`, when commits are refused already.
7. The generation may also rise while all members keep their partitions (`raise_epoch`), as a member's epoch does under
   the protocol `consumer`. Fencing is strict then, as brokers before 4.3 have it: the newer epoch only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum

from kafka_pubsub.errors import FailedPrecondition, InvalidArgument, NotFound, PubSubError
from kafka_pubsub.model import Committed, TopicPartition

__all__ = ["Group", "Standing"]

#: Characters that a commit's metadata may have; a broker with default settings refuses 4096.
METADATA_LIMIT = 4095


class Standing(Enum):
    """What a member learns about its membership when it calls."""

    STEADY = "its assignment stands"
    REJOIN = "a rebalance is open and waits for it"
    WAITING = "it has joined, others haven't"
    ASSIGNED = "a new generation has begun"
    RAISED = "the generation has risen, its share is the same"
    UNKNOWN = "its session ran out or it was removed"
    OUSTED = "it was removed because it didn't answer a rebalance"


class _Member:
    __slots__ = ("assignment", "joined", "seen", "session", "spread", "topics")

    def __init__(self, topics: Sequence[str], session: float, now: float) -> None:
        self.topics = tuple(topics)
        self.session = session
        self.seen = now
        self.spread = False
        # Whether it has joined the open rebalance; True if none is open.
        self.joined = True
        # Empty: no partitions in this generation.
        self.assignment: tuple[TopicPartition, ...] = ()


class Group:
    """A consumer group. `partitions_of` gives a topic's partition count, None for a topic that doesn't exist."""

    def __init__(self, name: str, partitions_of: Callable[[str], int | None]) -> None:
        self.name = name
        self.generation = 0
        # The generation in which the members got their partitions.
        self._shared_at = 0
        # Commits by partition; not in it: never committed, or forgotten by the broker.
        self.offsets: dict[TopicPartition, Committed] = {}
        # The number of the write that each came from; a missing one is older than all.
        self._written: dict[TopicPartition, int] = {}
        self._writes = 0
        # Open transaction -> its positions, and the number of the write of each.
        self._held: dict[str, dict[TopicPartition, tuple[int, Committed]]] = {}
        self._partitions_of = partitions_of
        self._members: dict[str, _Member] = {}
        self._rebalancing = False
        # Removed members that an open rebalance was waiting for, until they call again.
        self._ousted: set[str] = set()
        self._joins = 0

    @property
    def members(self) -> Sequence[str]:
        """Returns the ids of the members, in the assignor's order."""
        return sorted(self._members)

    def join(
        self,
        member: str | None,
        client: str,
        topics: Sequence[str],
        session: float,
        now: float,
        *,
        spread: bool = False,
    ) -> str:
        """Joins the group (`member` None) or the open rebalance; returns the member's id."""
        if member is None or member not in self._members:
            self._joins += 1
            member = f"{client}-{self._joins:06d}"
            self._members[member] = _Member(topics, session, now)
            self.rebalance()
        entry = self._members[member]
        if entry.topics != tuple(topics):
            entry.topics = tuple(topics)
            self.rebalance()
        entry.seen, entry.joined, entry.spread = now, True, spread
        self._complete()
        return member

    def leave(self, member: str) -> None:
        """Removes a member, after which the others rebalance."""
        if self._members.pop(member, None) is None:
            return
        if not self._members:
            self._rebalancing = False
            self.generation += 1
            return
        self.rebalance()
        self._complete()

    def expire(self, now: float) -> bool:
        """Removes the members whose session ran out; returns whether there were any."""
        dead = [name for name, entry in self._members.items() if entry.seen + entry.session < now]
        for name in dead:
            self.remove(name)
        return bool(dead)

    def remove(self, member: str) -> None:
        """Removes a member that didn't leave."""
        if self._rebalancing and not self._members[member].joined:
            self._ousted.add(member)
        self.leave(member)

    def rebalance(self) -> None:
        """Opens a rebalance, unless one is open."""
        if not self._rebalancing and self._members:
            self._rebalancing = True
            for entry in self._members.values():
                entry.joined = False

    def raise_epoch(self) -> None:
        """Raises the generation while all keep their partitions; an open rebalance raises it by itself."""
        if not self._rebalancing:
            self.generation += 1

    def topic_changed(self, topic: str) -> None:
        """Rebalances if a member lists the topic, because the topic was made, deleted or has grown."""
        if any(topic in entry.topics for entry in self._members.values()):
            self.rebalance()

    def standing(self, member: str, generation: int, now: float) -> Standing:
        """Takes a heartbeat; returns what the member has to do now."""
        entry = self._members.get(member)
        if entry is None:
            ousted = member in self._ousted
            self._ousted.discard(member)
            return Standing.OUSTED if ousted else Standing.UNKNOWN
        entry.seen = now
        if self._rebalancing:
            return Standing.WAITING if entry.joined else Standing.REJOIN
        if generation == self.generation:
            return Standing.STEADY
        return Standing.RAISED if generation >= self._shared_at else Standing.ASSIGNED

    def is_steady(self, member: str | None, generation: int) -> bool:
        """Returns whether the member has its share and no rebalance is open; no heartbeat."""
        return member in self._members and not self._rebalancing and generation == self.generation

    def assignment(self, member: str) -> Sequence[TopicPartition]:
        """Returns the member's partitions in the current generation."""
        entry = self._members.get(member)
        return () if entry is None else entry.assignment

    def fence(self, member: str | None, generation: int) -> PubSubError | None:
        """Returns why this member of this generation may not commit; None if it may."""
        if member is None or member not in self._members:
            return FailedPrecondition(
                f"not a member of group {self.name} (any more): the commit was not stored; "
                "another member may own its partitions by now"
            )
        if generation != self.generation:
            return FailedPrecondition(
                f"generation {generation} of group {self.name} is over ({self.generation} has begun): "
                "the commit was not stored"
            )
        return None

    def commit(
        self,
        member: str | None,
        generation: int,
        positions: Mapping[TopicPartition, Committed],
        now: float,
    ) -> dict[TopicPartition, PubSubError | None]:
        """Stores the commits that may be stored; returns the answer for each partition."""
        refusal = self.fence(member, generation)
        if refusal is not None or member is None:
            return dict.fromkeys(positions, refusal)
        self._members[member].seen = now
        return {partition: self.store(partition, value) for partition, value in positions.items()}

    def store(self, partition: TopicPartition, value: Committed) -> PubSubError | None:
        """Stores one commit without a check of its sender; returns an error if a broker would refuse it."""
        problem = self.problem(partition, value)
        if problem is None:
            self._write(partition, value, self._next_write())
        return problem

    def hold(self, transaction: str, positions: Mapping[TopicPartition, Committed]) -> None:
        """Keeps a transaction's positions until its end."""
        held = self._held.setdefault(transaction, {})
        for partition, value in positions.items():
            held[partition] = (self._next_write(), value)

    def settle(self, transaction: str, committed: bool) -> None:
        """Takes the transaction's marker."""
        for partition, (write, value) in self._held.pop(transaction, {}).items():
            if committed and write > self._written.get(partition, 0):
                self._write(partition, value, write)

    def unsettled(self, partitions: Iterable[TopicPartition] | None = None) -> bool:
        """Returns whether a transaction holds a position of any of these partitions (None: of any partition)."""
        if partitions is None:
            return any(self._held.values())
        return any(partition in held for held in self._held.values() for partition in partitions)

    def _next_write(self) -> int:
        self._writes += 1
        return self._writes

    def _write(self, partition: TopicPartition, value: Committed, write: int) -> None:
        self.offsets[partition] = value
        self._written[partition] = write

    def problem(self, partition: TopicPartition, value: Committed) -> PubSubError | None:
        """Returns why a broker wouldn't store the commit; None if it would."""
        count = self._partitions_of(partition.topic)
        if count is None or not 0 <= partition.partition < count:
            return NotFound(f"no partition {partition.partition} of topic {partition.topic}")
        if value.offset is None or value.offset < 0:
            return InvalidArgument(f"offset: {value.offset} can't be committed")
        if "\0" in value.metadata:
            return InvalidArgument("metadata: must not contain NUL")
        if len(value.metadata) > METADATA_LIMIT:
            return InvalidArgument(
                f"metadata: {len(value.metadata)} characters, and at most {METADATA_LIMIT} can be committed: raise "
                f"offset.metadata.max.bytes"
            )
        return None

    def _complete(self) -> None:
        if not self._rebalancing or not all(entry.joined for entry in self._members.values()):
            return
        self._rebalancing = False
        self.generation += 1
        self._shared_at = self.generation
        shares: dict[str, list[TopicPartition]] = {name: [] for name in self._members}
        topics = sorted({topic for entry in self._members.values() for topic in entry.topics})
        if all(entry.spread for entry in self._members.values()):
            self._deal(topics, shares)
        else:
            for topic in topics:
                self._share(topic, shares)
        for name, entry in self._members.items():
            entry.assignment = tuple(shares[name])

    def _deal(self, topics: Sequence[str], shares: dict[str, list[TopicPartition]]) -> None:
        for topic in topics:
            for number in range(self._partitions_of(topic) or 0):
                takers = [name for name in self.members if topic in self._members[name].topics]
                shares[min(takers, key=lambda name: len(shares[name]))].append(TopicPartition(topic, number))

    def _share(self, topic: str, shares: dict[str, list[TopicPartition]]) -> None:
        count = self._partitions_of(topic) or 0
        takers = [name for name in self.members if topic in self._members[name].topics]
        each, more = divmod(count, len(takers))
        first = 0
        for index, name in enumerate(takers):
            last = first + each + (1 if index < more else 0)
            shares[name].extend(TopicPartition(topic, number) for number in range(first, last))
            first = last
