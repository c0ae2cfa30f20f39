"""Dead letters as you see them, and how you select some of them.

Rules
1. A message is named by its id, as `publish` returned it. A dead letter has a place beside that, `PARTITION:OFFSET` in
   the dead-letter topic: a message that was replayed and died again has two of them. Wherever an id is asked for, a
   place is taken as well.
2. An absent condition selects all. Several keys or ids select any of them. A dead letter must meet all conditions.
3. Times need a time zone. A time without one is refused: it would mean another moment on another machine.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from kafka_pubsub.errors import InvalidArgument
from kafka_pubsub.log.clocks import moment
from kafka_pubsub.model import (
    ID_HEADER,
    RESERVED_HEADER_PREFIX,
    Header,
    StoredRecord,
    decode_ordering_key,
    published_at,
)
from kafka_pubsub.subscribe.formats.dead_letter_record import DeadLetterRecord, own_headers

__all__ = [
    "DeadLetterMessage",
    "DeadLetterProgress",
    "DeadLetterResult",
    "Place",
    "Selection",
    "Tell",
    "to_dead_letter",
]

#: The partition and the offset of a record in a topic.
Place = tuple[int, int]
#: A place; a topic's name may be a number.
_PLACE = re.compile(r"(?:[0-9]+:)?[0-9]{1,10}:[0-9]{1,19}")
#: What is neither a place nor an id: an id also has a name, of a form that the publishing program chooses.
_NUMBERS = re.compile(r"[0-9+:-]*")


@dataclass(frozen=True)
class DeadLetterMessage:
    """A message whose attempts were used up, as it lies in a dead-letter topic.

    `message_id` names the message, and `id` its place in the dead-letter topic: commands take both. `topic`,
    `partition` and `offset` are its origin (None: the dead letter doesn't record it). `problem` says why it can't be
    replayed; None: it can.
    """

    id: str
    subscription: str
    topic: str
    partition: int | None
    offset: int | None
    key: bytes | None
    data: bytes
    headers: tuple[Header, ...]
    publish_time: datetime
    died: datetime
    reason: str
    error_class: str
    error: str
    attempts: int
    crashes: int
    #: How often it was replayed before it was dead-lettered again.
    replays: int
    problem: str | None = None

    @property
    def ordering_key(self) -> str | None:
        """The key as text; None if there is none."""
        return decode_ordering_key(self.key)

    @property
    def attributes(self) -> Mapping[str, str]:
        """The message's own headers as text, without the `ps-` headers."""
        return {
            name: "" if value is None else value.decode("utf-8", "surrogateescape")
            for name, value in self.headers
            if not name.startswith(RESERVED_HEADER_PREFIX)
        }

    @property
    def message_id(self) -> str | None:
        """The id that `publish` returned; None: the dead letter doesn't record it."""
        relayed = [value for name, value in self.headers if name == ID_HEADER and value is not None]
        if relayed:
            return relayed[0].decode("utf-8", "replace")
        return None if self.partition is None else f"{self.topic}:{self.partition}:{self.offset}"


def to_dead_letter(
    record: StoredRecord, dead_letter: DeadLetterRecord, problem: str | None
) -> DeadLetterMessage:
    """Builds the dead letter that a record holds."""
    origin = dead_letter.origin
    return DeadLetterMessage(
        f"{record.partition()}:{record.offset()}",
        dead_letter.subscription,
        dead_letter.topic,
        None if origin is None else origin.partition,
        None if origin is None else origin.offset,
        record.key(),
        record.value() or b"",
        tuple(own_headers(record.headers())),
        moment(published_at(record)),
        moment(dead_letter.time),
        dead_letter.reason,
        dead_letter.error_class,
        dead_letter.error,
        dead_letter.attempts,
        dead_letter.crashes,
        dead_letter.replays,
        problem,
    )


@dataclass(frozen=True)
class Selection:
    """The conditions that select messages."""

    keys: frozenset[bytes] = frozenset()
    #: Ids of messages, and places.
    ids: frozenset[str] = frozenset()
    since: float | None = None
    until: float | None = None
    error: str | None = None

    @classmethod
    def of(
        cls,
        *,
        keys: Iterable[str | bytes] | None = None,
        ids: Iterable[str] | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        error: str | None = None,
    ) -> Selection:
        """Checks the conditions and builds the selection."""
        if since is not None and until is not None and since >= until:
            raise InvalidArgument(f"since={since} isn't before until={until}: nothing lies between")
        if error is not None and not error:
            raise InvalidArgument("error is empty: leave it out to select any")
        return cls(
            frozenset(map(_key, _many(keys, "keys"))),
            frozenset(_id(each) for each in _many(ids, "ids")),
            _time(since, "since"),
            _time(until, "until"),
            error,
        )

    def picks(
        self,
        ids: Callable[[], Iterable[str]],
        key: bytes | None,
        time: int,
        error: Callable[[], str],
    ) -> bool:
        """Tells whether a message is selected; `time` is in milliseconds.

        `ids` gives its id and its places, `error` its error; both are called only if they matter.
        """
        if self.ids and self.ids.isdisjoint(ids()):
            return False
        if self.keys and (key is None or key not in self.keys):
            return False
        if self.since is not None and time < self.since * 1000:
            return False
        if self.until is not None and time >= self.until * 1000:
            return False
        return self.error is None or self.error.casefold() in error().casefold()


def _many(given: Iterable[str | bytes] | None, name: str) -> Iterable[str | bytes]:
    if isinstance(given, (str, bytes)):
        raise InvalidArgument(f"{name} must be a list, not one {type(given).__name__}: put it in brackets")
    return given or ()


def _key(key: str | bytes) -> bytes:
    if not key:
        raise InvalidArgument(f"keys: {key!r} isn't an ordering key")
    return key.encode("utf-8", "surrogateescape") if isinstance(key, str) else key


def _id(given: str | bytes) -> str:
    text = str(given)
    if _PLACE.fullmatch(text) or not _NUMBERS.fullmatch(text):
        return text
    raise InvalidArgument(
        f"ids: {text!r} is neither a message id, as `publish` gives it, nor PARTITION:OFFSET, a message's place"
    )


def _time(given: datetime | None, name: str) -> float | None:
    if given is None:
        return None
    if given.tzinfo is None:
        raise InvalidArgument(f"{name} has no time zone: give one, as in datetime.now(UTC)")
    return given.timestamp()


@dataclass(frozen=True)
class DeadLetterProgress:
    """The progress of a long command: `done` of `total` in a phase."""

    phase: str
    done: int
    total: int


#: A callback that gets the progress.
Tell = Callable[[DeadLetterProgress], object]


@dataclass(frozen=True)
class DeadLetterResult:
    """The result: how many messages of how many keys. `skipped`: the number of skipped messages by reason."""

    count: int
    keys: int
    skipped: Mapping[str, int] = field(default_factory=dict)
