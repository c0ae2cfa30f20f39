"""Finds what a query should read next and can't: offsets that were deleted, topics that are gone or were made again.

Theory. Offsets don't say which topic they belong to. If a topic was deleted and made again under its name, and has as
many messages by now, a query would go on in the middle of the new topic. Kafka's topic id tells the two apart, so a
checkpoint keeps the id of each of its topics beside Spark's offsets.

Rules
1. The ids are compared before a query starts, and before each of its batches is handed to the job.
2. A topic that was made again is taken out of Spark's log. Spark then reads it as one that it hasn't seen: from its
   beginning. All else in the log stays, because Delta and a query's state depend on the numbers of batches.
3. A checkpoint of an earlier version has no ids, and takes those that its topics have now. Of such a checkpoint's
   topics one was made again if it ends before the offset that should be read next.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import NamedTuple

from kafka_pubsub.errors import FailedPrecondition

from ..base.cluster import Cluster
from ..base.files import Files
from . import ownership

__all__ = ["Loss", "ids_of", "lost_since", "made_again", "note_ids", "take_out", "topics_of"]

#: The file in a checkpoint with the id of each topic.
_IDS = "kafka_pubsub_topics.json"


class Loss(NamedTuple):
    """Offsets that the query should read next and that are gone.

    `partition` is None if the whole topic is gone; `other` says that it is gone or was made again.
    """

    topic: str
    partition: int | None
    first: int
    last: int
    other: str = ""

    def __str__(self) -> str:
        where = (
            f"topic {self.topic!r}" if self.partition is None else f"{self.topic} partition {self.partition}:"
        )
        return f"{where} {self.other or f'offsets {self.first} to {self.last} are gone'}"


def ids_of(checkpoint: Files) -> dict[str, str]:
    """Returns the id that each topic had when the query read it; empty before its first batch."""
    told = checkpoint.read(_IDS)
    try:
        found: dict[str, str] = {} if told is None else json.loads(told)
    except ValueError as error:
        raise FailedPrecondition(f"{checkpoint.full(_IDS)} can't be read ({error}): restore it") from error
    return found


def note_ids(checkpoint: Files, ids: Mapping[str, str]) -> None:
    """Stores the id of each topic."""
    if ids == ids_of(checkpoint):
        return
    try:
        checkpoint.replace(_IDS, json.dumps(ids, indent=1))
    except FailedPrecondition:
        # Another driver on this checkpoint may have stored them at this moment; one of the two ends soon.
        if ids_of(checkpoint) != ids:
            raise


def topics_of(checkpoint: Files) -> set[str]:
    """Returns the topics in Spark's log: in the last finished batch and in the one planned after it."""
    planned = ownership.planned_offsets(checkpoint, ownership.last_planned(checkpoint))
    return {*ownership.committed_offsets(checkpoint), *planned}


def made_again(checkpoint: Files, cluster: Cluster) -> set[str]:
    """Returns those topics of the checkpoint that were deleted and made again since the query read them."""
    wanted = ownership.committed_offsets(checkpoint)
    known, now = ids_of(checkpoint), cluster.topic_ids(topics_of(checkpoint))
    unknown = [topic for topic in now if topic not in known]
    ends = cluster.ends(unknown)
    cut = {at.topic for at, end in ends.items() if end < wanted.get(at.topic, {}).get(at.partition, 0)}
    return cut | {topic for topic, found in now.items() if known.get(topic, found) != found}


def lost_since(checkpoint: Files, cluster: Cluster) -> list[Loss]:
    """Lists what the query should read next and can't read any more; empty: nothing is lost."""
    wanted = ownership.committed_offsets(checkpoint)
    there = cluster.topics()
    lost = [Loss(topic, None, 0, 0, "is gone") for topic in wanted if topic not in there]
    again = made_again(checkpoint, cluster)
    lost += [_again(topic, wanted.get(topic, {})) for topic in sorted(again)]
    topics = [topic for topic in wanted if topic in there and topic not in again]
    beginnings, ends = cluster.beginnings(topics), cluster.ends(topics)
    for place, first in sorted(beginnings.items()):
        # A new partition is read from its beginning, which is offset 0.
        offset = wanted[place.topic].get(place.partition, 0)
        if first > offset:
            lost.append(Loss(place.topic, place.partition, offset, first - 1))
        elif ends[place] < offset:
            said = f"it ends at {ends[place]}, before {offset}, so its leader has lost messages"
            lost.append(Loss(place.topic, place.partition, offset, offset, said))
    return lost


def _again(topic: str, offsets: Mapping[int, int]) -> Loss:
    read = ", ".join(f"{number}: {offset}" for number, offset in sorted(offsets.items()))
    said = f"was made again; what the old one held from here on is gone (partition: offset): {read or 'all'}"
    return Loss(topic, None, 0, 0, said)


def take_out(checkpoint: Files, topics: Collection[str]) -> None:
    """Takes topics out of Spark's log (rule 2), and forgets their ids."""
    last = ownership.last_batch(checkpoint)
    files = [f"offsets/{last}", f"offsets/{last + 1}"] if last >= 0 else ["sources/0/0", "offsets/0"]
    for path in files:
        # The source's offsets are the last line of each of these files.
        before, _, source = (checkpoint.read(path) or "-").rpartition("\n")
        if source != "-":
            left = {topic: each for topic, each in json.loads(source).items() if topic not in topics}
            checkpoint.replace(path, f"{before}\n{json.dumps(left)}")
    note_ids(checkpoint, {topic: found for topic, found in ids_of(checkpoint).items() if topic not in topics})
