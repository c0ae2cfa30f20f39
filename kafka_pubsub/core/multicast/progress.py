"""How far a sequencer is, as the text beside the committed offset of its inbox says it.

Theory. The committed offset is that of the oldest message that isn't released. The text holds the rest of the
checkpoint, and how many of the sequencer's own proposals lie in the inbox above the position: a successor reads until
it has them, before it goes on. It also names the transactional id of its writer.

Rules
1. A text begins with the version and ends with a checksum over itself and the offset. What can't be read is refused: to
   guess a clock would break the order.
2. An offset without a text begins anew there.
"""

from __future__ import annotations

import zlib
from typing import NamedTuple

from kafka_pubsub.core.multicast.sequencer import Checkpoint
from kafka_pubsub.core.multicast.values import Timestamp
from kafka_pubsub.errors import FailedPrecondition

__all__ = ["SequencerProgress", "parse_progress"]

_VERSION = "1"


class SequencerProgress(NamedTuple):
    """A checkpoint. `unread`: how many own proposals lie above its position. `writer`: whose it is, or empty.

    `topic_id`: that of the home topic, which is another one when the topic was deleted and made again.
    """

    checkpoint: Checkpoint
    unread: int = 0
    writer: str = ""
    topic_id: str = ""

    def text(self) -> str:
        """Returns what is committed beside the offset `checkpoint.oldest`."""
        clock, oldest, position, deleted = self.checkpoint
        gone = "" if deleted is None else f"{deleted.clock}@{deleted.topic}"
        body = ";".join(
            (_VERSION, str(clock), str(position), gone, str(self.unread), self.writer, self.topic_id)
        )
        return f"{body};{_checksum(oldest, body)}"


def parse_progress(offset: int, text: str) -> SequencerProgress:
    """Returns what was committed; raises if it can't be read."""
    if not text:
        return SequencerProgress(Checkpoint(0, offset, offset, None))
    body, _, checksum = text.rpartition(";")
    try:
        version, clock, position, gone, unread, writer, topic_id = body.split(";")
        if version != _VERSION or checksum != _checksum(offset, body):
            raise ValueError
        number, _, topic = gone.partition("@")
        deleted = Timestamp(int(number), topic) if gone else None
        checkpoint = Checkpoint(int(clock), offset, int(position), deleted)
        return SequencerProgress(checkpoint, int(unread), writer, topic_id)
    except ValueError:
        raise FailedPrecondition(
            f"sequencer: the text {text!r:.80} beside the committed offset {offset} can't be read: it is damaged, or "
            "of a newer version; run that version"
        ) from None


def _checksum(offset: int, body: str) -> str:
    return f"{zlib.crc32(f'{offset};{body}'.encode()):08x}"
