"""Worlds whose topic has lanes (I9, and I1 across lanes): crashes, rebalances and everything else befalls them too.

Theory. The ledger numbers partitions `index * partitions + partition`, lane after lane: its pages are a list.
The topic has three lanes beside its own Kafka topic, which has the second highest priority; two of them are the
classes of the same priority. A modelled publisher names its earlier messages, as `lane_sender` does. The leaders'
clocks differ, a transient lane's leader loses the tail that no reader has seen, and some topics are copies: the log of
each name is another log, and a lane that is named isn't there. Processes, which begin before some lanes are used,
aren't told: that is for `tests/unit/lanes`.

Promised, beside the promises that hold in every lane as in a topic
  follows   a message begins only when all earlier ones of its key in other lanes are finished, for the log or its owner
  priority  with strict priorities nothing begins while a message of a higher priority can be delivered
  lifted    nor while an earlier message of the key of a waiting message of a higher priority can be delivered
  classes   of a priority nothing begins while a message of the other class can be delivered that was sent earlier
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import cast

from kafka_pubsub.config import (
    LaneTopic,
    RetryTopic,
    SubscriptionLane,
    SubscriptionRecord,
    TopicOptions,
    TopicRecord,
)
from kafka_pubsub.lane_names import Lane
from kafka_pubsub.lanes import cuts as lane_cuts
from kafka_pubsub.lanes.choices import LaneChoices, LaneSource
from kafka_pubsub.lanes.ends import LaneEnds, Receiver
from kafka_pubsub.lanes.headers import Name, Sent, after_header, read_lane_headers, sequence_header
from kafka_pubsub.lanes.merge import Choice
from kafka_pubsub.log.records import Record
from kafka_pubsub.model import Header, StoredRecord, TopicPartition
from kafka_pubsub.partition_id import PartitionId
from kafka_pubsub.subscribe import lane_windows as windows
from kafka_pubsub.subscribe.retry_topic.layout import Layout
from kafka_pubsub.subscribe.stream.runner import StreamRunner
from tests.simulation.ledger import Log, Ownership, promise
from tests.simulation.plan import Plan
from tests.simulation.retry_ledger import RETRY, RetryLedger
from tests.simulation.retry_plan import ATTEMPTS
from tests.simulation.trouble import GROUP, TOPIC
from tests.simulation.world import SimulatedWorld

__all__ = ["LANES", "CheckedChoices", "LanedWorld"]

#: Lanes beside the topic's own Kafka topic, whose priority is this.
LANES = 3
#: The endings of the lanes' topics, behind the topic's name.
NAMES = ("p0", "p1", "t1")
#: The lanes of their ids, in the order of the ledger's pages.
_LANES = (0, *(Lane(int(name[1]), name[0] == "p").number for name in NAMES))
#: After every message.
_LAST = 2**63
#: Records that a narrow lane holds, instead of 64.
NARROW = 3
#: Brokers date the records.
STAMPED = {"message.timestamp.type": "LogAppendTime"}


def home(number: int, partitions: int) -> TopicPartition:
    """The home partition with this number."""
    index, partition = divmod(number, partitions)
    return TopicPartition(TOPIC if index == 0 else f"{TOPIC}.lane.{NAMES[index - 1]}", partition)


def beside(number: int, partitions: int) -> TopicPartition:
    """The retry partition beside it."""
    topic, partition = home(number, partitions)
    return TopicPartition(RETRY if topic == TOPIC else f"{topic}.sub.{GROUP}.retry", partition)


class InstantEnds(LaneEnds):
    """Answers at once, or never."""

    def __init__(self, world: SimulatedWorld) -> None:
        self._world = world

    def ask(self, places: Sequence[TopicPartition], answer: Receiver, *, whole: bool = False) -> None:
        """Answers while the asker waits."""
        world = self._world
        if world.calm or not world.chance(0.1):
            admin = world.backend.admin
            answer(admin.high_watermarks(places) if whole else admin.readable_ends(places, 1.0))

    def close(self) -> None:
        """There is no thread."""


class CheckedChoices(LaneChoices):
    """The choices, each of which is checked."""

    #: How many reads passed through, and how many messages were lifted.
    passed_through = lifted = 0
    #: Whether names are of other logs: then the named messages aren't known at once.
    copied = False

    def _hand_out(self, group, choice: Choice, *rest, **more):  # type: ignore[no-untyped-def]
        goes_with = group.merge.turn
        if choice.key is None:
            self._judge(group, choice.lane, _first(group.sides[choice.lane]))
        else:
            self.lifted += 1
            waits = [lane for lane, side in group.sides.items() if _has(side, choice.key)]
            promise(
                goes_with in {lane.priority for lane in waits},
                f"lifted: nothing of {choice.key!r} waits there",
            )
        if not choice.aged:
            self._judge_lifting(group, goes_with)
        return super()._hand_out(group, choice, *rest, **more)

    def passes(self, number: PartitionId, last: int, now: float) -> bool:
        found = super().passes(number, last, now)
        if found and self.active:
            side = self._sides[number]
            group = self._groups[number.partition]
            self._judge(group, side.lane, _LAST)
            self._judge_lifting(group, side.lane.priority)
            promise(_first(side) is None, f"passes: {side.lane} holds what came before {last}")
            self.passed_through += 1
        return found

    def _judge(self, group, chosen: Lane, first: int | None) -> None:  # type: ignore[no-untyped-def]
        """Judges the messages of a lane that go; the first message has the number `first`, None: unknown."""
        for lane, side in group.sides.items():
            if (other := _first(side)) is None:
                continue
            higher = self._source.bound is None and lane.priority > chosen.priority
            promise(not higher, f"priority: {chosen} goes, and {lane} holds a message")
            due = group.sides[chosen].partition.parked_ready
            if (
                lane != chosen and lane.priority == chosen.priority and not due
            ):  # messages that are due again go first
                promise(
                    first is None or first <= other, f"classes: {chosen} goes, and {lane} was sent earlier"
                )

    def _judge_lifting(self, group, goes_with: int) -> None:  # type: ignore[no-untyped-def]
        """Judges, by plain lists, which messages wait while a message goes with a priority; keys have one publisher."""
        fronts: dict[bytes, list[tuple[int, Lane, Record]]] = {}
        for lane, side in group.sides.items() if not self.copied and self.ordered else ():
            for key, queue in side.partition._queues.queues.items() if side.begins else ():
                if queue and (number := _number(queue[0])) is not None:
                    fronts.setdefault(key, []).append((number, lane, queue[0]))
        for key, found in fronts.items():
            number, low, record = min(found, key=lambda each: each[0])
            retry = group.sides[low].partition._retry_partition
            if retry.lending.origin_of(key) != record.offset() or retry.careful(record.offset()):
                continue
            for later, lane, waits in found:
                if later > number and lane.priority > max(goes_with, low.priority):
                    promise(
                        not _waits_alone(group, lane, key, waits),
                        f"lifted: {goes_with} goes, and {lane} waits for offset {record.offset()} of {low}",
                    )


def _has(side, key: bytes) -> bool:  # type: ignore[no-untyped-def]
    """Returns whether a lane has messages of a key."""
    return (
        key in side.partition._queues.queues or key in side.partition._retry_partition.retries.parking.lines
    )


def _waits_alone(group, lane: Lane, key: bytes, record: Record) -> bool:  # type: ignore[no-untyped-def]
    """Returns whether a lane's first message of a key waits for other lanes alone, and these are read far enough."""
    partition = group.sides[lane].partition
    parking = partition._retry_partition.retries.parking
    if (
        key in partition._queues.blocked
        or key in parking.moving
        or parking.lines.front(key)
        or parking.origin_of(key) is not None
    ):
        return False
    _, names = read_lane_headers(cast("StoredRecord", record).headers())
    sides = [(group.sides.get(each), name) for each, name in names.items()]
    return all(
        side is not None and side.begins and side.partition._offsets.position > name.offset
        for side, name in sides
    )


def _first(side) -> int | None:  # type: ignore[no-untyped-def]
    """Returns the number of the first message that a lane can deliver now; None: it can't, or that is unknown."""
    queues = side.partition._queues
    oldest = queues.oldest() if side.begins else None
    if oldest is None or side.partition._retry_partition.careful(oldest):
        return None
    return _number(next(each for each in queues.waiting() if each.offset() == oldest))


def _number(record: Record) -> int | None:
    """Returns a message's number; None: it has none."""
    sent = read_lane_headers(cast("StoredRecord", record).headers())[0]
    return None if sent is None else sent.number


class LanedLedger(RetryLedger):
    """The books of all lanes."""

    #: By place: the number of a message, whatever its lane.
    sent: dict[tuple[int, int], int]
    stride: int

    def places(self, number: int) -> tuple[TopicPartition, TopicPartition]:
        return home(number, self.stride), beside(number, self.stride)

    def after_the_old(self, log: Log, key: bytes | None, where: str) -> None:
        """Lanes are no old partitions: `begins` judges a key that changes its lane."""

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
        super().begins(owner, record, attempt, together, valid=valid, alone=alone, now=now)
        number = self.sent.get((owner.partition, record.offset()))
        key = record.key()
        if number is None or key is None or not valid or not self.ordered:
            return
        for lane in range(owner.partition % self.stride, len(self.logs), self.stride):
            for at in self.logs[lane].of_key.get(key, ()) if lane != owner.partition else ():
                if self.sent.get((lane, at), number) < number:
                    where = f"follows: {owner!r} offset {record.offset()}"
                    promise(
                        self._is_over_for(owner, lane, at),
                        f"{where} begins before {at} of {lane} is finished",
                    )

    def _is_over_for(self, owner: Ownership, number: int, at: int) -> bool:
        mine = (
            each.finished
            for each in self.ownerships.values()
            if (each.process, each.partition) == (owner.process, number)
        )
        return self.is_over(number, at) or any(at in finished for finished in mine)


class LanedWorld(SimulatedWorld):
    """A single seed's world, with lanes."""

    def _make_ledger(self, plan: Plan) -> RetryLedger:
        actions = {**plan.actions, "grow": 0.0, "lose_lane_tail": self.random.choice([0.0, 1.0])}
        self.plan = plan = replace(plan, grows=0, actions=actions)
        #: By key and number, and by number alone: the last message there.
        self.of_keys: dict[bytes, dict[int, Name]] = {}
        self._of_lines: dict[int, Name] = {}
        self._skews = [self.random.choice([0.0, 0.0, -0.02, 0.5, 3.0]) for _ in range(1 + LANES)]
        self._copied = self.chance(0.2)
        #: Up to where any reader has read.
        self._read: dict[TopicPartition, int] = {}
        ledger = LanedLedger(
            plan.partitions * (1 + LANES),
            ordered=plan.rules.ordered,
            cluster=self.cluster,
            group=GROUP,
            attempts=ATTEMPTS,
        )
        ledger.sent, ledger.stride = {}, plan.partitions
        self.choices: list[CheckedChoices] = []
        return ledger

    @contextmanager
    def narrowed(self) -> Iterator[None]:
        shrunk = (
            (windows, "NARROW", NARROW),
            (lane_cuts, "NARROW", NARROW),
            (windows, "WINDOW", self.plan.window),
            (windows, "LEAST", max(1, self.plan.window // 4)),
        )
        before = [(module, name, vars(module)[name]) for module, name, _ in shrunk]
        for module, name, value in shrunk:
            vars(module)[name] = value
        try:
            yield
        finally:
            for module, name, value in before:
                vars(module)[name] = value

    def page(self, partition: PartitionId) -> int:
        return _LANES.index(partition.lane) * self.plan.partitions + partition.partition

    @property
    def numbers(self) -> int:
        return self.plan.partitions * (1 + LANES)

    def home(self, number: int) -> TopicPartition:
        return home(number, self.plan.partitions)

    def ends(self) -> Mapping[int, int]:
        return {
            index * self.plan.partitions + partition: end
            for index in range(1 + LANES)
            for partition, end in self.backend.admin.last_stable_offsets(
                self.home(index * self.plan.partitions).topic
            ).items()
        }

    def _beside(self, record: SubscriptionRecord) -> SubscriptionRecord:
        """The subscription with its part of each lane; the lanes are there from the beginning, and empty."""
        admin, count = self.backend.admin, self.plan.partitions
        admin.update_topic(TOPIC, STAMPED)
        lanes, parts = list[LaneTopic](), dict[str, SubscriptionLane]()
        for index in range(1, 1 + LANES):
            name, retry = self.home(index * count).topic, beside(index * count, count).topic
            info = admin.create_topic(name, count, None, STAMPED)
            kind = NAMES[index - 1]
            lane = LaneTopic(name=name, priority=int(kind[1]), durable=kind[0] == "p", topic_id=info.topic_id)
            lanes.append(lane)
            positions = dict.fromkeys(range(count), 0)
            made = RetryTopic(
                name=retry, topic_id=admin.create_topic(retry, count, None, {}).topic_id, positions=positions
            )
            parts[name] = SubscriptionLane(retry_topic=made, positions=positions)
            self.backend.admin.set_positions(
                GROUP, {TopicPartition(each, number): 0 for each in (name, retry) for number in positions}
            )
        options = TopicOptions(partitions=count, priorities=LANES + 2, default_priority=LANES, transient=True)
        before = self.backend.catalog.topics()[TOPIC]
        topic = TopicRecord(name=TOPIC, topic_id=before.topic_id, options=options, lanes=tuple(lanes))
        self.backend.catalog.put_topic(topic, before)
        self.starts = [*self.starts, *[0] * (self.numbers - count)]
        return super()._beside(record).model_copy(update={"lanes": parts})

    def layout_of(self, record: SubscriptionRecord) -> Layout:
        return Layout(record, self.backend.catalog.topics()[TOPIC], RETRY)

    def give_lanes(self, stream_runner: StreamRunner) -> None:
        bound = None if self.plan.steps % 3 else 1.0
        ordered = self.plan.rules.ordered
        source = LaneSource(
            lambda: stream_runner.rebalances.layout,
            InstantEnds(self),
            stream_runner.post,
            bound,
            ordered,
            self._looks,
        )
        coordinator = stream_runner.coordinator
        coordinator.chooser = choices = CheckedChoices(source, coordinator.partitions.gate.max_bytes)
        choices.copied = self._copied
        self.choices.append(choices)
        coordinator.chooser.watch(coordinator.partitions)

    def _looks(self) -> int:
        """Returns how often the catalog was looked at: once a second."""
        return int(self.now())

    def stamp(self, number: int) -> float | None:
        index = number // self.plan.partitions
        return self.cluster.now_ms() / 1000 + self._skews[index] if self.lanes_used else None

    def append(self, key: bytes | None, transaction: str | None = None) -> tuple[int, int]:
        number, offset = super().append(key, transaction)
        sent = self._published
        assert isinstance(self.ledger, LanedLedger)
        self.ledger.sent[number, offset] = sent
        if self.lanes_used:
            log = self.backend.admin.topic(self.home(number).topic).topic_id
            name = Name(sent, offset, log) if not self._copied else Name(sent, offset * 7 % 5, "elsewhere")
            self._of_lines[number] = name
            if key is not None:
                self.of_keys.setdefault(key, {})[number] = name
        return number, offset

    def _choose_lane(
        self, number: int, key: bytes | None, headers: list[Header] | None
    ) -> tuple[int, list[Header] | None]:
        if not self.lanes_used:
            return number, headers
        count = self.plan.partitions
        number += count * self.random.choice([0, 0, 1, 2, 3])
        other = {2: 3, 3: 2}.get(number // count)
        line = None if other is None else self._of_lines.get(other * count + number % count)
        said = [sequence_header(Sent("p", self._published, line))]
        if names := self.names_of(key, number):
            said.append(after_header(names))
        return number, [*(headers or ()), *said]

    def names_of(self, key: bytes | None, number: int) -> dict[Lane, Name]:
        """Returns the messages that a message names in its key's other lanes."""
        before = {} if key is None else self.of_keys.get(key, {})
        gone = {Lane(9, True): Name(1, 0, "elsewhere")} if self._copied and self._published % 4 == 0 else {}
        return {self._lane(each): name for each, name in before.items() if each != number} | gone

    def _lane(self, number: int) -> Lane:
        return (Lane(LANES, True), Lane(0, True), Lane(1, True), Lane(1, False))[
            number // self.plan.partitions
        ]

    def _look(self) -> None:
        super()._look()
        for process in self.processes:
            for place, position in process.reader._positions.items():
                self._read[place] = max(position, self._read.get(place, 0))

    def lose_lane_tail(self) -> None:
        """The leader of the transient lane is lost, with all that no reader has seen."""
        number = LANES * self.plan.partitions + self.random.randrange(self.plan.partitions)
        place, ledger = self.home(number), self.ledger
        log, book = self.cluster.log(place), ledger.logs[number]
        if any(number == each for each, _, _ in self._open) or log.stable_end < log.end:
            return
        # A process may have read, committed and died within a single action.
        known = [at + 1 for at in (*book.durable, *book.delivered, *book.gone)]
        here = PartitionId(_LANES[LANES], place.partition)
        parts = (process.coordinator.partitions.find(here) for process in self.processes)
        known += [part.position for part in parts if part is not None]
        low = max(log.start, self._read.get(place, 0), book.position, *known)
        if low >= log.end:
            return
        end = self.random.randrange(low, log.end)
        self.say(f"{place} loses its tail from {end} on")
        book.keys = {at: key for at, key in book.keys.items() if at < end}
        book.order = [at for at in book.order if at < end]
        book.of_key = {
            key: left for key, some in book.of_key.items() if (left := [at for at in some if at < end])
        }
        for books in (ledger.bodies[number], ledger.poison[number]):
            for at in [each for each in books if each >= end]:
                del books[at]
        self.cluster.lose_tail(place.topic, place.partition, end)

    @property
    def lanes_used(self) -> bool:
        """Whether the topic has its lanes already."""
        return len(self.starts) == self.numbers if hasattr(self, "starts") else False
