"""How far a sequencer is, as the text beside the committed offset of its inbox says it.

Theory. The committed offset is that of the oldest message that isn't released. The text holds the rest of the
checkpoint, the transactional id of its writer, the inbox for which it counts, and the leader epoch that shows whether
the inbox has lost records.

Rules
1. A text begins with the version and ends with a checksum over itself and the offset. What can't be read is refused: to
   guess a clock would break the order.
2. An offset without a text begins anew there.
"""

from __future__ import annotations

import zlib
from typing import NamedTuple

from kafka_pubsub.errors import FailedPrecondition
from kafka_pubsub.multicast.sequencer import Checkpoint

__all__ = ["SequencerProgress", "parse_progress"]

_VERSION = "2"


class SequencerProgress(NamedTuple):
    """A checkpoint. `inbox_id`: of the inbox that it is of. `writer`: whose it is, or empty.

    `epoch`: the leader epoch of the last record before its position, if that is known.
    """

    checkpoint: Checkpoint
    inbox_id: str = ""
    writer: str = ""
    epoch: int | None = None

    def text(self) -> str:
        """Returns what is committed beside the offset `checkpoint.oldest`."""
        clock, oldest, position, alive = self.checkpoint
        epoch = "" if self.epoch is None else str(self.epoch)
        body = ";".join((_VERSION, str(clock), str(position), alive, self.inbox_id, epoch, self.writer))
        return f"{body};{_checksum(oldest, body)}"


def parse_progress(offset: int, text: str) -> SequencerProgress:
    """Returns what was committed; raises if it can't be read."""
    if not text:
        return SequencerProgress(Checkpoint(0, offset, offset))
    body, _, checksum = text.rpartition(";")
    try:
        version, clock, position, alive, inbox_id, epoch, writer = body.split(";")
        if version != _VERSION or checksum != _checksum(offset, body):
            raise ValueError
        checkpoint = Checkpoint(int(clock), offset, int(position), alive)
        return SequencerProgress(checkpoint, inbox_id, writer, int(epoch) if epoch else None)
    except ValueError:
        raise FailedPrecondition(
            f"sequencer: the text {text!r:.80} beside the committed offset {offset} can't be read: it is damaged, or "
            "of another version; run that version"
        ) from None


def _checksum(offset: int, body: str) -> str:
    return f"{zlib.crc32(f'{offset};{body}'.encode()):08x}"
