"""When a partition's next checkpoint is written, and from which checkpoint its commits count.

Theory. A commit lists the messages finished since the last checkpoint (`checkpoint`). When that list has become long,
the next commit is a transaction that writes another checkpoint, from which the following commits count.

Rules
1. A checkpoint is written when the metadata of a commit has outgrown half of its room, `EVERY` seconds after the first
   change that isn't in a checkpoint, and at a clean close.
2. Commits count from the checkpoint that the last accepted commit named, never from a checkpoint that was only sent.
3. After an abort there is a pause, as long as commits can be made without a checkpoint.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import NamedTuple

from kafka_pubsub.model import Header
from kafka_pubsub.subscribe.formats import ack_map
from kafka_pubsub.subscribe.formats.checkpoint import NONCE_SHIFT, Checkpoint, Log, Named
from kafka_pubsub.subscribe.formats.record import RetryInfo, Why, retry_headers
from kafka_pubsub.subscribe.partition.log_side import LogSide, SideProgress
from kafka_pubsub.subscribe.partition.settings import Start

__all__ = ["EVERY", "PAUSE", "Checkpoints", "Progress"]

#: Seconds; the work of at most this time is delivered again where the broker has forgotten a group's offsets.
EVERY = 600.0
#: Seconds after an abort before another checkpoint is tried.
PAUSE = 1.0


class Progress(NamedTuple):
    """The state of both logs when a commit is made."""

    home: SideProgress
    retry: SideProgress

    @property
    def done(self) -> int:
        """The number of messages of both logs that were finished in this ownership."""
        return self.home.done + self.retry.done


class Checkpoints:
    """The checkpoints of a partition under one ownership."""

    def __init__(self, start: Start, sides: Sequence[LogSide]) -> None:
        self._found, self._writer, self._sides = start.found, start.writer, sides
        #: The checkpoint that the last accepted commit named; None: there is none.
        self.named = start.found.checkpoint
        #: The number of messages finished when the checkpoint was written; None: unknown. A new subscription needs
        #: none.
        self._done: int | None = None if start.stored.metadata else 0
        self._next_done: int | None = None
        self._count = 0
        #: The time since which something isn't in a checkpoint; None: everything is.
        self._changed: float | None = None
        self._not_before = 0.0
        #: The checkpoint that goes with the unanswered commit.
        self._sent: Checkpoint | None = None

    @property
    def changed(self) -> bool:
        """Whether something wasn't in a checkpoint when the last commit was made."""
        return self._changed is not None

    def due_at(self) -> float | None:
        """Returns when the next checkpoint is due, unless something asks for an earlier checkpoint."""
        return None if self._changed is None else max(self._changed + EVERY, self._not_before)

    def due(self, now: float) -> bool:
        """Returns whether a checkpoint is due, whatever else is to be committed."""
        at = self.due_at()
        return at is not None and now >= at

    def wanted(self, size: int, now: float) -> bool:
        """Returns whether a checkpoint goes with a commit of this size, without notes (rules 1 and 3)."""
        room = ack_map.CAPACITY - ack_map.NOTED
        return size > room or self.due(now) or (2 * size > room and now >= self._not_before)

    def made(self, progress: Progress, now: float) -> None:
        """Takes note that a commit without a checkpoint was made."""
        if self._changed is None and self.differs(progress):
            self._changed = now

    def differs(self, progress: Progress) -> bool:
        """Returns whether anything has finished that isn't in the checkpoint."""
        return progress.done != self._done or any(side.fresh for side in progress)

    def write(self, progress: Progress, now: float) -> Checkpoint:
        """Returns the checkpoint to be written with the commit."""
        self._count += 1
        found = self._found
        home, retry = (
            Log(topic_id, side.position, tuple(side.runs()), *side.read, side.notes)
            for topic_id, side in zip((found.topic_id, found.retry_id), progress, strict=True)
        )
        nonce, time = found.nonce << NONCE_SHIFT | self._count, max(0, ceil((now + found.wall) * 1000))
        self._sent = Checkpoint(nonce, self._writer, time, home, retry)
        self._not_before, self._next_done = now + PAUSE, progress.done
        return self._sent

    def headers(self, checkpoint: Checkpoint) -> Sequence[Header]:
        """Returns the headers of the checkpoint's records."""
        found = self._found
        info = RetryInfo(found.topic_id, found.partition, checkpoint.nonce, why=Why.CHECKPOINT)
        return retry_headers((), info)

    def answered(self, offset: int | None) -> None:
        """Takes the answer to the unanswered commit; `offset`: where its checkpoint was stored, if any."""
        sent, self._sent = self._sent, None
        if sent is None or offset is None:
            return
        self.named = Named(offset, sent.nonce)
        for side, log in zip(self._sides, (sent.main, sent.retry), strict=True):
            side.checkpointed(log.runs)
        self._done = self._next_done
        self._changed, self._not_before = None, 0.0
