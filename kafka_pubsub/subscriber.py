"""A subscriber: everything that one process does with one subscription.

Rules
1. Each `pull` is a stream with a reader of its own, a member of the subscription's group.
2. Synchronous pull also has a stream while it is in use (`receiver`).
3. Ack ids are valid across the streams of one subscriber: the registry has every message whose id was read.
4. At each close the positions are copied to the catalog, because the broker forgets those of a group without members.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import secrets
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Executor
from datetime import timedelta
from functools import partial
from weakref import WeakValueDictionary

from kafka_pubsub.config import FlowControl, SubscriptionRecord
from kafka_pubsub.counters import PARTS
from kafka_pubsub.errors import (
    AckError,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    PubSubError,
    StaleAck,
    UnknownAck,
)
from kafka_pubsub.history.protocol import Histories
from kafka_pubsub.history.recorder import Recorder
from kafka_pubsub.lanes.choices import LaneChoices, LaneSource
from kafka_pubsub.lanes.ends import LaneEnds
from kafka_pubsub.lanes.waiting_followers import waiting_followers
from kafka_pubsub.log.ports import Backend, LogReader
from kafka_pubsub.looks.message import PeekedMessage
from kafka_pubsub.looks.peek import peek
from kafka_pubsub.model import AckFuture, AckId, Message
from kafka_pubsub.subscribe.coordinator import Coordinator
from kafka_pubsub.subscribe.partition.crash_suspects import TrialLock
from kafka_pubsub.subscribe.partition.settings import Backoff, Exhausted, Policy, Rules
from kafka_pubsub.subscribe.retry_topic.key_states import KeyState
from kafka_pubsub.subscribe.retry_topic.layout import Layout
from kafka_pubsub.subscribe.retry_topic.open_transactions import OpenTransactions
from kafka_pubsub.subscribe.retry_topic.retry_io import RetryIO
from kafka_pubsub.subscribe.stream.receiver import Receiver
from kafka_pubsub.subscribe.stream.runner import StreamRunner
from kafka_pubsub.subscribe.stream.status import LIMIT, SubscriptionState, state_of
from kafka_pubsub.subscribe.stream.stream import Stream
from kafka_pubsub.subscribe.stream.virtual_runner import VirtualRunner
from kafka_pubsub.subscribe.takeover.rejoining_reader import RejoiningReader
from kafka_pubsub.subscribe.workers.ack_futures import check_answers
from kafka_pubsub.subscribe.workers.asyncio_workers import AsyncioWorkers
from kafka_pubsub.subscribe.workers.forgotten_acks import ForgottenAcks
from kafka_pubsub.subscribe.workers.lease_runner import LeaseRunner
from kafka_pubsub.subscribe.workers.observer import UNOBSERVED, Tracing
from kafka_pubsub.subscribe.workers.pull_queue import PullQueue
from kafka_pubsub.subscribe.workers.thread_workers import (
    BatchWorkers,
    ExecutorWorkers,
    ThreadWorkers,
    WorkerPool,
)

__all__ = ["Stream", "Subscriber", "SubscriptionState", "trace", "turn_of"]

# What makes spans around callbacks; None: nothing does.
_tracing: Tracing | None = None


def trace(tracing: Tracing | None) -> None:
    """Puts spans around the callbacks of streams that are opened from now on; None: around none."""
    global _tracing
    _tracing = tracing


_making = threading.Lock()
#: By topic id and name: a process may read subscriptions of the same name in several clusters.
_turns: WeakValueDictionary[tuple[str, str], TrialLock] = WeakValueDictionary()


def turn_of(record: SubscriptionRecord) -> TrialLock:
    """Returns the trial lock that all streams of this process on a subscription share: one suspect runs at a time.

    Two streams that tried a suspect each would share the blame for a crash, and an innocent message would become a
    dead letter.
    """
    with _making:
        return _turns.setdefault((record.topic_id, record.name), TrialLock())


log = logging.getLogger("kafka_pubsub.subscriber")

#: Callbacks at a time by default: enough to hide a database's latency, few enough for its connection pool.
WORKERS = 16
#: The same for coroutines, which cost little.
TASKS = 1000
#: Seconds that the end of a stream waits for the copy of its positions. The copy takes some 20 ms, and a second or two
#: if 20 processes, which take turns at the catalog, end at once.
COPY_WAIT = 5.0

#: Ack ids kept before those of finished messages are forgotten.
REGISTRY = 10_000


def _note_received(messages: Sequence[Message], record: SubscriptionRecord, since: int) -> None:
    if _tracing is not None:
        _tracing.received(messages, record, since)


class Subscriber:
    """Pulls one subscription; users call it through `Subscription`."""

    def __init__(
        self,
        backend: Backend,
        look_up: Callable[[], SubscriptionRecord],
        histories: Histories | None = None,
    ) -> None:
        self._backend = backend
        self._look_up = look_up
        self._histories = histories
        self._process = secrets.randbits(60)
        self._lock = threading.RLock()
        self._streams: set[Stream] = set()
        self._runners: dict[Stream, StreamRunner] = {}
        #: Synchronous pull.
        self.receiver = Receiver(self._open, _note_received)
        #: Messages whose ack id the user has read.
        self._registry: dict[str, Message] = {}
        #: Its size at which messages that can't be acked any more are dropped.
        self._registry_limit = REGISTRY
        self._closed = False
        self._open_transactions = OpenTransactions(backend)
        #: Whether acks by id wait until they are durable: as of the last stream that was opened.
        self.exactly_once = False

    # Streams

    def pull(
        self,
        callback: Callable[[Message], object],
        *,
        flow: FlowControl | None = None,
        max_workers: int | None = None,
        executor: Executor | None = None,
    ) -> Stream:
        """Calls `callback` with each message, on threads of our own or on `executor`."""
        _check_callable(callback)
        workers = _workers(max_workers, WORKERS)

        def worker_pool(runner: StreamRunner, name: str) -> WorkerPool:
            observer = runner.inbox.observer
            observed = observer.around(callback)
            if _tracing is not None:
                observed = _tracing.around(observed, runner.rebalances.record)
            if executor is not None:
                return ExecutorWorkers(observed, executor, workers, runner.inbox)
            return ThreadWorkers(observed, workers, runner.inbox, name)

        return self._open(worker_pool, flow)

    def pull_batch(
        self,
        callback: Callable[[list[Message]], object],
        *,
        max_messages: int = 100,
        max_latency: float | timedelta = 0.05,
        flow: FlowControl | None = None,
        max_workers: int | None = None,
    ) -> Stream:
        """Calls `callback` with lists: messages of distinct keys, or messages of one key in their order."""
        _check_callable(callback)
        if not 1 <= max_messages <= 100_000:
            raise InvalidArgument(f"max_messages must be from 1 to 100000, not {max_messages!r}")
        latency = max_latency.total_seconds() if isinstance(max_latency, timedelta) else max_latency
        if not 0 <= latency <= 60:
            raise InvalidArgument(f"max_latency must be from 0 to 60 seconds, not {max_latency!r}")
        workers = _workers(max_workers, WORKERS)

        def worker_pool(runner: StreamRunner, name: str) -> WorkerPool:
            traced = callback
            if _tracing is not None:
                traced = _tracing.around_batch(callback, runner.rebalances.record)
            return BatchWorkers(traced, max_messages, latency, workers, runner.inbox, name)

        return self._open(worker_pool, flow)

    def pull_async(
        self,
        callback: Callable[[Message], Awaitable[object]],
        loop: asyncio.AbstractEventLoop,
        *,
        flow: FlowControl | None = None,
        max_workers: int | None = None,
    ) -> Stream:
        """Runs the coroutine `callback` on `loop` for each message."""
        _check_callable(callback)
        workers = _workers(max_workers, TASKS)

        def worker_pool(runner: StreamRunner, name: str) -> WorkerPool:
            observer = runner.inbox.observer
            observed = observer.around_coroutine(callback)
            if _tracing is not None:
                observed = _tracing.around_coroutine(observed, runner.rebalances.record)
            return AsyncioWorkers(observed, loop, workers, runner.inbox)

        return self._open(worker_pool, flow)

    def _open(
        self,
        make_worker_pool: Callable[[StreamRunner, str], WorkerPool],
        flow: FlowControl | None,
        watch: Callable[[], None] | None = None,
    ) -> Stream:
        record = self._look_up()
        self._check_open()
        self.exactly_once = record.options.exactly_once
        name, member = f"kafka_pubsub-{record.name}", f"kafka_pubsub-{os.getpid()}"
        layout = self._layout_of(record)
        laned = [layout.laned]  # as of the last join
        joining = RejoiningReader(lambda: self._backend.reader(record.name, member, lanes=laned[0]))
        histories = self._histories
        recorder = (
            None
            if histories is None
            else Recorder(histories.of_stream(record), lambda: runner.rebalances.layout)
        )
        # A number for each stream: two streams of a process under one transactional id would fence each other.
        writer = secrets.randbits(60)

        def retry_side_for(layout: Layout) -> RetryIO:
            made = RetryIO(self._backend, layout.record, layout, writer, joining.membership, joining.rejoin)
            made.on_answer = None if recorder is None else recorder.move_answered
            return made

        def read_anew() -> Sequence[str]:
            layout = self._layout_of(runner.rebalances.look_again())
            now, laned[0] = runner.rebalances.layout, layout.laned
            if layout.identity != now.identity and layout.extends(now):
                return runner.rebalances.widen(layout)
            return runner.rebalances.go_over(layout.record, retry_side_for(layout))

        retry_side = retry_side_for(layout)
        runner = self._make_runner(joining, record, watch, retry_side)
        runner.inbox.observer = runner.rebalances.observer = recorder or UNOBSERVED
        runner.rebalances.layout_of = self._layout_of
        runner.rebalances.renew = lambda: joining.rejoin(read_anew)
        worker_pool = make_worker_pool(runner, name)
        if isinstance(runner, VirtualRunner):
            runner.serve(worker_pool)
        runner.coordinator = coordinator = Coordinator(
            _rules(record),
            flow or FlowControl(),
            worker_pool,
            writer,
            # Where a test moves the time, waits are the shortest ones, so that it knows them.
            random.random if self._backend.clock is None else lambda: 0.0,
            retry_side,
            turn_of(record),
            record.name,
        )
        coordinator.observer = runner.inbox.observer
        coordinator.chooser = self._lanes(record, runner, flow or FlowControl())
        coordinator.chooser.watch(coordinator.partitions)
        coordinator.forgotten = ForgottenAcks(record, at_close=not isinstance(worker_pool, PullQueue))
        return self._start(runner, worker_pool, name)

    def _start(self, runner: StreamRunner, worker_pool: WorkerPool, name: str) -> Stream:
        stream = Stream(runner, worker_pool, self._ended)
        PARTS.add(stream._part)
        with self._lock:
            self._streams.add(stream)
            self._runners[stream] = runner
        runner.start(name)
        try:
            self._check_open()  # another thread may have closed all streams while this one was being made
        except FailedPrecondition:
            stream.close(0)
            raise
        return stream

    def _check_open(self) -> None:
        with self._lock:
            if self._closed:
                raise FailedPrecondition("this PubSub is closed: make a new one")

    def _make_runner(
        self,
        reader: LogReader,
        record: SubscriptionRecord,
        watch: Callable[[], None] | None,
        retry_side: RetryIO,
    ) -> StreamRunner:
        clock = self._backend.clock
        make = StreamRunner if clock is None else partial(VirtualRunner, moved=clock)
        runner: StreamRunner = make(
            reader,
            record,
            self._process,
            look_up=self._look_up,
            on_end=lambda: self._failed(runner),
            on_handed_out=self._handed_out,
            watch=watch,
            retry_side=retry_side,
        )
        runner.inbox.records = self._backend.records
        return runner

    def _lanes(self, record: SubscriptionRecord, runner: StreamRunner, flow: FlowControl) -> LaneChoices:
        options = record.options
        source = LaneSource(
            lambda: runner.rebalances.layout,
            LaneEnds(self._backend.admin, f"kafka_pubsub-{record.name}-lane-ends"),
            runner.post,
            None if options.strict else options.ageing,
            options.message_ordering,
            lambda: runner.rebalances.looks,
        )
        return LaneChoices(source, flow.max_bytes)

    def _layout_of(self, record: SubscriptionRecord) -> Layout:
        """Returns the topics of the subscription, by its topic's record as it is now."""
        return Layout(record, self._backend.catalog.topics().get(record.topic))

    def _failed(self, runner: StreamRunner) -> None:
        with self._lock:
            stream = next((stream for stream, each in self._runners.items() if each is runner), None)
        if stream is not None:
            stream.cancel()

    def _ended(self, stream: Stream) -> None:
        with self._lock:
            self._streams.discard(stream)
            runner = self._runners.pop(stream, None)
        PARTS.end(stream._part)
        if runner is not None:
            chooser, observer = runner.coordinator.chooser, runner.inbox.observer
            chooser.close()
            observer.close()
            # On a thread of its own: a cluster that is gone would hold up closing for as long as a call may take.
            copying = threading.Thread(
                target=self._copy_positions, args=(runner,), name="kafka_pubsub-copy", daemon=True
            )
            copying.start()
            copying.join(runner.rebalances.time_left(COPY_WAIT))
            if copying.is_alive():
                log.warning(
                    "the positions of %r aren't copied to the catalog yet; not waiting", runner.subscription
                )

    def _copy_positions(self, runner: StreamRunner) -> None:
        partitions, layout = runner.coordinator.partitions, runner.rebalances.layout
        positions = partitions.committed_positions()
        if not positions:
            return
        try:
            catalog = self._backend.catalog
            record = catalog.subscriptions().get(runner.subscription)
            if record is None or record.topic_id != self._look_up().topic_id:
                return
            after = layout.with_positions(record, positions, partitions.retry_positions())
            if after != record:
                catalog.put_subscription(after, record)
        except NotFound:
            pass  # the subscription is deleted: there is nothing to copy
        except PubSubError as error:
            log.warning("the positions of %r weren't copied to the catalog: %s", runner.subscription, error)

    # Acks by id

    def acknowledge(self, ack_ids: Sequence[str]) -> None:
        """Acks by id. Late acks are counted; unknown ids raise `UnknownAck` after the others were acked.

        With `exactly_once` it returns when all acks are durable, and late ones raise `StaleAck`.
        """
        if not self.exactly_once:
            self._each(ack_ids, lambda message: message.ack())
            return
        answers: dict[str, AckFuture] = {}
        unknown: AckError | None = None
        try:
            self._each(
                ack_ids if isinstance(ack_ids, str) else list(dict.fromkeys(ack_ids)),
                lambda message: answers.update({message.ack_id: message.ack_with_response()}),
            )
        except AckError as error:
            unknown = error
        check_answers(answers, unknown)

    def modify_ack_deadline(self, ack_ids: Sequence[str], seconds: float) -> None:
        """Moves deadlines to `seconds` from now; 0 is a nack."""
        if not 0 <= seconds <= 600:
            raise InvalidArgument(f"seconds must be from 0 to 600, not {seconds!r}")
        self._each(ack_ids, lambda message: message.extend(seconds))

    def _each(self, ack_ids: Sequence[str], verb: Callable[[Message], None]) -> None:
        if isinstance(ack_ids, str):
            raise InvalidArgument("ack_ids must be a list of ack ids, not one string")
        unknown: dict[str, AckError] = {}
        for text in ack_ids:
            message = self._registry.get(text)
            if message is not None:
                verb(message)
                continue
            try:
                self._check_ours(text)
            except AckError as error:
                unknown[text] = error
        if unknown:
            first = next(iter(unknown.values()))
            first.ack_ids = tuple(unknown)
            raise first

    def _check_ours(self, text: str) -> None:
        if AckId.parse(text).process != self._process:
            raise UnknownAck(
                "the ack id was handed out by another process, or before this one started; "
                "a message can be acked only where it was received"
            )
        with self._lock:
            runners = list(self._runners.values())
        if runners:  # an id of ours that is finished and forgotten: counted like any late ack
            runners[0].inbox.stale()
        if self.exactly_once:
            raise StaleAck("the ack id is of a delivery that was settled long ago: this ack changed nothing")

    def _handed_out(self, ack_id: str, message: Message) -> None:
        if len(self._registry) >= self._registry_limit:
            for text, each in list(self._registry.items()):
                if each._state or (isinstance(each._sink, LeaseRunner) and each._sink.withdrawn):
                    self._registry.pop(text, None)
            self._registry_limit = max(REGISTRY, 2 * len(self._registry))
        self._registry[ack_id] = message

    # The rest

    def state(self, limit: int = LIMIT) -> SubscriptionState:
        """Returns what isn't finished, and what the streams of this process hold."""
        if limit < 0:
            raise InvalidArgument(f"limit must be 0 or more, not {limit!r}")
        with self._lock:
            runners = list(self._runners.values())
        return state_of(self._backend, self._look_up(), runners, limit)

    def waiting_followers(self, record: SubscriptionRecord, states: Sequence[KeyState]) -> list[KeyState]:
        """Returns the keys that wait for other lanes; `states`: those that retry topics hold up."""
        return waiting_followers(self._backend, record, states)

    def peek(self, max_messages: int | None) -> Iterator[PeekedMessage]:
        """Yields unfinished messages, outside of the group."""
        return peek(self._backend, self._look_up(), max_messages)

    def noticed(self, record: SubscriptionRecord) -> None:
        """Takes the subscription's record as it is now in the catalog."""
        with self._lock:
            runners = list(self._runners.values())
        for runner in runners:
            runner.rebalances.noticed(record)
        read = [runner.rebalances.retries_read() for runner in runners]
        self._open_transactions.look(record.name, {place: at for each in read for place, at in each.items()})
        for runner in runners:  # the figures of streams add up, so one of them tells it
            runner.rebalances.held_up = self._open_transactions.seconds if runner is runners[0] else 0.0

    @property
    def pulling(self) -> bool:
        """Whether it has streams."""
        return bool(self._streams)

    def end(self, error: PubSubError | None = None) -> None:
        """Closes the open streams; with an `error`, they fail with it."""
        with self._lock:
            streams = list(self._streams)
            for runner in self._runners.values():
                runner.failure = runner.failure or error
        for stream in streams:
            stream.close()

    def begin_closing(self) -> None:
        """Begins to close every stream, and opens no more; `close` waits for the end."""
        with self._lock:
            self._closed = True
            streams = list(self._streams)
        for stream in streams:
            stream.cancel()

    def close(self) -> None:
        """Closes every stream, and opens no more."""
        with self._lock:
            self._closed = True
        self.end()


def _rules(record: SubscriptionRecord) -> Rules:
    options = record.options
    retry = options.retry
    backoff = Backoff() if retry is None else Backoff(retry.min_backoff, retry.max_backoff)
    dead = options.dead_letter
    policy = Policy() if dead is None else Policy(dead.max_attempts, Exhausted(dead.on_exhausted))
    return Rules(
        options.message_ordering,
        options.ack_deadline,
        options.max_extension,
        backoff,
        policy,
        record.name,
        options.exactly_once,
    )


def _check_callable(callback: object) -> None:
    if not callable(callback):
        raise InvalidArgument(f"callback must be a function that takes a message, not {callback!r}")


def _workers(given: int | None, default: int) -> int:
    if given is None:
        return default
    if not 1 <= given <= 10_000:
        raise InvalidArgument(f"max_workers must be from 1 to 10000, not {given!r}")
    return given
