"""Dead letters as you see them, and how you select some of them.

Rules
1. The id of a dead letter is its partition and offset in the dead-letter topic, `PARTITION:OFFSET`; it never changes.
2. An absent condition selects all. Several keys or ids select any of them. A dead letter must meet all conditions.
3. Times need a time zone. A time without one is refused: it would mean another moment on another machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from kafka_pubsub.core.retry.dead_letter_record import DeadLetterRecord, own_headers
from kafka_pubsub.errors import InvalidArgument
from kafka_pubsub.model import Header, StoredRecord, decode_ordering_key

__all__ = [
    "DeadLetter",
    "DeadLetterProgress",
    "DeadLetterResult",
    "Place",
    "Selection",
    "Tell",
    "moment",
    "to_dead_letter",
]

#: The partition and the offset of a record in a topic.
Place = tuple[int, int]


@dataclass(frozen=True)
class DeadLetter:
    """A message whose attempts were used up, as it lies in a dead-letter topic.

    `id` names the dead letter in commands. `topic`, `partition` and `offset` are its origin (None: the dead letter
    doesn't record it). `problem` says why it can't be replayed; None: it can.
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
        """The message's own headers as text."""
        return {
            name: "" if value is None else value.decode("utf-8", "surrogateescape")
            for name, value in self.headers
        }

    @property
    def message_id(self) -> str | None:
        """The id that `publish` returned."""
        relayed = [value for name, value in self.headers if name == "ps-id" and value is not None]
        if relayed:
            return relayed[0].decode("utf-8", "replace")
        return None if self.partition is None else f"{self.topic}:{self.partition}:{self.offset}"


def to_dead_letter(record: StoredRecord, dead_letter: DeadLetterRecord, problem: str | None) -> DeadLetter:
    """Builds the dead letter that a record holds."""
    origin = dead_letter.origin
    return DeadLetter(
        f"{record.partition()}:{record.offset()}",
        dead_letter.subscription,
        dead_letter.topic,
        None if origin is None else origin.partition,
        None if origin is None else origin.offset,
        record.key(),
        record.value() or b"",
        tuple(own_headers(record.headers())),
        moment(record.timestamp()[1]),
        moment(dead_letter.time),
        dead_letter.reason,
        dead_letter.error_class,
        dead_letter.error,
        dead_letter.attempts,
        dead_letter.crashes,
        dead_letter.replays,
        problem,
    )


def moment(milliseconds: int) -> datetime:
    """Converts milliseconds since 1970 to a time; a value outside of the calendar becomes 1970."""
    try:
        return datetime.fromtimestamp(max(milliseconds, 0) / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return datetime.fromtimestamp(0, UTC)


@dataclass(frozen=True)
class Selection:
    """The conditions that select messages."""

    keys: frozenset[bytes] = frozenset()
    #: With the topic: "" where the id doesn't name one.
    ids: frozenset[tuple[str, int, int]] = frozenset()
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
        of_messages: bool = False,
    ) -> Selection:
        """Checks the conditions and builds the selection; ids of messages (`of_messages`) may name a topic."""
        if since is not None and until is not None and since >= until:
            raise InvalidArgument(f"since={since} isn't before until={until}: nothing lies between")
        if error is not None and not error:
            raise InvalidArgument("error is empty: leave it out to select any")
        return cls(
            frozenset(map(_key, _many(keys, "keys"))),
            frozenset(_place(each, of_messages) for each in _many(ids, "ids")),
            _time(since, "since"),
            _time(until, "until"),
            error,
        )

    def picks(
        self,
        place: Place,
        key: bytes | None,
        time: int,
        error: Callable[[], str],
        topics: Sequence[str] = ("",),
    ) -> bool:
        """Tells whether a message is selected; `time` is in milliseconds, `error` is called only if it matters.

        `topics`: what an id may have as topic to mean it.
        """
        if self.ids and not any((topic, *place) in self.ids for topic in topics):
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


def _place(text: str | bytes, of_message: bool) -> tuple[str, int, int]:
    rest, _, offset = str(text).rpartition(":")
    topic, _, partition = rest.rpartition(":")
    if not (_is_number(partition) and _is_number(offset)) or (topic and not of_message):
        form = "PARTITION:OFFSET or TOPIC:PARTITION:OFFSET" if of_message else "PARTITION:OFFSET"
        raise InvalidArgument(f"ids: {text!r} isn't {form}, as `id` shows it")
    return topic, int(partition), int(offset)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 19


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
