"""An endpoint's answer, and its meaning for a message.

Rules
1. 2xx acks. Anything else is another delivery after the subscription's backoff, unless the status is one of those that
   make a dead letter.
2. With 429 and 503 an endpoint may say how long it wants a pause (`Retry-After`, in seconds or as a date). Then no
   request begins for so long, and the message comes again after it.
3. A redirect isn't followed: the answer says where the endpoint is now, and a person must look.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from kafka_pubsub.worker.push.pace import LONGEST_PAUSE

__all__ = ["Answer", "judge", "retry_after"]

_BUSY = frozenset({429, 503})


@dataclass(frozen=True)
class Answer:
    """The next step of a message. `reason`: why it isn't acked; empty: it is. `pause`: seconds; None: not asked for."""

    reason: str = ""
    is_dead: bool = False
    pause: float | None = None

    @property
    def ok(self) -> bool:
        """Whether the endpoint has taken the message."""
        return not self.reason


#: The endpoint has taken the message.
_TAKEN = Answer()


def judge(status: int, headers: Mapping[str, str], dead_letter_on: Collection[int], now: datetime) -> Answer:
    """Judges an answer; `headers` don't distinguish upper and lower case, or are in lower case."""
    if 200 <= status < 300:
        return _TAKEN
    if status in dead_letter_on:
        return Answer(f"the endpoint answered {status}", is_dead=True)
    if 300 <= status < 400:
        place = headers.get("location") or "no place"
        return Answer(f"the endpoint answered {status} and names {place}: give that URL if it is right")
    pause = retry_after(headers.get("retry-after"), now) if status in _BUSY else None
    return Answer(f"the endpoint answered {status}", pause=pause)


def retry_after(text: str | None, now: datetime) -> float | None:
    """Returns the seconds that a `Retry-After` asks for, `LONGEST_PAUSE` at most; None: it can't be read."""
    if text is None:
        return None
    if text.strip().isascii() and text.strip().isdigit():
        return min(float(text.strip()[:9]), LONGEST_PAUSE)
    try:
        until = parsedate_to_datetime(text)
    except (TypeError, ValueError):
        return None
    until = until if until.tzinfo else until.replace(tzinfo=UTC)
    return min(max(0.0, (until - now).total_seconds()), LONGEST_PAUSE)
