"""What became of batches whose publisher got no answer: read from inboxes, positions and the catalog.

Rules
1. A stage is staged if an inbox holds it, and isn't if an inbox was read past its place. An inbox that was made again,
   begins above the place, or is gone by the catalog can't say; one that doesn't answer is asked again.
2. A batch was released, or refused, somewhere if a destination's committed position is beyond it, or if the catalog
   lists none of its destinations.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kafka_pubsub.errors import NotFound, PubSubError
from kafka_pubsub.log.ports import Backend
from kafka_pubsub.log.trouble_log import TroubleLog
from kafka_pubsub.model import Committed, Ending, NewRecord, TopicPartition
from kafka_pubsub.multicast.inbox_topics import participants_of
from kafka_pubsub.multicast.layout import GROUP, Place, participant, place_of
from kafka_pubsub.multicast.outbox import Batch
from kafka_pubsub.multicast.progress import parse_progress
from kafka_pubsub.multicast.records import decode_stage
from kafka_pubsub.topics.names import inbox_topic

__all__ = ["StageLooks", "find_released", "listed_participants"]

#: Bytes and seconds for reading one record back.
_BYTES, _SECONDS = 64 * 1024 * 1024, 10.0


def listed_participants(backend: Backend) -> set[str]:
    """Returns the participants that the catalog lists."""
    return participants_of(backend.catalog.topics().values())


def find_released(backend: Backend, batches: Iterable[Batch]) -> list[Batch]:
    """Returns the batches that were released or refused somewhere."""
    listed = listed_participants(backend)
    positions: dict[str, int] = {}
    for name in {name for batch in batches for name in batch.stage.destinations if name in listed}:
        place = place_of(name)
        at = backend.admin.group_offsets(GROUP, inbox_topic(place.topic)).get(place.partition)
        positions[name] = _position(at, place)
    return [batch for batch in batches if _is_over(batch, positions)]


def _position(at: Committed | None, place: Place) -> int:
    if at is None or at.offset is None:
        return -1
    return at.offset if parse_progress(at.offset, at.metadata).inbox_id.startswith(place.inbox) else -1


def _is_over(batch: Batch, positions: dict[str, int]) -> bool:
    left = [each for each in batch.stage.destinations if each in positions]
    return not left or any(positions[each] > batch.offsets.get(each, positions[each]) for each in left)


class StageLooks:
    """Looks for the stages of a transaction whose ending isn't known."""

    def __init__(self, backend: Backend, troubles: TroubleLog) -> None:
        self._backend, self._troubles = backend, troubles
        self._fetch = backend.record_fetch()

    def close(self) -> None:
        """Ends the reader."""
        self._fetch.close()

    def find(
        self, names: Sequence[str], records: Sequence[NewRecord], offsets: Sequence[int]
    ) -> Ending | None:
        """Returns what an inbox says; unknown: none can say it any more; None: ask again.

        `names`: the participants of the records. `offsets`: where these lie if they are stored; without any the commit
        wasn't asked for.
        """
        if not offsets:
            return Ending.ABORTED
        stages = dict(zip(names, zip(records, offsets, strict=False), strict=False))
        found = {self._look(name, *stage) for name, stage in stages.items()}
        for ending in (Ending.STORED, Ending.ABORTED):
            if ending in found:
                return ending
        return None if None in found else Ending.UNKNOWN

    def _look(self, name: str, stage: NewRecord, offset: int) -> Ending | None:
        """Returns what one inbox says."""
        place, admin = TopicPartition(stage.topic, stage.partition), self._backend.admin
        try:
            topic, number, _ = place_of(name)
            if participant(topic, number, admin.topic(stage.topic).topic_id) != name:
                return Ending.UNKNOWN
            found = self._fetch.fetch(place, [offset], _BYTES, _SECONDS)
            if found.records:
                wanted = decode_stage(stage.headers)
                there = any(decode_stage(each.headers() or ()) == wanted for each in found.records)
                return Ending.STORED if there else Ending.ABORTED
            if admin.log_range(place)[0] > offset:
                return Ending.UNKNOWN
            return Ending.ABORTED if found.missing else None
        except PubSubError as error:
            if isinstance(error, NotFound) and name not in listed_participants(self._backend):
                return Ending.UNKNOWN
            text = "inbox %s doesn't say yet whether messages are staged: %s; trying again"
            self._troubles.tell(error, text, stage.topic, error)
            return None
