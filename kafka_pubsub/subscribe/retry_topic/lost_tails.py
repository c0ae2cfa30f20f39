"""Finds and refuses logs that have lost records that a subscription had read; `recover` goes on from them.

Theory. An unclean election, or the disk of a single broker, can remove the last records of a log. It grows again
from there, so the same offsets are other messages: those that a commit calls finished would be skipped, and messages
that waited in the retry topic are gone. Commits and checkpoints say how far both logs were read, and under which
leader epoch.

Rules
1. Nothing is delivered from a log that lost records that were read, until `recover` was called.
2. Records that retention deleted aren't lost, nor those of a deleted topic of the same name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Literal, NamedTuple

from kafka_pubsub.config import SubscriptionRecord
from kafka_pubsub.errors import Call, DeadlineExceeded, FailedPrecondition, InvariantViolated
from kafka_pubsub.log.ports import Backend, RecordFetch
from kafka_pubsub.model import Committed, LogEnd, Run, TopicPartition
from kafka_pubsub.subscribe.formats import ack_map
from kafka_pubsub.subscribe.formats.ack_map import AckMap
from kafka_pubsub.subscribe.formats.checkpoint import united
from kafka_pubsub.subscribe.retry_topic.checkpoint_reader import (
    finished_at_home,
    finished_runs,
    map_of,
    newest,
    stored_by,
)
from kafka_pubsub.subscribe.retry_topic.retry_topics import is_of_another

__all__ = ["Findings", "LostTail", "Recovery", "look", "refuse"]

#: Seconds for checking the ends of all logs.
_SECONDS = 20.0


class Findings(NamedTuple):
    """How far each log was read, by the commits; and the first lost offset of each log that lost records."""

    read: Mapping[TopicPartition, LogEnd]
    lost: Mapping[TopicPartition, int]


def look(
    fetch: RecordFetch,
    record: SubscriptionRecord,
    stored: Mapping[TopicPartition, Committed],
    ends: Mapping[TopicPartition, int],
) -> Findings:
    """Compares what a subscription has committed with its logs, which end at `ends`."""
    retry = record.retry_topic
    name = None if retry is None else retry.name
    maps = {
        place: found
        for place, committed in stored.items()
        if (found := map_of(committed)) is not None
        and (retry is None or place.topic != name or not is_of_another(retry, committed))
    }
    read = {place: found.read for place, found in maps.items()}
    lost = dict(fetch.lost_tails({place: end for place, end in read.items() if end.offset}, _SECONDS))
    for place, found in maps.items():
        # Below a position may lie markers, which aren't read. An owner hasn't read back what it wrote last: a
        # checkpoint's offset shows that it was stored.
        end = stored[place].offset or 0
        if place.topic == name and found.checkpoint is not None:
            end = max(end, found.checkpoint.offset + 1)
        if end > ends[place] and place not in lost:
            lost[place], read[place] = ends[place], LogEnd(end)
    return Findings(read, lost)


def refuse(subscription: str, findings: Findings) -> None:
    """Raises `FailedPrecondition` if any log lost records that were read."""
    read, lost = findings
    if not lost:
        return
    each = "; ".join(
        f"{place.topic}[{place.partition}] was read up to offset {read[place].offset - 1}, and has lost what lay "
        f"from offset {start} on"
        for place, start in sorted(lost.items())
    )
    oldest, end = (
        Call("recover_subscription", subscription, (("start", start),)) for start in ("oldest", "end")
    )
    raise FailedPrecondition(
        f"subscription {subscription!r}: a log lost its end (an unclean leader election, or a broker's disk): {each}. "
        f"Messages are gone, and others may lie at their offsets. Close all streams of the subscription; then {oldest} "
        f"delivers all that was written since, {end} skips it",
        calls=(oldest, end),
    )


@dataclass(frozen=True)
class LostTail:
    """A partition of a topic, or of a subscription's retry topic, that lost its last records.

    `lost`: how many offsets that were read are gone, from `start` on. `skipped`: how many of the offsets that were
    written since won't be delivered; 0 unless `recover` begins at the end.
    """

    topic: str
    partition: int
    start: int
    lost: int
    skipped: int


class Recovery:
    """Goes on from logs that have lost their ends, for a subscription without open streams."""

    def __init__(self, backend: Backend, record: SubscriptionRecord) -> None:
        self._backend = backend
        self._record = record

    def run(self, start: Literal["oldest", "end"]) -> list[LostTail]:
        """Commits the positions at which to go on; returns the lost tails, none if no log lost anything."""
        record = self._record
        retry = None if record.retry_topic is None else record.retry_topic.name
        found, positions = [], dict[TopicPartition, Committed]()
        with closing(self._backend.record_fetch()) as fetch:
            stored = self._stored(fetch)
            ends = self._backend.admin.high_watermarks(list(stored))
            read, lost = look(fetch, record, stored, ends)
            for place, at in sorted(lost.items()):
                main, end = TopicPartition(record.topic, place.partition), ends[place]
                since = (at, end) if start == "end" and place == main else (at, at)
                found.append(LostTail(*place, at, read[place].offset - at, since[1] - since[0]))
                positions[place] = self._kept(fetch, place, stored[place], at, since)
                if place.topic == retry and main not in lost and map_of(stored[main]) is not None:
                    # Its checkpoint may be lost. Messages that come again because of that may wait there, too.
                    whole = read[main].offset
                    positions[main] = self._kept(fetch, main, stored[main], whole, (whole, whole), older=True)
        if positions:
            self._backend.admin.set_positions(record.name, positions)
        return found

    def _stored(self, fetch: RecordFetch) -> dict[TopicPartition, Committed]:
        """Returns the group's commits; where the broker has forgotten one, the newest checkpoint's."""
        record, retry = self._record, self._record.retry_topic
        admin = self._backend.admin
        names = [record.topic] if retry is None else [record.topic, retry.name]
        stored = {
            TopicPartition(name, number): committed
            for name in names
            for number, committed in admin.group_offsets(record.name, name).items()
        }
        if retry is None:
            return stored
        pairs = [
            (TopicPartition(record.topic, number), TopicPartition(retry.name, number))
            for number in range(record.partitions)
        ]
        ranges = {
            beside: admin.log_range(beside) for main, beside in pairs if not {main, beside} <= stored.keys()
        }
        found = newest(fetch, ranges, (record.topic_id, retry.topic_id))
        for main, beside in pairs:
            if beside in found:
                named, found_checkpoint = found[beside]
                for place, log in ((main, found_checkpoint.main), (beside, found_checkpoint.retry)):
                    stored.setdefault(place, stored_by(named, log, log.position))
        return stored

    def _kept(
        self,
        fetch: RecordFetch,
        place: TopicPartition,
        stored: Committed,
        at: int,
        since: Run,
        *,
        older: bool = False,
    ) -> Committed:
        """Returns what is finished below `at`, as before, with this run of what was written since."""
        said = map_of(stored)
        if said is None:
            raise InvariantViolated(f"{place} was read so far, and its commit doesn't say how far")
        position = min(stored.offset or 0, at)
        runs = united(self._finished(fetch, place, stored, older=older), (), position)
        left = [*((low, min(high, at)) for low, high in runs if low < at), since]
        left = [run for run in left if run[0] < run[1]]
        while left and left[0][0] <= position:
            position = left.pop(0)[1]
        read = LogEnd(at, said.read.epoch_at(at))
        found: str | None = None
        while found is None or len(found) > ack_map.CAPACITY:
            kept = AckMap(said.writer, tuple(left), True, said.nonce, older=older or said.older, read=read)
            found = ack_map.encode(kept, position)
            left = left[: len(left) * 3 // 4]  # runs that don't fit are delivered again
        return Committed(position, found)

    def _finished(
        self, fetch: RecordFetch, place: TopicPartition, stored: Committed, *, older: bool
    ) -> Sequence[Run]:
        """Returns the runs that this commit calls finished; by the last stored checkpoint if its own is lost."""
        retry = self._record.retry_topic
        if retry is None:
            return finished_at_home(self._backend, None, stored)
        beside = TopicPartition(retry.name, place.partition)
        low, end = self._backend.admin.log_range(beside)
        if beside == place:
            runs = finished_runs(fetch, place, stored, end)
        else:
            runs = finished_at_home(self._backend, beside, stored)
        if not older and beside != place:
            return runs  # its own checkpoint is stored
        try:
            left = newest(fetch, {beside: (low, end)}, (self._record.topic_id, retry.topic_id))
        except (
            DeadlineExceeded
        ):  # behind a transaction whose marker is lost: its messages are delivered again
            return runs
        for _, found_checkpoint in left.values():
            runs = united(
                runs,
                found_checkpoint.retry.runs if beside == place else found_checkpoint.main.runs,
                stored.offset or 0,
            )
        return runs
