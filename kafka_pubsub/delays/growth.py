"""More partitions for the delays while messages wait: partitions that share keys walk in step.

Theory. The topics of the delays get more partitions, a multiple of what they had. What waits stays where it is, under
its id. A key goes to the same partition as before, or to an added one: those of partition q were in q modulo the former
number, the partition that q *succeeds*. So messages of a key may wait in two partitions, with two routers. Each commits
before which time all that it has read is home, and the time that its log has reached; what it reads later is due then
or after that. Up to the lower of both times the other one may go on. The commit is in the transaction that brought
the messages home, so what the other one writes behind it comes home behind them.

Rules
1. An added partition brings home only what is before both times of the one that it succeeds.
2. A former partition brings home only what isn't after both times of each that succeeds it: of equal times the message
   in the former partition was published first. Messages whose key stays there, or without a key, don't wait, unless
   they are behind one that does: so a former partition waits only while there are messages from before.
3. The log of each reaches the time for which another one waits: its router appends a tick then, as for a message.
4. Where nothing of this is committed yet, nothing that shares a key goes home.
5. Publishers may learn of the growth at any time: rules 1 and 2 hold for messages that are sent to either partition.
6. The growth is over when publishers had time to learn of it, and nothing waits that the former partitions took in by
   then: by the commits and by what lies behind them in the tiers. Then the partitions are free, and may grow again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kafka_pubsub.delays.progress import IngestProgress
from kafka_pubsub.errors import FailedPrecondition, InvalidArgument
from kafka_pubsub.log.partitioner import partition_of

__all__ = ["ALONE", "NOTHING_YET", "Growth", "Step", "check_growth"]


class Step(NamedTuple):
    """What shares keys may go home before this time; `others_at` is the time that the partition's log has to reach."""

    only_before: int
    others_at: int = 0


#: Of a partition that shares no keys, and of one that knows nothing of the others.
ALONE, NOTHING_YET = Step(1 << 63), Step(0)


class Growth(NamedTuple):
    """A growth from `former` to `partitions`.

    `ends`: where the former partitions of ingest ended when all publishers knew of it; None: that isn't known.
    """

    former: int
    partitions: int
    ends: tuple[int, ...] | None = None

    def others(self, partition: int) -> Sequence[int]:
        """Returns the partitions that share keys with this one."""
        if partition >= self.former:
            return (partition % self.former,)
        return range(partition + self.former, self.partitions, self.former)

    def shares(self, partition: int, key: bytes | None) -> bool:
        """Returns whether messages of this key, which came in here, may be in another partition as well."""
        if key is None:
            return False
        return partition >= self.former or partition_of(key, self.partitions) != partition

    def step(self, partition: int, commits: Sequence[IngestProgress | None]) -> Step:
        """Returns the step of a partition, by the last commits of the `others`; None: there is none of that one."""
        said = [each for each in commits if each is not None]
        if not said:
            return ALONE if not commits else NOTHING_YET
        # Of equal times the former partition is first.
        former = int(partition < self.former)
        until = min(min(each.home_before, each.reached) for each in said)
        wanted = [each.home_before + former for each in said if each.home_before < ALONE.only_before]
        return Step(until + former if len(said) == len(commits) else 0, min(wanted, default=0))

    def is_drained(self, partition: int, ingest: int, waiting: Iterable[int]) -> bool:
        """Returns whether nothing from before the growth waits in a former partition.

        `ingest` is its committed position there; `waiting` has the offsets of ingest of all that lies in its tiers at
        or above the committed positions.
        """
        if self.ends is None or ingest < self.ends[partition]:
            return False
        return not any(self.is_from_before(partition, offset) for offset in waiting)

    def is_from_before(self, partition: int, offset: int) -> bool:
        """Returns whether a message came in at this offset of a former partition before all publishers knew."""
        return self.ends is None or offset < self.ends[partition]


def check_growth(present: int, wanted: int, growth: Growth | None) -> None:
    """Raises why the delays can't get so many partitions; `growth`: one that isn't over."""
    if growth is not None and wanted != growth.partitions:
        raise FailedPrecondition(
            f"delays: partitions: they grow from {growth.former} to {growth.partitions}, and messages from before that "
            f"still wait; ask for {wanted} when those are home, or declare partitions={growth.partitions} until then"
        )
    if growth is None and wanted < present:
        raise InvalidArgument(
            f"delays: partitions: there are {present}, and Kafka takes none away; declare {present} or a multiple of it"
        )
    if growth is None and wanted % present:
        raise InvalidArgument(
            f"delays: partitions: {wanted} isn't a multiple of the present {present}, so that an added one would take "
            f"keys of several; declare {wanted // present * present + present} or another multiple"
        )
