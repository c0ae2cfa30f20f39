"""The fixture `pubsub`, for your own tests (docs/testing.md).

    def test_orders(pubsub):
        topic = pubsub.create_topic("orders")

Rule: a run that doesn't use it pays for no import of the client. `local/pytest_plugin.py` names this module to pytest.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from kafka_pubsub.app import PubSub

__all__ = ["pubsub"]


@pytest.fixture
def pubsub() -> Iterator[PubSub]:
    """Yields a `PubSub` in memory, new for each test, that runs a delay router and a sequencer when one is needed."""
    from kafka_pubsub.app import PubSub

    with PubSub.in_memory() as client:
        yield client
