"""Mistakes that a stream with a retry topic could make; the simulation has to see each of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pytest

from kafka_pubsub.client.takeovers import Takeovers

__all__ = ["RETRY_MUTATIONS"]


def read_before(patch: pytest.MonkeyPatch) -> None:
    """What was read before an ownership began anew is booked under it."""
    real = Takeovers._begin_again

    def begin_again(self: Takeovers) -> Sequence[int]:
        real(self)
        return ()

    patch.setattr(Takeovers, "_begin_again", begin_again)


RETRY_MUTATIONS: Mapping[str, Callable[[pytest.MonkeyPatch], None]] = {"read_before": read_before}
