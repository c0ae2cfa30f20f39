"""How long a transient message may wait for its answer."""

from __future__ import annotations

from typing import Final

from kafka_pubsub.errors import PublishError

__all__ = ["ANSWER_S", "given_up"]

#: Seconds after which a transient message without an answer is given up, and durable ones wait for it no longer.
ANSWER_S: Final = 1.0


def given_up() -> PublishError:
    """Returns the error of a transient message without an answer."""
    return PublishError(
        f"publish: no broker answered within {ANSWER_S:g} s, so this transient message was given up; it may be in the "
        "topic or not. Publish what must arrive with durable=True"
    )
