"""The state of a subscription: what isn't finished, by Kafka alone, and what this process's streams hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from itertools import chain, islice

from kafka_pubsub.config import SubscriptionRecord
from kafka_pubsub.errors import FailedPrecondition
from kafka_pubsub.log.ports import Backend
from kafka_pubsub.model import TopicPartition
from kafka_pubsub.partition_id import PartitionId
from kafka_pubsub.subscribe.backlog import Backlog, read_backlogs, summed
from kafka_pubsub.subscribe.dead_letters.counting import DeadLetterCount, count_dead_letters
from kafka_pubsub.subscribe.partition.key_line import NEVER
from kafka_pubsub.subscribe.partition.leases import LeaseState
from kafka_pubsub.subscribe.partition.partition import Partition
from kafka_pubsub.subscribe.retry_topic.key_states import KeyState, reason_of
from kafka_pubsub.subscribe.retry_topic.layout import Layout
from kafka_pubsub.subscribe.stream.runner import StreamRunner

__all__ = ["LIMIT", "BlockedKey", "LaneState", "SubscriptionState", "state_of"]

#: The most keys listed in a state: more than a person reads.
LISTED = 1000
#: The messages of the retry topics that are read, and the records of the dead-letter topic, unless a caller says less.
LIMIT = 10_000


@dataclass(frozen=True)
class BlockedKey:
    """A key whose later messages wait, and the reason. `topic`: its Kafka topic, that of the lane if it has lanes."""

    key: bytes
    partition: int
    offset: int
    reason: str
    waiting: int
    topic: str = ""


@dataclass(frozen=True)
class LaneState:
    """The state of one lane: `topic` is its Kafka topic.

    `oldest`: when the oldest unfinished message was published, in a retry topic or not; None: there is none. The
    figures are those of `SubscriptionState`, for this lane alone; a key that waits in two lanes counts in each.
    """

    topic: str
    priority: int
    durable: bool
    lag: int
    oldest: datetime | None
    backlog: int = 0
    waiting_retry: int = 0
    parked: int = 0
    blocked_keys: int = 0
    dead_letters: int | None = 0


@dataclass(frozen=True)
class SubscriptionState:
    """The state of a subscription. All figures but three come from Kafka alone: no process has to receive.

    `backlog`: the messages that aren't finished, those in the retry topic included. An offset beyond the first 100
    unfinished ones of a partition counts as a message, also if it holds a transaction's marker or was compacted away,
    so a large backlog is an upper bound. `oldest`: when the oldest of these was published; None: there is none.
    `oldest_at_home`: the same without those in the retry topic, which wait on purpose.

    `waiting_retry`: messages in the retry topic that wait for their next delivery, or behind an earlier message of
    their key. `retry_due`: when the first of them is due; None: none waits for a time. `parked`: those that wait
    there until you release them, of which `oldest_parked` was published first. `blocked_keys`: ordering keys with a
    message in the retry topic; their later messages wait. `dead_letters`: those in the policy's topic that are neither
    replayed nor purged; None: that topic can't be read now, or not with this client's rights.

    `unread_retry`, `unread_dead_letters`: records beyond the limit of `state(limit=)`, which weren't read. The former
    count as waiting for retry, and some may be parked; some of the latter may be older dead letters.

    `lag` is Kafka's: the end of the log less the committed position, of the topic and its lanes. It grows while one
    message in front isn't finished, whatever was acked behind it, and leaves out messages in the retry topic.

    `lag_by_partition` has it for each partition of the topic and its lanes. `members`: how many processes receive, and
    `hosts` where each of them runs, as the broker sees it.

    `in_flight`, `buffered` and the callbacks in `blocked` are those of this process's streams only. `lanes` has a state
    for each lane in use, the highest priority first; it is empty if the topic has none.
    """

    subscription: str
    topic: str
    members: int
    lag: int
    lag_by_partition: dict[int, int]
    in_flight: int = 0
    buffered: int = 0
    blocked: tuple[BlockedKey, ...] = field(default=())
    lanes: tuple[LaneState, ...] = field(default=())
    backlog: int = 0
    oldest: datetime | None = None
    waiting_retry: int = 0
    parked: int = 0
    blocked_keys: int = 0
    dead_letters: int | None = 0
    unread_retry: int = 0
    unread_dead_letters: int = 0
    oldest_parked: datetime | None = None
    hosts: tuple[str, ...] = ()
    oldest_at_home: datetime | None = None
    retry_due: datetime | None = None


def state_of(
    backend: Backend,
    record: SubscriptionRecord,
    runners: Sequence[StreamRunner],
    limit: int,
    listed: Mapping[str, bool] | None = None,
) -> SubscriptionState:
    """Reads the state from the log, and asks the streams of this process.

    `limit`: how many messages of the retry topics, and how many records of the dead-letter topic, are read. `listed`:
    the groups of a moment ago, as of `Admin.groups`.
    """
    layout = Layout(record, backend.catalog.topics().get(record.topic))
    hosts = sorted(backend.admin.member_hosts(record.name, listed))
    here = _Streams(runners)
    with closing(backend.record_fetch()) as fetch:
        backlogs = read_backlogs(backend, layout, fetch, limit, alive=bool(hosts))
        letters = count_dead_letters(backend, fetch, record, limit)
    elsewhere = (each for number, each in backlogs.items() if number not in here.own)
    blocked = chain(
        here.blocked,
        (_from_log(state) for each in elsewhere for state in each.waiting.states(each.started)),
    )
    total = summed(backlogs.values())
    return SubscriptionState(
        record.name,
        record.topic,
        len(hosts),
        total.lag,
        _by_partition(backlogs),
        here.in_flight,
        here.buffered,
        tuple(islice(blocked, LISTED)),
        _lanes(layout, backlogs, letters),
        total.backlog,
        _moment(total.oldest),
        total.waiting_retry,
        total.parked,
        total.blocked_keys,
        None if letters is None else sum(letters.by_topic.values()),
        total.unread,
        0 if letters is None else letters.unread,
        _moment(_first(each.oldest_parked for each in backlogs.values())),
        tuple(hosts),
        _moment(_first(each.oldest_at_home for each in backlogs.values())),
        _moment(_first(each.waiting.first_due for each in backlogs.values())),
    )


def _first(times: Iterable[int | None]) -> int | None:
    return min((at for at in times if at is not None), default=None)


class _Streams:
    """What the streams of this process hold."""

    def __init__(self, runners: Sequence[StreamRunner]) -> None:
        self.blocked: list[BlockedKey] = []
        #: The numbers of their partitions.
        self.own: set[PartitionId] = set()
        self.in_flight = self.buffered = 0
        for runner in runners:
            with suppress(FailedPrecondition):  # it has ended meanwhile
                self._take(runner, runner.ask(partial(_blocked_in, runner)))

    def _take(self, runner: StreamRunner, blocked: Sequence[BlockedKey]) -> None:
        partitions = runner.coordinator.partitions
        self.in_flight += runner.coordinator.in_flight()
        self.buffered += sum(held.bytes for held in partitions.held().values())
        self.own.update(partitions.owned)
        self.blocked += blocked


def _by_partition(backlogs: Mapping[PartitionId, Backlog]) -> dict[int, int]:
    """Returns the lag of each partition, over all lanes."""
    lag: dict[int, int] = {}
    for number, each in backlogs.items():
        partition = number.partition
        lag[partition] = lag.get(partition, 0) + each.lag
    return dict(sorted(lag.items()))


def _lanes(
    layout: Layout, backlogs: Mapping[PartitionId, Backlog], letters: DeadLetterCount | None
) -> tuple[LaneState, ...]:
    """Returns the states of all lanes."""
    states = []
    for index, lane in layout.lanes.items():
        topic = layout.views[index].topic
        part = summed(each for number, each in backlogs.items() if number.lane == index)
        states.append(
            LaneState(
                topic,
                lane.priority,
                lane.durable,
                part.lag,
                _moment(part.oldest),
                part.backlog,
                part.waiting_retry,
                part.parked,
                part.blocked_keys,
                None if letters is None else letters.by_topic.get(topic, 0),
            )
        )
    return tuple(sorted(states, key=lambda each: (-each.priority, not each.durable)))


def _moment(milliseconds: int | None) -> datetime | None:
    return None if milliseconds is None else datetime.fromtimestamp(milliseconds / 1000, UTC)


def _blocked_in(runner: StreamRunner) -> list[BlockedKey]:
    """Returns at most `LISTED` keys: a million may be parked, and the stream stands still meanwhile."""
    home, partitions = runner.rebalances.place, runner.coordinator.partitions
    blocked = (
        each for number, partition in partitions.owned.items() for each in _blocked(partition, home(number))
    )
    return list(islice(blocked, LISTED))


def _blocked(partition: Partition, home: TopicPartition) -> Iterable[BlockedKey]:
    """Yields the blocked keys of a partition."""
    reasons = {
        LeaseState.RUNNING: "with its callback",
        LeaseState.KEPT: "leased, not acked yet",
        LeaseState.EXPIRED: "its deadline has passed, its callback still runs",
    }
    yield from _parked(partition, home)
    for lease in partition.active:
        if lease.key is not None and lease.done < len(lease.records):
            waiting = len(partition.key(lease.key).queue) + len(lease.records) - lease.done - 1
            offset = lease.records[lease.done].offset()
            yield _blocked_key(home, lease.key, offset, reasons[lease.state], waiting)


def _parked(partition: Partition, home: TopicPartition) -> Iterable[BlockedKey]:
    """Yields the keys that wait in the retry topic."""
    for key, first, entry, waiting, comes_after in partition.parked_keys():
        if comes_after is not None:
            yield _blocked_key(home, key, -1 if first is None else first, comes_after, waiting - 1)
        elif entry is None:
            yield _blocked_key(home, key, -1, "on its way to the retry topic", 0)
        else:
            why = "parked until it is released" if entry.due == NEVER else f"waiting: {reason_of(entry.why)}"
            yield _blocked_key(home, key, entry.origin, f"{why}, attempt {entry.attempt}", waiting - 1)


def _blocked_key(home: TopicPartition, key: bytes, offset: int, reason: str, waiting: int) -> BlockedKey:
    return BlockedKey(key, home.partition, offset, reason, waiting, home.topic)


def _from_log(state: KeyState) -> BlockedKey:
    why = "parked until it is released" if state.state == "parked" else f"{state.state}: {state.reason}"
    return BlockedKey(
        state.key or b"",
        state.partition,
        state.offset,
        f"{why}, attempt {state.attempt}",
        state.behind,
        state.topic,
    )
