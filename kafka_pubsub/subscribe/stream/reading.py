"""What a stream has counted, as `counters.Reading`s."""

from __future__ import annotations

from collections.abc import Iterator

from kafka_pubsub.counters import Reading
from kafka_pubsub.subscribe.stream.runner import StreamRunner

__all__ = ["StreamPart", "stream_readings"]


class StreamPart:
    """A stream, as a part of the process that counts."""

    def __init__(self, runner: StreamRunner) -> None:
        self._runner = runner

    def readings(self) -> Iterator[Reading]:
        """Returns what it has counted."""
        return stream_readings(self._runner)


def stream_readings(runner: StreamRunner) -> Iterator[Reading]:
    """Yields a stream's counters; those of dead letters once more by the class of the reason."""
    coordinator, rebalances = runner.coordinator, runner.rebalances
    counts, partitions, callbacks = coordinator.counts, coordinator.partitions, runner.inbox.callbacks
    labels = {"subscription": runner.subscription, "topic": rebalances.record.topic}
    yield Reading(
        labels,
        {
            "received": counts.received,
            "acked": partitions.finished(),
            "redelivered": counts.redelivered,
            "stale_acks": counts.stale,
            "moved": counts.moved,
            "dead_lettered": counts.dead_lettered,
            "commit_failures": counts.commit_failures,
            "move_failures": counts.move_failures,
            "rebalances": rebalances.rebalances,
            "takeovers": counts.takeovers,
        },
        {
            "in_flight": coordinator.in_flight(),
            "buffered_bytes": sum(each.bytes for each in partitions.held().values()),
            "partitions": len(partitions.owned),
            "paused_partitions": len(partitions.gate.paused),
            "open_transaction": rebalances.held_up,
        },
        {"callback": callbacks.times()},
    )
    for reason, count in list(counts.dead_letter_reasons.items()):
        yield Reading({**labels, "reason": reason}, {"dead_letter_reasons": count})
