"""Rules of checkpoints, taken out of the core: property tests and simulation must notice each loss."""

from __future__ import annotations

import pytest

from kafka_pubsub.subscribe.partition.effects import CommitBoth
from kafka_pubsub.subscribe.partition.finished_runs import FinishedRuns
from kafka_pubsub.subscribe.partition.retry_partition import RetryPartition

__all__ = ["checkpoint_is_all", "trimmed_before_the_answer", "trimmed_past_the_checkpoint"]

Patch = pytest.MonkeyPatch


def checkpoint_is_all(patch: Patch) -> None:
    """Once there is a checkpoint, the map no longer says which messages finish."""
    real = FinishedRuns.fresh.fget  # type: ignore[attr-defined]
    patch.setattr(FinishedRuns, "fresh", property(lambda self: real(self) if self.run_count == 1 else []))


def trimmed_past_the_checkpoint(patch: Patch) -> None:
    """The retry partition is deleted up to its position, though the checkpoint that counts lies below."""

    def needed(self: RetryPartition) -> int:
        return self.commits.stored.retry.offset

    patch.setattr(RetryPartition, "_needed", needed)


def trimmed_before_the_answer(patch: Patch) -> None:
    """The retry partition is deleted up to the position of a commit without an answer."""

    def needed(self: RetryPartition) -> int:
        sent = self.commits.in_flight
        return sent.retry.offset if isinstance(sent, CommitBoth) and self.commits._named else 0

    patch.setattr(RetryPartition, "_needed", needed)
