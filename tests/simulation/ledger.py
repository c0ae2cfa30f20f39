"""The books of the world: messages published, delivered, acked and committed, kept apart from the client's own.

Theory. An *ownership* is an epoch of a partition in a process. Inside it the promises are exact: messages that were
durable when it began and messages acked under it are finished; of each key, only the lowest unfinished
record may begin. Across ownerships only the contents of the log count. Records that retention, compaction or an
aborted transaction took out are *gone*: they may be delivered or not.

Promised (docs/invariants.md)
  order    a key's records begin in order, none left out; a redelivery begins at the oldest that isn't acked
  I1       a single handler of a key at a time in a process; among processes too while the older is still the owner
  I2       a commit names only acked messages, never goes back, and never forgets an earlier commit's
  I4       a late report changes nothing and is counted
  I5       a commit holds every ack that its author knew of, in at most as many characters as the log stores
  durable  messages that the log knows to be finished aren't delivered by its owner
  lost     when everything has settled, every message was acked, and the log knows it
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from kafka_pubsub.log.records import Record
from kafka_pubsub.model import Run
from kafka_pubsub.subscribe.formats import ack_map

__all__ = ["Ledger", "Ownership", "Violation", "promise"]


class Violation(AssertionError):
    """A promise was broken."""


def promise(kept: bool, text: str) -> None:
    """Raises `Violation` unless the promise was kept."""
    if not kept:
        raise Violation(text)


class Log:
    """A single partition's truth."""

    def __init__(self) -> None:
        #: Every record that ever got an offset, by offset.
        self.keys: dict[int, bytes | None] = {}
        #: The same, ascending.
        self.order: list[int] = []
        #: The offsets of each key, ascending.
        self.of_key: dict[bytes | None, list[int]] = {}
        #: Offsets whose records can't be read any more.
        self.gone: set[int] = set()
        #: Offsets whose records the log lost; others may have them now.
        self.lost: set[int] = set()
        #: Up to where an operator has skipped messages.
        self.skipped = 0
        #: Offsets that some handler has begun.
        self.delivered: set[int] = set()
        #: Offsets that some handler has acked in time.
        self.acked: set[int] = set()
        #: Offsets that the group's stored position and map call finished; and since when.
        self.durable: set[int] = set()
        self.finished_at: dict[int, float] = {}
        self.position = 0
        #: Offsets from before the subscription.
        self.before: set[int] = set()
        #: Of keys that came from other partitions when the topic grew: the messages that must be finished there before.
        self.inherited: dict[bytes, dict[int, list[int]]] = {}

    def covered(self, offset: int, metadata: str, told: Sequence[Run] = ()) -> set[int]:
        """The records that a stored position and its map call finished, and the checkpoint's that it names."""
        found = ack_map.decode(metadata, offset) if metadata else None
        promise(found is not None or not metadata, f"metadata beside {offset} can't be read")
        order = self.order
        said = set(order[: bisect_left(order, offset)])
        for start, end in (*(() if found is None else found.runs), *told):
            said.update(order[bisect_left(order, start) : bisect_left(order, end)])
        return said


class Ownership:
    """A single epoch of a partition in a single process."""

    def __init__(self, process: str, partition: int, epoch: int, durable: Collection[int]) -> None:
        self.process, self.partition, self.epoch = process, partition, epoch
        #: Durable at the beginning, or acked in time under the ownership.
        self.finished = set(durable)
        #: Acks that holders have reported; acks that the runner has taken since.
        self.reported: set[int] = set()
        self.processed: set[int] = set()
        #: How often each record was begun under it.
        self.begun: Counter[int] = Counter()

    def __repr__(self) -> str:
        return f"{self.process}/{self.partition} epoch {self.epoch}"


class Ledger:
    """Sees everything and believes nobody."""

    def __init__(self, partitions: int, *, ordered: bool) -> None:
        self.logs = [Log() for _ in range(partitions)]
        self.ordered = ordered
        # Where each key's newest message is.
        self._homes: dict[bytes, int] = {}
        self.ownerships: dict[tuple[str, int, int], Ownership] = {}

    # The log

    def published(self, partition: int, offset: int, key: bytes | None) -> None:
        """A record got its offset."""
        log = self.logs[partition]
        log.keys[offset] = key
        log.order.append(offset)
        log.of_key.setdefault(key, []).append(offset)
        if key is not None and self._homes.setdefault(key, partition) != partition:
            self._homes[key] = partition
            log.inherited[key] = {
                number: list(other.of_key[key])
                for number, other in enumerate(self.logs)
                if other is not log and key in other.of_key
            }

    def taken_out(self, partition: int, offsets: Collection[int]) -> None:
        """Retention, compaction or an aborted transaction took these out of the log."""
        self.logs[partition].gone.update(offsets)

    def grown(self, partitions: int) -> None:
        """The topic has so many partitions now."""
        self.logs += [Log() for _ in range(partitions - len(self.logs))]

    def after_the_old(self, log: Log, key: bytes | None, where: str) -> None:
        """Before a key's first message in a new partition begins, all in the old one is durably finished."""
        if not self.ordered or key is None or key not in log.inherited:
            return
        for number, offsets in log.inherited.pop(key).items():
            left = [at for at in offsets if not self.is_over(number, at)]
            promise(not left, f"layout: {where} begins before {left} of {number} are finished")

    def is_over(self, partition: int, offset: int) -> bool:
        """Whether that message is finished for good, or can't be read any more."""
        log = self.logs[partition]
        return offset in log.durable or offset in log.gone

    def subscribed(self, partition: int, position: int) -> None:
        """The subscription begins here: earlier messages are none of its business."""
        self._stored(partition, position, "")

    # Ownerships

    def owns(self, process: str, partition: int, epoch: int) -> Ownership:
        """A process was given a partition: a new ownership, or an ownership that goes on."""
        identity = (process, partition, epoch)
        if identity not in self.ownerships:
            durable = self.logs[partition].durable
            self.ownerships[identity] = Ownership(process, partition, epoch, durable)
        return self.ownerships[identity]

    # Deliveries

    def begins(
        self,
        owner: Ownership,
        record: Record,
        attempt: int,
        together: Collection[int],
        *,
        valid: bool,
        alone: bool,
        now: float = 0.0,
    ) -> None:
        """A handler gets a record, alone or `together` with earlier ones of its key."""
        log, offset, key = self.logs[owner.partition], record.offset(), record.key()
        where = f"{owner!r} offset {offset} key {key!r}"
        promise(log.keys.get(offset, b"?") == key, f"{where}: no such record was published")
        self.after_the_old(log, key, where)
        promise(offset not in owner.finished, f"durable: {where} begins after its ack")
        if valid:
            promise(offset not in log.durable, f"durable: {where} begins; the log knows it is finished")
        owner.begun[offset] += 1
        promise(
            attempt == owner.begun[offset] or (not alone and attempt < owner.begun[offset]),
            f"attempt: {where} says attempt {attempt} at delivery {owner.begun[offset]}",
        )
        if self.ordered and key is not None:
            for earlier in log.of_key[key]:
                if earlier >= offset:
                    break
                if earlier in log.gone:
                    continue
                done = earlier in owner.finished or earlier in together
                promise(done, f"order: {where} begins before {earlier} is acked")
                seen = earlier in log.delivered or earlier in log.durable
                promise(seen, f"order: {where} is first delivered before {earlier}")
        log.delivered.add(offset)

    def acked(self, owner: Ownership, offsets: Iterable[int]) -> None:
        """Handlers acked these in time."""
        news = list(offsets)
        owner.finished.update(news)
        self.logs[owner.partition].acked.update(news)

    # Commits

    def left(self, partition: int, known: Collection[int]) -> None:
        """A partition was given up without a final commit by somebody who knew of the acks `known`."""
        log = self.logs[partition]
        unsaid = set(known) - log.durable - log.gone
        promise(not unsaid, f"I5: {partition} was given up without a word of {sorted(unsaid)}")

    def _stored(self, partition: int, offset: int, metadata: str) -> None:
        log = self.logs[partition]
        promise(
            offset >= log.position, f"I2: partition {partition} goes back from {log.position} to {offset}"
        )
        said = log.covered(offset, metadata)
        forgotten = log.durable - said - log.gone
        promise(not forgotten, f"I2: partition {partition}: {sorted(forgotten)} were finished and aren't now")
        log.durable, log.position = said, offset

    # The end

    def never_again(self, partition: int) -> Collection[int]:
        """Offsets that needn't be delivered any more, though they aren't finished."""
        return self.logs[partition].gone

    def settled(self) -> bool:
        """Whether the log knows that all is finished."""
        return all(not log.keys.keys() - log.durable - log.gone for log in self.logs)

    def check_nothing_lost(self, starts: Iterable[int]) -> None:
        """Every message since the subscription began was acked by a handler."""
        for log, start in zip(self.logs, starts, strict=True):
            lost = {offset for offset in log.keys if offset >= start} - log.acked - log.gone
            promise(not lost, f"lost: {sorted(lost)} were never acked")
