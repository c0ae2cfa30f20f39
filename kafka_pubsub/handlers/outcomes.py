"""The exceptions with which a handler says what becomes of its message: another try, nothing, or a dead letter."""

from __future__ import annotations

from datetime import timedelta

__all__ = ["DeadLetter", "Drop", "Outcome", "Retry"]


class Outcome(Exception):
    """The root of the exceptions that say what becomes of a message; any other exception is a nack."""


class Retry(Outcome):
    """Delivers the message again, after `delay` seconds or a timedelta; None, the default: after the backoff.

    `reason` (default empty) is kept with the message, as the text of an error is.
    """

    def __init__(self, reason: str = "", *, delay: float | timedelta | None = None) -> None:
        super().__init__(reason)
        self.delay = delay.total_seconds() if isinstance(delay, timedelta) else delay


class Drop(Outcome):
    """Acks the message and logs `reason` (default empty): it isn't delivered again."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)


class DeadLetter(Outcome):
    """Makes the message a dead letter at once, with this `reason` (default empty).

    Where the subscription makes no dead letters, the message is parked until you release it (`Message.dead_letter`).
    """

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
