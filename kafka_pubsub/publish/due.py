"""When a message is to be delivered: `delay` and `deliver_at`, checked.

Rules
1. A delay of zero and a time that has passed mean: now. So the message goes straight home.
2. Times are whole milliseconds, rounded up: nothing is delivered early.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from kafka_pubsub.errors import InvalidArgument

__all__ = ["NOW", "Due", "parse_due"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


class Due(NamedTuple):
    """Either is None: milliseconds since the epoch, or after the message came in. `wait`: how long that is from now."""

    at: int | None
    after: int | None
    wait: int

    @property
    def delay(self) -> timedelta | None:
        """As the argument `delay`."""
        return None if self.after is None else self.after * _MILLISECOND

    @property
    def deliver_at(self) -> datetime | None:
        """As the argument `deliver_at`."""
        return None if self.at is None else _EPOCH + self.at * _MILLISECOND


#: No delay.
NOW: Final = Due(None, None, 0)


def parse_due(delay: object, deliver_at: object, now: float) -> Due | None:
    """What the arguments ask for, at `now` seconds since the epoch; None: deliver it now."""
    if delay is not None and deliver_at is not None:
        raise InvalidArgument("delay and deliver_at: give one of them, not both")
    if deliver_at is not None:
        at = _parse_time(deliver_at)
        wait = at - math.floor(now * 1000)
        return Due(at, None, wait) if wait > 0 else None
    after = _parse_delay(delay)
    return Due(None, after, after) if after else None


def _parse_delay(delay: object) -> int:
    if isinstance(delay, timedelta):
        span = delay
    elif isinstance(delay, (int, float)) and not isinstance(delay, bool):
        if not math.isfinite(delay):
            raise InvalidArgument(f"delay: must be a finite number of seconds, not {delay!r}")
        try:
            span = timedelta(seconds=delay)
        except OverflowError:
            raise InvalidArgument(f"delay: {delay!r} seconds are more than a date can hold") from None
    else:
        raise InvalidArgument(f"delay: must be seconds or a timedelta, not {type(delay).__name__}")
    if span < timedelta(0):
        raise InvalidArgument(f"delay: must not be negative, not {delay!r}")
    return -(-span // _MILLISECOND)


def _parse_time(deliver_at: object) -> int:
    if not isinstance(deliver_at, datetime):
        kind = type(deliver_at).__name__
        raise InvalidArgument(f"deliver_at: must be a datetime, not {kind}; how long to wait goes into delay")
    if deliver_at.utcoffset() is None:
        raise InvalidArgument(
            f"deliver_at: {deliver_at.isoformat()} has no time zone: use datetime.now(UTC) + ..., or "
            ".replace(tzinfo=...), because another machine would take it for another time"
        )
    return -(-(deliver_at - _EPOCH) // _MILLISECOND)
