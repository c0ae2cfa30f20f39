"""How a topic's publisher says that the topic is causal."""

from __future__ import annotations

from kafka_pubsub.errors import FailedPrecondition

__all__ = ["CausalTopic"]


class CausalTopic(FailedPrecondition):
    """The topic is causal: its messages go through the sequencer (`multicast/`)."""
