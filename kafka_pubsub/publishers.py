"""Makes the publisher of a topic: one that knows lanes, and that records if there are histories."""

from __future__ import annotations

from collections.abc import Callable

from kafka_pubsub.history.protocol import Histories
from kafka_pubsub.history.recorded_publisher import RecordedPublisher
from kafka_pubsub.lanes.home_publisher import HomePublisher, LaneTarget, Ordered
from kafka_pubsub.publish.topic_settings import PublishTarget
from kafka_pubsub.publish.writer_pool import WriterPool

__all__ = ["new_publisher"]


class _Recorded(RecordedPublisher, HomePublisher):
    """Publishes to one topic and its lanes, and records."""


def new_publisher(
    topic: str,
    target: Callable[[], PublishTarget],
    writers: WriterPool,
    lane_target: LaneTarget,
    ordered: Ordered,
    histories: Histories | None,
) -> HomePublisher:
    """Returns the publisher of a topic, which records if there are histories."""
    if histories is None:
        return HomePublisher(topic, target, writers, lane_target, ordered)
    return _Recorded(topic, target, writers, lane_target, ordered).record(histories.of_publisher(topic))
