"""The handle on a subscription, through which you receive.

Rules
1. Making a handle does no I/O; the first call that receives looks the subscription up.
2. All handles of one `PubSub` on one subscription share one subscriber, so an ack id is good on each of them, and all
   calls of `receive` share one membership of the group.
3. An option that isn't built yet is refused, never ignored.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Executor
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Self, Unpack

from kafka_pubsub.config import FlowControl, SubscriptionOptions
from kafka_pubsub.dead_letters.model import DeadLetterMessage, DeadLetterProgress, DeadLetterResult, Selection
from kafka_pubsub.errors import FailedPrecondition, InvalidArgument
from kafka_pubsub.model import Message
from kafka_pubsub.options import LetterSelection
from kafka_pubsub.subscribe.admin.subscriptions import SubscriptionAdmin

if TYPE_CHECKING:
    from kafka_pubsub.dead_letters.operations import DeadLetterOperations
    from kafka_pubsub.looks.message import PeekedMessage
    from kafka_pubsub.subscribe.retry_topic.key_states import KeyState
    from kafka_pubsub.subscribe.stream.receiver import Receiver
    from kafka_pubsub.subscribe.stream.status import SubscriptionState
    from kafka_pubsub.subscribe.stream.stream import Stream
    from kafka_pubsub.subscriber import Subscriber

__all__ = ["Subscription"]


class Subscription:
    """A subscription by name; made by `PubSub.subscription` and `PubSub.create_subscription`.

    Example:
        with ps.subscription("billing").pull(handle) as stream:
            stream.result(timeout=60)

        with ps.subscription("billing") as sub:  # its end gives up what `receive` holds
            for message in sub.receive(100, timeout=30):
                handle(message)
    """

    __slots__ = ("_admin", "_dead_letters", "_delete", "_entered", "_name", "_subscriber")

    def __init__(
        self,
        name: str,
        *,
        admin: Callable[[], SubscriptionAdmin],
        subscriber: Callable[[], Subscriber],
        dead_letters: Callable[[], DeadLetterOperations],
        delete: Callable[[], None],
    ) -> None:
        self._name = name
        self._admin = admin
        self._subscriber = subscriber
        self._dead_letters = dead_letters
        self._delete = delete
        #: For each open `with` block, the receiver that it uses.
        self._entered: list[Receiver] = []

    @property
    def name(self) -> str:
        """The subscription's name, which is also the consumer group's."""
        return self._name

    @property
    def topic(self) -> str:
        """The name of the topic that it receives from."""
        return self._admin().record(self._name).topic

    @property
    def options(self) -> SubscriptionOptions:
        """The stored configuration, read from the catalog now."""
        return self._admin().record(self._name).options

    def pull(
        self,
        callback: Callable[[Message], object],
        *,
        flow: FlowControl | None = None,
        max_workers: int | None = None,
        executor: Executor | None = None,
    ) -> Stream:
        """Calls `callback` with each message until the stream is closed; one message of a key at a time.

        `flow`: how much the stream holds at once, by default `FlowControl()`. `max_workers`: callbacks that run at
        the same time, 1 to 10,000, by default 16. `executor`: runs the callbacks; by default the stream has threads
        of its own.
        """
        _refuse_coroutines(callback)
        return self._subscriber().pull(callback, flow=flow, max_workers=max_workers, executor=executor)

    def pull_batch(
        self,
        callback: Callable[[list[Message]], object],
        *,
        max_messages: int = 100,
        max_latency: float | timedelta = 0.05,
        flow: FlowControl | None = None,
        max_workers: int | None = None,
    ) -> Stream:
        """Calls `callback` with lists: messages of distinct keys, or messages of one key in their order.

        `max_messages` (1 to 100,000, default 100) and `max_latency` (0 to 60 seconds, default 0.05): a list is handed
        out when the first of the two limits is reached. `flow` and `max_workers`: as with `pull`.
        """
        _refuse_coroutines(callback)
        return self._subscriber().pull_batch(
            callback,
            max_messages=max_messages,
            max_latency=max_latency,
            flow=flow,
            max_workers=max_workers,
        )

    def _pull_async(
        self,
        callback: Callable[[Message], Awaitable[object]],
        loop: asyncio.AbstractEventLoop,
        *,
        flow: FlowControl | None = None,
        max_workers: int | None = None,
    ) -> Stream:
        """Runs a coroutine function on `loop` for each message; `kafka_pubsub.aio` uses it."""
        return self._subscriber().pull_async(callback, loop, flow=flow, max_workers=max_workers)

    def receive(self, max_messages: int = 1, timeout: float | None = None) -> list[Message]:
        """Returns up to `max_messages`; waits up to `timeout` seconds for the first. The list is empty if none came.

        `timeout`: None, the default, waits until a message comes. Ack each message within the ack deadline; one that
        isn't acked by then is delivered again, and its attempt counts.

        The first call joins the consumer group, which takes up to some seconds; a shorter `timeout` finds nothing. The
        membership holds partitions that other members don't get meanwhile. It ends when for 5 seconds no call was
        running and no message that `receive` returned had an open lease; at `close()`; and at the end of the `with`
        block of the subscription. The next call joins again.
        """
        return self._subscriber().receiver.receive(max_messages, timeout)

    def close(self) -> None:
        """Gives up at once the messages that `receive` holds, for all handles of this `PubSub` on the subscription.

        Messages that aren't acked are delivered again, no attempt is counted, and their acks come too late. Streams
        of `pull` go on, and `receive` may be called again.
        """
        with contextlib.suppress(FailedPrecondition):  # the PubSub is closed, and this with it
            self._subscriber().receiver.stop()

    def __enter__(self) -> Self:
        receiver = self._subscriber().receiver
        receiver.enter()
        self._entered.append(receiver)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Does the same as `close`, unless another `with` block on the subscription is open."""
        self._entered.pop().leave()

    def acknowledge(self, ack_ids: Sequence[str]) -> None:
        """Acks messages by `message.ack_id`; with `exactly_once` waits until all acks are durable."""
        self._subscriber().acknowledge(ack_ids)

    @property
    def _acks_wait(self) -> bool:
        """Whether `acknowledge` waits for the broker, as the last stream that was opened here does."""
        return self._subscriber().exactly_once

    def modify_ack_deadline(self, ack_ids: Sequence[str], seconds: float) -> None:
        """Moves the deadlines to `seconds` from now; 0 is a nack."""
        self._subscriber().modify_ack_deadline(ack_ids, seconds)

    def peek(self, max_messages: int | None = None) -> Iterator[PeekedMessage]:
        """Yields the messages that aren't finished, also those that wait for a redelivery, while you iterate.

        `max_messages`: how many at most; None, the default, yields all. It joins no group and changes nothing: the
        messages have no lease, and can't be acked. They come in publish order within a partition, so within a key,
        and the older one first otherwise. `message.state` says whether one is ready, leased, waiting or parked.
        """
        return self._subscriber().peek(max_messages)

    def state(self, *, limit: int = 10_000) -> SubscriptionState:
        """Returns what isn't finished (`SubscriptionState`), the messages in flight, and the blocked keys with reasons.

        It reads Kafka and changes nothing, whether or not a process receives: some fifteen requests, the metadata of
        all positions, and the messages in the retry topic and the records of the dead-letter topic, up to `limit` of
        each (default 10,000) and 2 kB for each. What lies beyond is counted in `unread_retry` and
        `unread_dead_letters`. With `limit=0` neither topic is read.
        """
        return self._subscriber().state(limit)

    # Dead letters, and messages that are parked or wait. `keys`, `ids`, `since`, `until` and `error` select; None
    # doesn't restrict. `topic` is the dead-letter topic, if it isn't the policy's.

    def dead_letters(
        self,
        *,
        topic: str | None = None,
        **selection: Unpack[LetterSelection],
    ) -> Iterator[DeadLetterMessage]:
        """Yields the dead letters that are neither replayed nor purged, by partition and offset, while you iterate.

        `keys`: of any of these ordering keys. `ids`: as in `letter.message_id` or `letter.id`. `since`, `until`: when
        they were dead-lettered. `error`: a part of the text of the error.
        """
        return self._dead_letters().dead_letters.dead_letters(self._name, Selection.of(**selection), topic)

    def replay_dead_letters(
        self,
        *,
        topic: str | None = None,
        dry_run: bool = False,
        on_progress: Callable[[DeadLetterProgress], object] | None = None,
        **selection: Unpack[LetterSelection],
    ) -> DeadLetterResult:
        """Delivers dead letters again, those of a key in the order in which they were published; attempts begin anew.

        Each comes back once: repeat a call that was interrupted. With `dry_run` nothing is changed.
        """
        return self._dead_letters().dead_letters.replay(
            self._name, Selection.of(**selection), topic, on_progress or _say_nothing, dry_run=dry_run
        )

    def purge_dead_letters(
        self,
        *,
        topic: str | None = None,
        dry_run: bool = False,
        on_progress: Callable[[DeadLetterProgress], object] | None = None,
        **selection: Unpack[LetterSelection],
    ) -> DeadLetterResult:
        """Gives dead letters up, and frees the disk space of those that replays and purges have finished.

        They aren't listed any more. Kafka deletes from the front of a topic only, so their bytes may stay a while.
        """
        return self._dead_letters().dead_letters.purge(
            self._name, Selection.of(**selection), topic, on_progress or _say_nothing, dry_run=dry_run
        )

    def release(
        self,
        *,
        drop: bool = False,
        dry_run: bool = False,
        on_progress: Callable[[DeadLetterProgress], object] | None = None,
        **selection: Unpack[LetterSelection],
    ) -> DeadLetterResult:
        """Makes messages that wait in the retry topic due at once; their attempts begin anew.

        It takes parked messages (`on_exhausted="park"`) and messages whose backoff isn't over. `drop`: dead-letters
        the parked messages instead, and their keys go on. `ids` are message ids, or places: `PARTITION:OFFSET` of the
        home topic, `TOPIC:PARTITION:OFFSET` of a lane. `since` and `until` are when the messages failed first. A stream
        of the subscription does it, now or when one is opened.
        """
        return self._dead_letters().releases.release(
            self._name, Selection.of(**selection), on_progress or _say_nothing, drop=drop, dry_run=dry_run
        )

    def keys(self) -> list[KeyState]:
        """Returns the keys that are parked, waiting or leased in any process, and the reasons, as Kafka stores them.

        A key that waits for a message in another lane of its topic is `waiting`, and its reason names that message.
        """
        states = self._dead_letters().keys(self._name)
        record = self._admin().record(self._name)  # of a subscription that nothing can be received from, too
        return [*states, *self._subscriber().waiting_followers(record, states)]

    def delete(self) -> None:
        """Deletes the subscription and its position; its streams end with `NotFound`."""
        self._delete()

    def __repr__(self) -> str:
        return f"<Subscription {self._name!r}>"


def _say_nothing(progress: DeadLetterProgress) -> None:
    """Ignores the progress."""


def _refuse_coroutines(callback: object) -> None:
    if inspect.iscoroutinefunction(callback):
        raise InvalidArgument(
            "callback is a coroutine function, which isn't awaited here: use kafka_pubsub.aio, or a plain function"
        )
