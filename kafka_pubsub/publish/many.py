"""Publishing many messages with one call: the checks of its items, and its futures.

Theory: each kept future costs a visit in each round of the garbage collector, in all as much as the rest of publishing
a message. So the futures of one call are one object with two lists, and a future is made only when you read it. The
report of a message is used again for another message once the first is stored. So a call makes no more reports than
there are unanswered messages at once, and gives the collector no reason to run. Delayed items are queued by another
publisher, so a call is queued run by run: `DelayedPublisher.publish_many`.

Rules
1. All items are read and checked before the first is queued: the error names a wrong item, and nothing is sent.
2. The first item that can't be queued and all items after it fail through their futures, so that no later message of a
   key overtakes an earlier one.
3. A report stores the outcome first and looks for a future afterwards; a future is stored first and looks for its
   outcome afterwards. So at least one of them sees the other, as in `future.py`.
4. A report is called once for a message. Then it goes back to its `PublishFutures`, until all messages are queued.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from types import MappingProxyType
from typing import Final, NamedTuple, Self, TypedDict, overload

from kafka_pubsub.errors import InvalidArgument, PubSubError
from kafka_pubsub.model import Header, StoredRecord
from kafka_pubsub.options import PublishOptions
from kafka_pubsub.publish.checks import (
    MAX_KEY_BYTES,
    encode_attributes,
    encode_key,
    headers_size,
    refuse_data,
)
from kafka_pubsub.publish.due import Due, parse_due
from kafka_pubsub.publish.flow_control import Epoch
from kafka_pubsub.publish.future import NOT_SIGNALLED, PublishFuture, message_id
from kafka_pubsub.publish.writer_pool import ANY_PARTITION, NOW, Channel

__all__ = ["RUN", "Messages", "PublishFutures", "PublishItem", "Report", "at_item", "read_items"]

#: Messages that are queued before other publishers of the topic, and reports, get their turn: 1 to 2 ms.
RUN: Final = 512

_encode = str.encode
_new = object.__new__

_FIELDS = frozenset({"data"}) | PublishOptions.__optional_keys__

#: No message of a call is delayed.
_NONE: Final[Mapping[int, Epoch]] = MappingProxyType({})


class _Body(TypedDict):
    data: bytes


class PublishItem(PublishOptions, _Body):
    """One message of `publish_many`: its `data`, and the options of `Topic.publish`, by their names."""


class Messages(NamedTuple):
    """Checked items, field by field. `largest` is an upper bound of one message's bytes, key and headers included.

    `dues`: when the delayed ones are due, by index. `lanes`: priority and durability as they were given, by index;
    items that give neither may be left out.
    """

    data: list[bytes]
    keys: list[bytes | None]
    headers: list[list[Header] | None]
    largest: int
    dues: Mapping[int, Due]
    lanes: Mapping[int, tuple[int | None, bool | None]]

    def at(self, index: int) -> tuple[bytes, bytes | None, list[Header] | None]:
        """Returns the body, key and headers of one message."""
        return self.data[index], self.keys[index], self.headers[index]

    def arguments(self, start: int, end: int) -> Iterator[tuple[bytes, str | None, Mapping[str, str] | None]]:
        """Yields the messages from `start` up to `end` as arguments of `publish`, without their delays."""
        for data, key, headers in self.run(start, end):
            attributes = (
                None if headers is None else {name: (value or b"").decode() for name, value in headers}
            )
            yield data, None if key is None else key.decode(), attributes

    def run(self, start: int, end: int) -> Iterator[tuple[bytes, bytes | None, list[Header] | None]]:
        """Returns the messages from `start` up to `end`, in their order."""
        return zip(self.data[start:end], self.keys[start:end], self.headers[start:end], strict=True)


def read_items(items: Iterable[bytes | PublishItem], wall: Callable[[], float] = time.time) -> Messages:
    """Reads and checks all items; `InvalidArgument` names the place and the field of a wrong one."""
    _check_iterable(items)
    bodies: list[bytes] = []
    keys: list[bytes | None] = []
    # By index: most messages have none.
    headers: dict[int, list[Header]] = {}
    dues: dict[int, Due] = {}
    # One for all: of two items with one time, the first must not wait while the second goes straight home.
    now = wall()
    lanes: dict[int, tuple[int | None, bool | None]] = {}
    for item in items:
        # The hot path, as in `TopicPublisher.publish`.
        if isinstance(item, bytes):
            data, ordering_key, attributes = item, None, None
        else:
            try:
                data, ordering_key, attributes = (
                    item["data"],
                    item.get("ordering_key"),
                    item.get("attributes"),
                )
            except (TypeError, KeyError, AttributeError):
                raise _wrong_item(item, len(bodies)) from None
            if len(item) > 1 + (ordering_key is not None) + (attributes is not None):
                _read_rest(item, len(bodies), now, dues, lanes)
        key = None
        try:
            if not isinstance(data, bytes):
                raise refuse_data(data)
            if ordering_key is not None:
                key = _encode(ordering_key)
                if not 0 < len(key) <= MAX_KEY_BYTES:
                    encode_key(ordering_key)
            if attributes is not None:
                headers[len(bodies)] = encode_attributes(attributes)
        except (InvalidArgument, TypeError, UnicodeEncodeError) as error:
            raise _wrong_field(ordering_key, len(bodies), error) from None
        bodies.append(data)
        keys.append(key)
    largest = (
        max(map(len, bodies), default=0) + MAX_KEY_BYTES + max(map(headers_size, headers.values()), default=0)
    )
    count = len(bodies)
    return Messages(
        bodies,
        keys,
        list(map(headers.get, range(count))) if headers else [None] * count,
        largest,
        dues,
        lanes,
    )


def _check_iterable(items: object) -> None:
    if isinstance(items, (bytes, bytearray, str, Mapping)) or not isinstance(items, Iterable):
        raise InvalidArgument(
            f"items must be an iterable of messages, not {type(items).__name__}: use publish for one message"
        )


def at_item(index: int, error: PubSubError) -> PubSubError:
    """Returns the same error with the index of the item that it is about."""
    return type(error)(f"items[{index}]: {error.message}", code=error.code, calls=error.calls)


def _wrong_item(item: object, index: int) -> PubSubError:
    if isinstance(item, Mapping):
        return InvalidArgument(f"items[{index}] has no 'data': give it the message's bytes")
    if isinstance(item, (str, bytearray, memoryview)):
        return at_item(index, refuse_data(item))
    return InvalidArgument(
        f"items[{index}] must be bytes or a mapping with the names of publish's arguments, not {type(item).__name__}"
    )


def _wrong_field(ordering_key: object, index: int, error: Exception) -> Exception:
    if isinstance(error, InvalidArgument):
        return at_item(index, error)
    try:
        encode_key(ordering_key)
    except InvalidArgument as known:
        return at_item(index, known)
    return error


def _read_rest(
    item: PublishItem,
    index: int,
    now: float,
    dues: dict[int, Due],
    lanes: dict[int, tuple[int | None, bool | None]],
) -> None:
    """Adds when the item is due, if that isn't now, and its lane if it names one; refuses fields that it can't have."""
    for name in item:
        if name not in _FIELDS:
            raise InvalidArgument(
                f"items[{index}] has {name!r}, which is no argument of publish: leave it out or correct it"
            )
    lane = item.get("priority"), item.get("durable")
    if lane != (None, None):
        lanes[index] = lane
    delay, deliver_at = item.get("delay"), item.get("deliver_at")
    if delay is None and deliver_at is None:
        return
    try:
        due = parse_due(delay, deliver_at, now)
    except InvalidArgument as error:
        raise at_item(index, error) from None
    if due is not None:
        dues[index] = due


class PublishFutures(Sequence[Future[str]]):
    """The futures of one `publish_many`, in the order of its items.

    `result(timeout)` waits for all and returns their ids. A future is made when you first read it, and stays the same.
    """

    __slots__ = ("_delayed", "_epoch", "made", "outcomes", "partitions", "queued", "spare")

    def __init__(self, epoch: Epoch, count: int, delayed: Mapping[int, Epoch] = _NONE) -> None:
        self._epoch = epoch
        # The epochs of the delayed messages, by index: another publisher's.
        self._delayed = delayed
        # From this one on no message has been queued.
        self.queued = 0
        # As in `PublishFuture`, by index.
        self.outcomes: list[int | PubSubError | None] = [None] * count
        self.partitions: list[int | None] = [None] * count
        # Reports to use again for later messages; None once all are queued.
        self.spare: list[Report] | None = []
        # The futures that were read, by index.
        self.made: dict[int, PublishFuture] = {}

    def fill(self, messages: Messages, runs: Iterable[tuple[QueueRun, int, int]]) -> Self:
        """Queues the messages run by run; raises why not even the first could be queued."""
        try:
            for queue_run, start, end in runs:
                queue_run(messages, self, start, end)
        except PubSubError as error:
            if not self.queued:
                raise
            self._fail_from(self.queued, error)
        self.spare = None
        return self

    def queue(
        self,
        messages: Messages,
        start: int,
        end: int,
        epoch: Epoch,
        channel: Channel,
        paused: Mapping[bytes, PubSubError],
    ) -> int:
        """Queues messages until one needs a check; returns that one's index. Needs the topic's lock."""
        free = left = epoch.free_until_bytes - epoch.sent_bytes
        room = max(0, epoch.free_until_messages - epoch.sent_messages)
        reached, name = start, epoch.owner.name
        spare = self.spare
        try:
            for data, key, headers in messages.run(start, min(end, start + room)):
                quick = channel.quick
                if quick is None or paused or len(data) > left:
                    break
                if spare:
                    report = spare.pop()
                else:
                    report = _new(Report)  # as its `__init__` does
                    report.futures = self
                report.epoch, report.index = epoch, reached
                # Before the call: Ctrl-C comes when it has returned, and then its report will count, too.
                reached += 1
                left -= len(data)
                if headers is None:
                    quick(name, data, key, ANY_PARTITION, report)
                else:
                    quick(name, data, key, ANY_PARTITION, report, None, NOW, headers)
        except Exception:
            # The message wasn't taken: the error of `append` for the same message counts.
            reached -= 1
            left += len(data)
            return reached
        finally:
            epoch.sent_messages += reached - start
            epoch.sent_bytes += free - left
        return reached

    def _fail_from(self, start: int, error: PubSubError) -> None:
        """Sets the error of all messages from `start` on, which were not queued; before the futures are handed out."""
        for index in range(start, len(self.outcomes)):
            self.outcomes[index] = error

    def tell(self, index: int) -> None:
        """Gives the outcome to the future, once both exist."""
        future, outcome = self.made.get(index), self.outcomes[index]
        if future is not None and outcome is not None:
            future.settle(self.partitions[index], outcome)

    def result(self, timeout: float | None = None) -> list[str]:
        """Returns the message ids, once all messages are on the in-sync replicas.

        Raises the error of the first message that failed, once all are stored or have failed; or `TimeoutError` after
        `timeout` seconds (None, the default, waits without a limit). The futures show which other messages failed.
        """
        until = None if timeout is None else time.monotonic() + timeout
        # The last one first: when it is stored, nearly all are, and only a wait makes a future.
        for index in reversed(range(len(self.outcomes))):
            if self.outcomes[index] is None:
                try:
                    self[index].exception(None if until is None else max(0.0, until - time.monotonic()))
                except TimeoutError:
                    raise TimeoutError(self._epoch_of(index).owner.waits(timeout)) from None
        starts = {each: f"{self._epoch.owner.name}:{each}:" for each in set(self.partitions)}
        ids = [
            # As `message_id` does: the call would cost as much again.
            starts[partition] + str(outcome)
            if type(outcome) is int and outcome >= 0
            else self[index].result(0)
            for index, (partition, outcome) in enumerate(zip(self.partitions, self.outcomes, strict=True))
        ]
        for index, epoch in self._delayed.items():
            outcome = self.outcomes[index]
            assert isinstance(outcome, int), "an error would have been raised above"
            ids[index] = message_id(epoch.owner.name, self.partitions[index], outcome)
        return ids

    def __len__(self) -> int:
        return len(self.outcomes)

    @overload
    def __getitem__(self, index: int) -> Future[str]: ...
    @overload
    def __getitem__(self, index: slice) -> list[Future[str]]: ...
    def __getitem__(self, index: int | slice) -> Future[str] | list[Future[str]]:
        places = range(len(self.outcomes))[index]
        return self._future(places) if isinstance(places, int) else [self._future(each) for each in places]

    def __iter__(self) -> Iterator[Future[str]]:
        return map(self._future, range(len(self.outcomes)))

    def _future(self, index: int) -> PublishFuture:
        future = self.made.get(index)
        if future is None:
            future = _new(PublishFuture)  # as its `__init__` does, with the outcome if there is one
            future.epoch, future._waiting = self._epoch_of(index), None
            # The outcome is read first, because a report writes it last.
            future._outcome = self.outcomes[index]
            future._partition = self.partitions[index]
            # Two threads that read it at once get the same future.
            future = self.made.setdefault(index, future)
            if future._outcome is None:
                self.tell(index)
        return future

    def _epoch_of(self, index: int) -> Epoch:
        return self._delayed.get(index, self._epoch)


#: Queues the messages of one call from an index up to another; raises at the first that can't be queued.
QueueRun = Callable[[Messages, PublishFutures, int, int], None]


class Report:
    """The delivery report of one message, which `LogWriter.append` calls, as it calls a `PublishFuture`."""

    __slots__ = ("epoch", "futures", "index")

    def __init__(self, epoch: Epoch, futures: PublishFutures, index: int) -> None:
        self.epoch, self.futures, self.index = epoch, futures, index

    def __call__(self, error: object, record: StoredRecord) -> None:
        epoch, futures, index = self.epoch, self.futures, self.index
        if error is None:
            futures.partitions[index] = record.partition()
            futures.outcomes[index] = NOT_SIGNALLED if (offset := record.offset()) is None else offset
        else:
            futures.outcomes[index] = epoch.owner.failed(record.key(), error)
        if futures.made:
            futures.tell(index)
        if (spare := futures.spare) is not None:
            spare.append(self)
        # Counted last: a flush that has returned promises resolved futures.
        epoch.done_messages = done = epoch.done_messages + 1
        epoch.done_bytes += len(record)
        if done >= epoch.look_at:
            epoch.outstanding.wake(epoch, record)

    def fail(self, error: PubSubError) -> None:
        """Sets the error of a message that was not queued; called before the futures are handed out."""
        self.futures.outcomes[self.index] = error
