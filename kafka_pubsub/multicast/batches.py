"""Builds the records that a batch's messages become in their topics: once per process, shared by the topics.

Rules
1. At home a message has its publisher's key, value and headers. `ps-published` is its publisher's time; the record has
   that of its release, from which retention counts. `ps-id` names it. `ps-clock` is its place in the order: the clock
   and topic of the batch's timestamp and, behind a `#`, its number in the batch.
2. A message whose first header is its id was a dead letter that is replayed: it keeps that id, and what else it had.
3. What was made for one topic counts for another only if its inbox holds the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

from kafka_pubsub.model import ID_HEADER, PUBLISHED_HEADER, Header
from kafka_pubsub.multicast.batch import BatchMessage, decode_batch
from kafka_pubsub.multicast.layout import message_id, place_of
from kafka_pubsub.multicast.records import CLOCK_HEADER, HANDLES_HEADER
from kafka_pubsub.multicast.values import Release, Stage

__all__ = ["Batches"]

#: How many are kept: a batch comes home at its topics within a few transactions.
_MOST = 16


class Batches:
    """The batches that came home last."""

    def __init__(self) -> None:
        self._made: dict[Release, tuple[bytes, Sequence[BatchMessage]]] = {}

    def at_home(self, release: Release, stage: Stage, value: bytes | None) -> Sequence[BatchMessage] | None:
        """Returns the messages with the headers that they have at home; None: the value can't be read."""
        known, made = self._made.get(release, (None, ()))
        if known is not None and known == value:
            return made
        messages = decode_batch(value)
        if messages is None or value is None:
            return None
        while len(self._made) >= _MOST:
            del self._made[next(iter(self._made))]
        made = _finish(release, stage, messages)
        self._made[release] = value, made
        return made


def _finish(release: Release, stage: Stage, messages: Sequence[BatchMessage]) -> list[BatchMessage]:
    batch, (clock, topic), invalid = release
    place = f"{clock}@{topic}#"
    common: list[Header] = []
    handles = [place_of(each)[0] for each in stage.handles if each not in invalid]
    if handles:
        common.append((HANDLES_HEADER, ",".join(handles).encode()))
    if stage.deletes:
        common.append(("ps-event", b"topic_deleted"))
    made = []
    for number, (time, key, data, headers) in enumerate(messages):
        name: Header = (ID_HEADER, message_id(batch, number).encode())
        rest = [*common, *headers]
        if headers and headers[0][0] == ID_HEADER:
            name, rest = headers[0], _replayed(headers[1:], handles)
        ours = [name, (CLOCK_HEADER, f"{place}{number}".encode()), (PUBLISHED_HEADER, str(time).encode())]
        made.append(BatchMessage(0, key, data, ours + rest))
    return made


def _replayed(headers: Sequence[Header], handles: Sequence[str]) -> list[Header]:
    """Returns the headers of a message that was a dead letter, with those of its handles that are among these."""
    found: list[Header] = []
    for name, value in headers:
        if name != HANDLES_HEADER:
            found.append((name, value))
        elif left := [each for each in (value or b"").decode().split(",") if each in handles]:
            found.append((name, ",".join(left).encode()))
    return found
