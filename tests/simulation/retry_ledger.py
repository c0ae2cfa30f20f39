"""The books of a world with a retry topic: the contents of both logs, and the handlers' work; nobody else is believed.

Theory. The log's own truth is looked at after every action. The group's stored state of both partitions says which
messages are *claimed*: called finished in main, and not waiting in the retry partition. A record of a transaction that
is decided counts as there, though no reader sees it yet; a record of an open transaction counts for nothing. Where
the stored state names a checkpoint, that is read from the log, too; a checkpoint itself is no message.

Promised besides (docs/invariants.md)
  claims   a claimed message was acked or is a dead letter, and is claimed for ever
  back     neither position ever goes back
  order    a message begins under a valid owner only when every earlier message of its key was acked or is a dead letter
  durable  a message doesn't begin again under a valid owner once the log knows its ack
  due      a message doesn't begin before the time in its newest retry record, but for the error of clocks
  attempt  a message begins with the number in its newest retry record, and that number counts failed deliveries
  dead-lettered   a dead letter is written once, whole, after exactly so many attempts, each of which was a delivery
  whole    key, value and headers are the publisher's
  checkpoint   a named checkpoint lies in the log, whole and committed
Messages that wait in the retry topic aren't gone, whatever has been taken out of main.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from kafka_pubsub.log.memory import MemoryCluster
from kafka_pubsub.log.memory.log import PartitionLog
from kafka_pubsub.log.records import Record
from kafka_pubsub.model import Committed, Header, Run, StoredRecord, TopicPartition
from kafka_pubsub.subscribe.formats import ack_map
from kafka_pubsub.subscribe.formats.ack_map import AckMap
from kafka_pubsub.subscribe.formats.checkpoint import Checkpoint, Named, Part, joined, united
from kafka_pubsub.subscribe.formats.record import FOREVER, RETRY_HEADER, RetryInfo, Why, decode
from kafka_pubsub.subscribe.partition.effects import Commit, CommitBoth
from kafka_pubsub.subscribe.retry_topic import checkpoint_records as checkpoints
from tests.simulation.ledger import Ledger, Log, Ownership, promise

__all__ = ["DEAD", "RETRY", "RetryLedger"]

RETRY, DEAD = "orders.sub.billing.retry", "dead"
NOWHERE = Committed(0, "")


class Beside:
    """A retry partition's truth, and its meaning for the partition of main."""

    def __init__(self, log: PartitionLog, places: tuple[TopicPartition, TopicPartition]) -> None:
        self.log = log
        #: Where the group stores: main's position, and this partition's own.
        self.places = places
        #: The contents of each record that was ever read here; rubbish says None.
        self.said: dict[int, RetryInfo | None] = {}
        #: The newest visible record of each origin, and up to where that was looked for.
        self.newest: dict[int, RetryInfo] = {}
        self._seen = 0
        self.dead: set[int] = set()
        #: How often handlers have begun each origin.
        self.begun: Counter[int] = Counter()
        #: The stored state at the last look.
        self.stored = (NOWHERE, NOWHERE)
        # The contents of each checkpoint that was ever named.
        self._told: dict[Named, Checkpoint] = {}
        #: Of each key how many of its offsets, from the first on, are finished for good.
        self.through: Counter[bytes] = Counter()
        #: Offsets of records whose message main has lost.
        self.foreign: set[int] = set()
        #: Since when its owner has it.
        self.owned_since = 0.0

    def info(self, record: StoredRecord) -> RetryInfo | None:
        """The data of a record."""
        offset = record.offset() or 0
        if offset not in self.said:
            values = [value for name, value in record.headers() or () if name == RETRY_HEADER]
            found = decode(values[0]) if len(values) == 1 else None
            self.said[offset] = found if isinstance(found, RetryInfo) else None
        return self.said[offset]

    def read_on(self) -> None:
        """Takes in the records that have become visible."""
        end = self.log.stable_end
        if end > self._seen:
            for record in self.log.read(self._seen, 1_000_000):
                info = None if record.offset() in self.foreign else self.info(record)
                if info is not None and info.why is not Why.CHECKPOINT:
                    self.newest[info.origin] = info
            self._seen = end

    def read_again(self) -> None:
        """Deleted records tell nobody of their origin any more."""
        self.newest.clear()
        self._seen = self.log.start

    def waiting(self, retry: Committed, hidden: Collection[int]) -> Iterator[RetryInfo]:
        """The messages that wait here by that commit; `hidden` are offsets that count for nothing."""
        for record in self._unfinished(retry, hidden):
            if (info := self.info(record)) is not None and info.why is not Why.CHECKPOINT:
                yield info

    def rubbish(self, retry: Committed, hidden: Collection[int]) -> int:
        """How many records lie here that aren't messages."""
        return sum(self.info(record) is None for record in self._unfinished(retry, hidden))

    def _unfinished(self, retry: Committed, hidden: Collection[int]) -> Iterator[StoredRecord]:
        start, runs = retry.offset or 0, self._runs(retry, hidden)
        starts, log = [first for first, _ in runs], self.log
        for record in log._records[bisect_left(log._offsets, start) :]:
            offset = record.offset() or 0
            at = bisect_right(starts, offset) - 1
            if offset not in hidden and not (at >= 0 and offset < runs[at][1]):
                yield record

    def _runs(self, retry: Committed, hidden: Collection[int]) -> Sequence[Run]:
        """The messages that the commit calls finished above its position, by itself and by the checkpoint it names."""
        found = self.map(retry)
        told = self.checkpoint(found, hidden)
        if found is None:
            return ()
        return united(found.runs, told.retry.runs if told and found.more else (), retry.offset or 0)

    def main_runs(self, main: Committed, hidden: Collection[int]) -> Sequence[Run]:
        """The same of the commit of main."""
        found = self.map(main)
        told = self.checkpoint(found, hidden)
        if found is None:
            return ()
        return united(found.runs, told.main.runs if told and found.more else (), main.offset or 0)

    @staticmethod
    def map(stored: Committed) -> AckMap | None:
        """The contents of a commit's metadata."""
        return ack_map.decode(stored.metadata, stored.offset or 0) if stored.metadata else None

    def checkpoint(self, found: AckMap | None, hidden: Collection[int]) -> Checkpoint | None:
        """A named checkpoint lies in the log, though its contents may not be needed."""
        named = None if found is None else found.checkpoint
        if named is None:
            return None
        if named not in self._told:
            self._told[named] = self._read(named, hidden)
        promise(named.offset >= self.log.start, f"checkpoint: {named} is named, and was deleted")
        return self._told[named]

    def newest_checkpoint(self, hidden: Collection[int]) -> tuple[Named, Checkpoint] | None:
        """The last whole checkpoint in the log, and its name."""
        parts: dict[int, list[Part]] = {}
        names: dict[int, Named] = {}
        for offset, part in self._parts(0):
            if offset not in hidden:
                names.setdefault(part.checkpoint.nonce, Named(offset, part.checkpoint.nonce))
                parts.setdefault(part.checkpoint.nonce, []).append(part)
        whole = [
            (names[nonce], found) for nonce, some in parts.items() if (found := joined(some)) is not None
        ]
        return max(whole, key=lambda each: each[0].offset, default=None)

    def _parts(self, start: int) -> Iterator[tuple[int, Part]]:
        log = self.log
        for record in log._records[bisect_left(log._offsets, start) :]:
            if checkpoints.version_of(record.headers() or ()):
                part = checkpoints.decode(record.value())
                if part is not None:
                    yield record.offset() or 0, part

    def _read(self, named: Named, hidden: Collection[int]) -> Checkpoint:
        parts = []
        for offset, part in self._parts(named.offset):
            if part.checkpoint.nonce == named.nonce:
                promise(offset not in hidden, f"checkpoint: {named} is named, and can't be read")
                parts.append(part)
        found = joined(parts)
        if found is None:
            raise AssertionError(f"checkpoint: {named} is named, and isn't whole")
        return found


class RetryLedger(Ledger):
    """Believes the two logs and the handlers."""

    def __init__(
        self, partitions: int, *, ordered: bool, cluster: MemoryCluster, group: str, attempts: int
    ) -> None:
        super().__init__(partitions, ordered=ordered)
        self._cluster = cluster
        self._group = group
        self._attempts = attempts
        self.beside: list[Beside] = []
        #: The published messages: value and headers.
        self.bodies: list[dict[int, tuple[bytes, Sequence[Header] | None]]] = [{} for _ in range(partitions)]
        #: Messages that no handler can take, and how.
        self.poison: list[dict[int, str]] = [{} for _ in range(partitions)]
        # Up to where the dead letters were read, and letters beyond that were.
        self._dead_read = 0
        self._dead_letters_ahead: set[int] = set()
        #: Partitions of which nothing may begin before an operator has said where.
        self.cut: set[int] = set()
        #: Partitions of which a log has ever lost its tail, and perhaps a checkpoint with it.
        self.ever_cut: set[int] = set()

    def opens(self) -> None:
        """The topics are there."""
        self.beside += [
            Beside(self._cluster.log(self.places(number)[1]), self.places(number))
            for number in range(len(self.beside), len(self.logs))
        ]

    def places(self, number: int) -> tuple[TopicPartition, TopicPartition]:
        """The home partition with this number, and the retry partition beside it."""
        return TopicPartition("orders", number), TopicPartition(RETRY, number)

    def grown(self, partitions: int) -> None:
        super().grown(partitions)
        self.bodies += [{} for _ in range(partitions - len(self.bodies))]
        self.poison += [{} for _ in range(partitions - len(self.poison))]
        self.opens()

    def taken_out(self, partition: int, offsets: Collection[int]) -> None:
        self.look()
        super().taken_out(partition, set(offsets) - self._waiting(partition))

    def is_over(self, partition: int, offset: int) -> bool:
        return super().is_over(partition, offset) or offset in self.beside[partition].dead

    # The contents of the log

    def look(self) -> None:
        """Whatever the group has stored since the last look."""
        with self._cluster.changed:
            stored = self._cluster.group(self._group).offsets
        for number, beside in enumerate(self.beside):
            main, retry = map(stored.get, beside.places, beside.stored)
            if number in self.cut or self._overtaken(number, main, retry):
                continue
            if main is not beside.stored[0] or retry is not beside.stored[1]:
                self._stored_both(number, main, retry)

    def _overtaken(self, number: int, *stored: Committed) -> bool:
        """Whether the named checkpoint was deleted, since a commit is decided that names another and isn't visible."""
        beside = self.beside[number]
        named = [said.checkpoint for each in stored if (said := beside.map(each)) and said.checkpoint]
        deleted = any(each.offset < beside.log.start for each in named)
        return deleted and self._decided(number) != beside.stored

    def _stored_both(self, number: int, main: Committed, retry: Committed) -> None:
        log, beside = self.logs[number], self.beside[number]
        was, beside.stored = beside.stored, (main, retry)
        for before, after in zip(was, beside.stored, strict=True):
            promise(
                (after.offset or 0) >= (before.offset or 0),
                f"back: {number} goes from {before.offset} to {after.offset}",
            )
        self._read_dead_letters()
        waiting = self._waiting(number)
        if back := log.gone & waiting:  # the message was on its way when main lost it
            log.gone -= back
            beside.through.clear()
        claimed = self._covered(number, main) - waiting - log.before
        unfounded = claimed - log.acked - beside.dead - log.gone
        promise(not unfounded, f"claims: {sorted(unfounded)} of {number} are called finished")
        forgotten = log.durable - claimed - log.gone - log.before
        promise(not forgotten, f"claims: {sorted(forgotten)} of {number} were finished and aren't now")
        log.finished_at |= dict.fromkeys(claimed - log.durable, self._cluster.clock.now())
        log.durable = claimed | log.before

    def goes_on_from(self, number: int, main: Committed, retry: Committed) -> None:
        """A partition goes on from there, whatever the group had stored of it: other messages aren't finished."""
        log, beside = self.logs[number], self.beside[number]
        log.durable, beside.stored = set(log.before), (NOWHERE, NOWHERE)
        log.finished_at.clear()
        beside.through.clear()
        beside.read_again()
        self._stored_both(number, main, retry)

    def knows(self, number: int, offset: int) -> bool:
        """Whether the log calls that message finished, and be it in a transaction that doesn't show yet."""
        self.look()
        if offset in self.logs[number].durable:
            return True
        main, retry = self._decided(number)
        if offset not in self._covered(number, main):
            return False
        return all(
            info.origin != offset for info in self.beside[number].waiting(retry, self.undecided(number))
        )

    def _covered(self, number: int, main: Committed) -> set[int]:
        """The messages that a commit of main calls finished."""
        told = self.beside[number].main_runs(main, self.undecided(number))
        return self.logs[number].covered(main.offset or 0, main.metadata, told)

    def _decided(self, number: int) -> tuple[Committed, Committed]:
        """The group's stored state when all that is decided shows."""
        places = dict(zip(self.beside[number].places, self.beside[number].stored, strict=True))
        with self._cluster.changed:
            held = self._cluster.group(self._group)._held
            for each in self._cluster.transactions._open.values():
                if each.committed:
                    some = held.get(each.name, {})
                    places |= {place: value for place, (_, value) in some.items() if place in places}
        main, retry = places.values()
        return main, retry

    def _waiting(self, number: int) -> set[int]:
        """Origins of the messages that lie in the retry partition by the group's stored state."""
        beside = self.beside[number]
        return {info.origin for info in beside.waiting(beside.stored[1], self.undecided(number))}

    def undecided(self, number: int) -> set[int]:
        """Offsets of the retry partition that belong to transactions which may still be aborted, or will be."""
        return self._undecided_in(self.beside[number].log)

    def _undecided_in(self, log: PartitionLog) -> set[int]:
        if not log._open:
            return set()
        decided = {each.name: each.committed for each in self._cluster.transactions._open.values()}
        return {at for name, offsets in log._open.items() if not decided.get(name) for at in offsets}

    def _read_dead_letters(self) -> None:
        dead = self._cluster.log(TopicPartition(DEAD, 0))
        undecided = self._undecided_in(dead)
        for record in dead._records[bisect_left(dead._offsets, self._dead_read) :]:
            headers, offset = dict(record.headers() or ()), record.offset() or 0
            # A record may lie behind a transaction of somebody else that is open still.
            if (
                "ps-dead-offset" in headers
                and offset not in undecided
                and offset not in self._dead_letters_ahead
            ):
                self._dead_letters_ahead.add(offset)
                self._take_dead_letter(record, headers)
        self._dead_read = dead.stable_end
        self._dead_letters_ahead = {
            offset for offset in self._dead_letters_ahead if offset >= self._dead_read
        }

    def _take_dead_letter(self, record: StoredRecord, headers: dict[str, bytes | None]) -> None:
        number, origin = int(headers["ps-dead-partition"] or b""), int(headers["ps-dead-offset"] or b"")
        what, beside = f"buried: {origin} of {number}", self.beside[number]
        promise(origin not in beside.dead, f"{what} twice")
        attempts = int(headers["ps-dead-attempts"] or b"")
        promise(attempts == self._attempts, f"{what} after {attempts} attempts")
        # A message that is tried alone is blamed for a death that comes before its handler begins, too.
        failed = attempts - int(headers["ps-dead-crashes"] or b"")
        promise(beside.begun[origin] >= failed, f"{what} after {beside.begun[origin]} deliveries")
        kept = [each for each in record.headers() or () if not each[0].startswith(("ps-dead-", "ps-id"))]
        whole = (record.key(), record.value()) == (
            self.logs[number].keys[origin],
            self.bodies[number][origin][0],
        )
        promise(whole and (kept or None) == self.bodies[number][origin][1], f"{what} isn't whole")
        beside.dead.add(origin)

    def for_ever(self, number: int) -> set[int]:
        """Origins that are parked until somebody releases them, and the messages that wait behind these."""
        log, beside = self.logs[number], self.beside[number]
        found: set[int] = set()
        overtaken = self._overtaken(number, *beside.stored)
        _, retry = self._decided(number) if overtaken else beside.stored
        for info in beside.waiting(retry, self.undecided(number)):
            if info.due >= FOREVER:
                key = log.keys[info.origin]
                alone = key is None or not self.ordered
                found |= {info.origin} if alone else {at for at in log.of_key[key] if at >= info.origin}
        return found

    def stays(self) -> bool:
        """Whether something lies in the retry topic for ever: parked, or rubbish where there are no dead letters."""
        return any(
            self.for_ever(number) or beside.rubbish(beside.stored[1], self.undecided(number))
            for number, beside in enumerate(self.beside)
        )

    # The base class's questions

    def owns(self, process: str, partition: int, epoch: int) -> Ownership:
        if (process, partition, epoch) not in self.ownerships:
            self.beside[partition].owned_since = self._cluster.clock.now()
        return super().owns(process, partition, epoch)

    def subscribed(self, partition: int, position: int) -> None:
        log = self.logs[partition]
        log.before = log.covered(position, "")
        log.durable = set(log.before)

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
        self.look()
        log, beside, offset, key = (
            self.logs[owner.partition],
            self.beside[owner.partition],
            record.offset(),
            record.key(),
        )
        where = f"{owner!r} offset {offset} key {key!r} attempt {attempt}"
        promise(owner.partition not in self.cut, f"refused: {where} begins; a log has lost what was read")
        promise(log.keys.get(offset, b"?") == key, f"{where}: no such record was published")
        self.after_the_old(log, key, where)
        owner.begun[offset] += 1
        beside.begun[offset] += 1
        log.delivered.add(offset)
        if not valid:
            return
        promise(offset not in log.durable, f"durable: {where} begins; the log knows it is finished")
        beside.read_on()
        info = beside.newest.get(offset)
        promise(info is None or info.due <= now * 1000 + 1, f"due: {where} begins at {now}, due {info}")
        if offset not in together and not together:
            said = 1 if info is None else info.attempt + info.crashes
            promise(attempt == said, f"attempt: {where} begins, the log says {said}")
            failed = attempt - 1 - (0 if info is None else info.crashes)
            promise(failed < beside.begun[offset], f"attempt: {where} was begun {beside.begun[offset]} times")
        if self.ordered and key is not None:
            self._in_order(owner, log, offset, key, together, where)

    def _in_order(
        self, owner: Ownership, log: Log, offset: int, key: bytes, together: Collection[int], where: str
    ) -> None:
        beside, offsets = self.beside[owner.partition], log.of_key[key]
        at = beside.through[key]
        while offsets[at] < offset:
            earlier = offsets[at]
            if earlier not in log.durable and earlier not in log.gone and earlier not in beside.dead:
                break
            at += 1
        beside.through[key] = at  # durable, gone and dead are for good
        while offsets[at] < offset:
            earlier = offsets[at]
            done = earlier in log.gone or earlier in beside.dead or earlier in together
            done = done or earlier in owner.finished or earlier in log.durable
            promise(done, f"order: {where} begins before {earlier} is acked")
            at += 1

    def commit_made(self, owner: Ownership, commit: Commit | CommitBoth, known: Collection[int]) -> None:
        promise(isinstance(commit, CommitBoth), f"{owner!r} commits one half: {commit}")
        if isinstance(commit, CommitBoth):
            for text in (commit.metadata, commit.retry.metadata):
                promise(len(text) <= ack_map.CAPACITY, f"I5: {owner!r}: {len(text)} characters")

    def commit_stored(self, owner: Ownership, commit: Commit | CommitBoth) -> None:
        """Looked at by `look`."""

    # The end

    def never_again(self, partition: int) -> Collection[int]:
        log = self.logs[partition]
        return log.gone | log.lost | self.beside[partition].dead | self.for_ever(partition)

    def unsettled(self, number: int) -> set[int]:
        """Messages that aren't finished, and aren't parked for ever either."""
        log = self.logs[number]
        left = log.keys.keys() - log.durable - log.gone
        return left - self.for_ever(number) if left else left

    def hides(self) -> bool:
        """Whether a transaction is open in the retry topic or among the dead letters."""
        logs = [self._cluster.log(TopicPartition(DEAD, 0)), *(beside.log for beside in self.beside)]
        return any(log.stable_end < log.end for log in logs)

    def settled(self) -> bool:
        return not any(self.unsettled(number) for number in range(len(self.logs)))

    def only_held_up(self, number: int, keys: Collection[bytes | None], *, exhausted: bool) -> bool:
        """Whether only messages of these keys aren't settled, or those that can't be dead letters and those behind."""
        log, beside, left = self.logs[number], self.beside[number], self.unsettled(number)
        beside.read_on()
        held = set()
        unfinished = log.keys.keys() - log.durable  # retention in main takes nothing out of the retry topic
        for at in unfinished if exhausted else ():
            info = beside.newest.get(at)
            if info is not None and info.attempt + info.crashes >= self._attempts:
                held.add(at)
        keys = {*keys, *(log.keys[at] for at in held if self.ordered)} - {None}
        return all(at in held or log.keys[at] in keys for at in left)

    def check_nothing_lost(self, starts: Sequence[int]) -> None:  # type: ignore[override]
        for number, (log, start) in enumerate(zip(self.logs, starts, strict=True)):
            dead, parked = self.beside[number].dead, self.for_ever(number)
            lost = {at for at in log.keys if at >= start} - log.acked - log.gone - dead - parked
            promise(not lost, f"lost: {sorted(lost)} of {number} were never acked")

    def check_rubbish(self, written: int) -> None:
        """What isn't a message is either with the dead letters or where it was."""
        dead = self._cluster.log(TopicPartition(DEAD, 0)).read(0, 1_000_000)
        found = sum("ps-dead-offset" not in dict(record.headers() or ()) for record in dead)
        for number, beside in enumerate(self.beside):
            found += beside.rubbish(beside.stored[1], self.undecided(number))
        promise(found == written, f"lost: of {written} records that aren't messages {found} are left")

    def check_only_poison_is_dead_lettered(self) -> None:
        """In a world whose only trouble they are, exactly they are dead."""
        for number, beside in enumerate(self.beside):
            innocent = beside.dead - self.poison[number].keys()
            promise(not innocent, f"buried: {sorted(innocent)} of {number} have killed nobody")
