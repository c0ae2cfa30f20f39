"""The log of `test_partition`: a main and a retry partition, and the group's stored state of both."""

from __future__ import annotations

from kafka_pubsub.model import Run
from kafka_pubsub.subscribe.formats import ack_map
from kafka_pubsub.subscribe.formats.checkpoint import Checkpoint, joined, united
from kafka_pubsub.subscribe.formats.record import RetryInfo, Why, decode
from kafka_pubsub.subscribe.partition.effects import Commit, CommitBoth, StoreMoves
from kafka_pubsub.subscribe.partition.settings import EVERYTHING, Found, LogStart
from tests.property.retry_kafka import Stored

__all__ = ["TwoLogs"]


class TwoLogs:
    """Both logs, and books of the truth."""

    def __init__(self) -> None:
        super().__init__()
        #: Main's messages, with their keys, and the offset of the next message.
        self.log: list[tuple[int, bytes | None]] = []
        self.next = 0
        #: The retry partition's records, by offset, and the checkpoints among them.
        self.retry: list[Stored] = []
        self.checkpoints: dict[int, Checkpoint] = {}
        self.acked: set[int] = set()
        self.durable: set[int] = set()
        self.stored = CommitBoth(0, "", Commit(0, ""))

    def named(self, text: str, offset: int) -> Checkpoint | None:
        """The checkpoint that metadata names."""
        found = ack_map.decode(text, offset)
        return None if found is None or found.checkpoint is None else self.checkpoints[found.checkpoint.nonce]

    def found(self, nonce: int) -> Found:
        """Both logs as a new owner is told of them."""
        commit = self.stored
        found, told = (
            ack_map.decode(commit.metadata, commit.offset),
            self.named(commit.metadata, commit.offset),
        )
        runs = self.runs_of(commit)
        home = LogStart(
            commit.offset, runs[0], end=EVERYTHING, in_checkpoint=() if told is None else told.main.runs
        )
        retry = LogStart(
            commit.retry.offset,
            runs[1],
            end=len(self.retry),
            in_checkpoint=() if told is None else told.retry.runs,
        )
        return Found(
            "t", "id", home, retry, nonce=nonce, checkpoint=None if found is None else found.checkpoint
        )

    def runs_of(self, commit: CommitBoth) -> tuple[list[Run], list[Run]]:
        """The offsets that a commit calls finished above both positions, by itself and by its checkpoint."""
        both = []
        for half, (offset, metadata) in enumerate((commit[:2], commit.retry[:2])):
            found, told = ack_map.decode(metadata, offset), self.named(metadata, offset)
            logs = () if told is None else (told.main, told.retry)
            both.append(united(found.runs if found else (), logs[half].runs if logs else (), offset))
        main, beside = both
        return main, beside

    def claimed(self, commit: CommitBoth) -> set[int]:
        """The messages that a commit calls finished and that don't wait in the retry partition: all were acked."""
        main, beside = ({o for run in runs for o in range(*run)} for runs in self.runs_of(commit))
        said = {o for o, _ in self.log if o < commit.offset or o in main}
        for record in self.retry[commit.retry.offset :]:
            info = decode(record._headers[-1][1])
            assert isinstance(info, RetryInfo)
            if record.offset() not in beside and info.why is not Why.CHECKPOINT:
                said.discard(info.origin)
        assert said <= self.acked, f"committed before the ack: {said - self.acked}"
        assert commit.offset >= self.stored.offset
        return said

    def take(self, move_request: StoreMoves) -> int | None:
        """The log stores a transaction; returns where its checkpoint lies."""
        for each in move_request.records:
            self.retry.append(Stored(len(each.record), len(self.retry), each.record.key(), each.headers))
        where = len(self.retry) if move_request.parts else None
        self.retry += [
            Stored(10, len(self.retry) + at, None, move_request.said, part)
            for at, part in enumerate(move_request.parts)
        ]
        if (whole := joined(move_request.parts)) is not None:
            self.checkpoints[whole.nonce] = whole
        self.store(move_request.commit if move_request.named is None else move_request.named(where or 0))
        return where

    def store(self, commit: CommitBoth) -> None:
        self.durable |= self.claimed(commit)
        self.stored = commit
