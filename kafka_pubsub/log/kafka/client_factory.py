"""librdkafka's handles: made lazily, counted, closed, and never touched after a fork.

Rules
1. Threads don't survive a fork, so a handle that was made before can't work in the child. Once a backend has made
   its first handle it belongs to that process; in a child every use is `FailedPrecondition`.
   Another, unused backend in that child may work, without a promise: if one of the parent's threads was just
   resolving a host name, glibc's lock around that is held for ever in the child (seen once in some 200 forks).
2. In the child the inherited handles are made immortal: their destructor would wait for threads that don't exist.
3. The maker of a handle closes it; `close` closes what is left.
4. Closing always ends: a call that hangs in librdkafka is left behind on a daemon thread, and the log says so.
5. `Trouble` keeps what librdkafka last said about the connection, so that a call that ran out of time can say why.
6. A new idempotent producer is introduced to a broker, because its first record waits for the producer's id, which
   librdkafka asks for when metadata come over a connection to a broker that it knows, or else every 0.5 s.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, TypeVar, cast

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

# Not those of the package: OpenTelemetry's instrumentation puts others there, whose spans would be about our requests.
from confluent_kafka.cimpl import Consumer, Producer

from kafka_pubsub.errors import FailedPrecondition, PubSubError
from kafka_pubsub.log.kafka.admin_client import LockedAdminClient
from kafka_pubsub.log.kafka.configuration import Configuration, ConfigValue
from kafka_pubsub.log.kafka.errors import translate, unreachable
from kafka_pubsub.log.kafka.librdkafka_log import LibrdkafkaLog
from kafka_pubsub.log.kafka.outages import Probe, outage_of

__all__ = ["ANY_TOPIC", "ClientFactory", "OnError", "Trouble"]

_LOGGER = logging.getLogger("kafka_pubsub.kafka")

OnError = Callable[[KafkaError], None]
_Handle = TypeVar("_Handle", Consumer, Producer, LockedAdminClient)

#: The default settings of every kind of client; the user's settings win.
COMMON_DEFAULTS: Mapping[str, ConfigValue] = {
    # Brokers and load balancers drop idle connections; TCP's own probes find dead ones.
    "socket.keepalive.enable": True,
    # Milliseconds. With librdkafka's 30 s a partition without a leader could look healthy for that long.
    "socket.connection.setup.timeout.ms": 10_000,
    # Milliseconds. Back within a second of a broker's return, without asking a broker that is down too often.
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 1_000,
    # Milliseconds. At the default of 100 every committed() and every transaction waits for one backoff.
    "retry.backoff.ms": 1,
    "retry.backoff.max.ms": 250,
}

#: Milliseconds. At 1 the first request of all, to a cluster without a coordinator yet, is never answered.
_ADMIN_DEFAULTS: Mapping[str, ConfigValue] = {"retry.backoff.ms": 100}

#: Seconds for closing a client that has sent all its data: milliseconds, as a rule. librdkafka sets no limit to it,
#: aborts and flushes first, and waits for each of its threads.
_CLOSE_S = 5.0

#: The same where no broker has ever answered: resolving a host name may hold a thread for many seconds.
_UNREACHED_CLOSE_S = 0.5

#: Seconds for introducing a producer that begins with `init_transactions`; it takes milliseconds.
_INTRODUCTION_S = 1.0
#: Seconds that are left to `init_transactions` in any case.
_INIT_S = 0.1

#: Seconds after which a caller that discards a producer has surely dropped its reference.
_LET_GO_S = 1.0

#: Errors after which a client knows of no broker that it could ask.
_NONE_LEFT: Final = frozenset({KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE})

#: Seconds for an answer to a probe.
_ANSWER_S: Final = 1.0
#: A topic to ask about where any will do: it needn't exist.
ANY_TOPIC: Final = "_kafka_pubsub.catalog"

_COMMON_RULES: Mapping[str, ConfigValue] = {"allow.auto.create.topics": False, "statistics.interval.ms": 0}


class Trouble:
    """The last complaint about the connection, if there was one since `clear`.

    `reached`: whether a broker has ever answered; the client that makes the first request begins with False.
    """

    def __init__(self, *, reached: bool = True) -> None:
        self.reached = reached
        #: Whether something has taken a connection at the address, though it hasn't answered yet.
        self.connects = False
        self.last: KafkaError | None = None
        self.since = 0.0

    def note(self, error: KafkaError) -> None:
        """Keeps the time of the first error of a series, and the error that says most."""
        if self.last is None:
            self.since = time.monotonic()
        # "All brokers are down" says less than the reason that came before it.
        if self.last is None or error.code() != KafkaError._ALL_BROKERS_DOWN:
            self.last = error

    def clear(self) -> None:
        """Forgets the error, because an answer came."""
        self.last, self.reached = None, True


class ClientFactory:
    """The librdkafka handles of one backend."""

    def __init__(self, configuration: Configuration) -> None:
        self.configuration = configuration
        #: Whether the cluster can be reached, as far as this process knows.
        self.outage = outage_of(configuration.bootstrap)
        self.outage.add(self)
        self._log = LibrdkafkaLog(self.outage)
        # Whether the version of a broker was looked at.
        self._judged = False
        self._lock = threading.Lock()
        self._pid: int | None = None
        self._closed = False
        #: False: no broker has ever answered, so closing has nothing to wait for.
        self.reached = True
        #: A topic that a broker has told of, for `introduce`. Empty: there is none yet.
        self.known_topic = ""
        # The handles that were made and not closed yet. Empty: this process may still fork.
        self._open: list[Consumer | Producer | AdminClient] = []
        _ALL.add(self)

    @property
    def address(self) -> str:
        """The cluster's address, for error texts."""
        return self.configuration.bootstrap

    @property
    def foreign(self) -> bool:
        """Whether this process was forked from the one that made the handles, so that it must not use them."""
        return self._pid is not None and self._pid != os.getpid()

    def check(self) -> None:
        """Raises `FailedPrecondition` after `close`, or in a child forked after the first use."""
        if self.foreign:
            raise FailedPrecondition(
                "this PubSub was used before fork(), and its connections don't exist in the child process; "
                "create PubSub in the child (gunicorn: post_fork; Celery: worker_process_init)"
            )
        if self._closed:
            raise FailedPrecondition("this PubSub is closed; create a new one")

    def check_version(self, client: AdminClient) -> None:
        """Raises `FailedPrecondition` if the broker that has answered an admin client is older than Kafka 4.0."""
        if self._judged:
            return
        client.poll(0)  # its log comes with its events
        if self._log.too_old:
            raise FailedPrecondition(
                f"the broker at {self.address} is older than Kafka 4.0: this package works with 4.0 to 4.4; update the "
                "cluster"
            )
        self._judged = self._log.too_old is not None

    def consumer(
        self,
        defaults: Mapping[str, ConfigValue],
        rules: Mapping[str, ConfigValue],
        on_error: OnError | None = None,
    ) -> Consumer:
        """Makes a consumer."""
        return self._make(Consumer, defaults, rules, on_error)

    def producer(
        self,
        defaults: Mapping[str, ConfigValue],
        rules: Mapping[str, ConfigValue],
        on_error: OnError | None = None,
    ) -> Producer:
        """Makes a producer."""
        return self._make(Producer, defaults, rules, on_error)

    def introduce(self, producer: Producer, seconds: float) -> bool:
        """Has a new producer get its id soon (rule 6); returns whether brokers answered within `seconds`."""
        end = time.monotonic() + seconds
        try:
            # The first answer comes from a bootstrap address. It names the brokers, and one of them gives the second.
            for _ in range(2 if self.known_topic else 0):
                producer.list_topics(self.known_topic, timeout=max(end - time.monotonic(), 0.001))
        except KafkaException:
            return False
        return True

    def init_transactions(self, producer: Producer, seconds: float) -> None:
        """Introduces a new producer, and fences all others of its transactional id; raises librdkafka's errors."""
        end = time.monotonic() + seconds
        self.introduce(producer, min(seconds, _INTRODUCTION_S))
        producer.init_transactions(max(end - time.monotonic(), _INIT_S))

    def admin(self, on_error: OnError | None = None) -> AdminClient:
        """Makes an admin client."""
        rules = {"client.id": "kafka_pubsub-admin", "debug": self.configuration.debug("feature")}
        return self._make(LockedAdminClient, _ADMIN_DEFAULTS, rules, on_error)

    def _make(
        self,
        kind: type[_Handle],
        defaults: Mapping[str, ConfigValue],
        rules: Mapping[str, ConfigValue],
        on_error: OnError | None,
    ) -> _Handle:
        self.check()
        settings = self.configuration.merged({**COMMON_DEFAULTS, **defaults}, {**_COMMON_RULES, **rules})
        if self.configuration.tokens is not None:
            self.configuration.tokens.first(str(settings.get("sasl.oauthbearer.config", "")))
        self._pid = os.getpid()
        # The stub of AdminClient has no callbacks among its settings.
        given = cast("dict[str, ConfigValue]", {**settings, "error_cb": partial(self._hear, on_error)})
        try:
            # Not under the lock: it reads files and calls back, and other threads close their handles meanwhile.
            handle = kind(given, logger=self._log)
        except KafkaException as failure:
            raise translate(failure, "config") from None
        with self._lock:
            self._open.append(handle)
            closed = self._closed
        if closed:
            self._close(handle)
            self.check()
        return handle

    def _hear(self, on_error: OnError | None, error: KafkaError) -> None:
        # Without a callback librdkafka would print to stderr; the error reaches `logging` as a line.
        if error.code() in _NONE_LEFT:
            self.outage.suspect()
        if on_error is not None:
            on_error(error)

    def probe(self) -> Probe:
        """Returns a client that only asks whether a broker answers."""
        return _Probe(self)

    def leave_group(self, consumer: Consumer) -> None:
        """Leaves the group and frees the consumer, however long that takes; the caller has to limit the time."""
        if self.foreign:
            return
        self._forget(consumer)
        consumer.close()

    def close_consumer(self, consumer: Consumer) -> None:
        """Frees a consumer that is in no group."""
        if self.foreign:
            return
        self._forget(consumer)
        _end(consumer.close, "a consumer", self._close_s)

    def abandon(self, consumer: Consumer) -> None:
        """Forgets a consumer whose close may never end, so that no other call touches it."""
        self._forget(consumer)

    def close_producer(self, producer: Producer) -> None:
        """Frees a producer; messages that weren't flushed are lost."""
        if self.foreign:
            return
        self._forget(producer)
        # A producer that failed for good complains while closing; closing is the answer to its error.
        with contextlib.suppress(KafkaException):
            _end(producer.close, "a producer", self._close_s)

    def close_admin(self, client: AdminClient) -> None:
        """Closes an admin client that no thread uses any more.

        (Its destructor may have to wait for the collector: the error of a failed call holds it.)
        """
        if self.foreign:
            return
        self._forget(client)
        _end(partial(client.__exit__, None, None, None), "an admin client", self._close_s)

    def release(self, handle: AdminClient | Producer) -> None:
        """Leaves a handle to its destructor: for clients without a close, and for a producer with a failed transaction.

        (Closing the latter would try to abort what can't be aborted, and warn about that.)
        """
        self._forget(handle)

    def discard(self, producer: Producer) -> None:
        """Forgets a producer whose transaction went wrong, without waiting for its destructor."""
        self._forget(producer)
        threading.Thread(target=_hold, args=(producer,), name="kafka_pubsub-discard", daemon=True).start()

    def close(self) -> None:
        """Closes the handles that their makers left open."""
        if self.foreign:
            return
        with self._lock:
            self._closed = True
            left = list(self._open)
        for handle in left:
            self._close(handle)

    def _close(self, handle: Consumer | Producer | AdminClient) -> None:
        if isinstance(handle, Consumer):
            self.close_consumer(handle)
        elif isinstance(handle, Producer):
            self.close_producer(handle)
        else:
            self.release(handle)

    @property
    def _close_s(self) -> float:
        return _CLOSE_S if self.reached else _UNREACHED_CLOSE_S

    def _forget(self, handle: Consumer | Producer | AdminClient) -> None:
        with self._lock:
            self._open = [known for known in self._open if known is not handle]

    def orphan(self) -> None:
        """Keeps the destructors of inherited handles from ever running; for a forked child."""
        self._lock = threading.Lock()
        for handle in self._open:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(handle))


class _Probe:
    """A `Probe` over an admin client."""

    def __init__(self, handles: ClientFactory) -> None:
        self._handles = handles
        self._trouble = Trouble()
        self._client = handles.admin(self._trouble.note)

    def answers(self) -> bool:
        self._handles.check()
        try:
            # Of one topic, because there may be thousands.
            self._client.list_topics(self._handles.known_topic or ANY_TOPIC, timeout=_ANSWER_S)
        except KafkaException:
            self._client.poll(0)
            return False
        return True

    def problem(self) -> PubSubError:
        return unreachable("reach a broker", self._handles.address, self._trouble.last)

    def close(self) -> None:
        self._handles.close_admin(self._client)


def _end(close: Callable[[], object], what: str, seconds: float) -> None:
    """Runs `close` on a thread of its own, and leaves it behind if it takes longer than `seconds` (rule 4)."""
    failures: list[KafkaException | RuntimeError] = []

    def run() -> None:
        try:
            close()
        except (KafkaException, RuntimeError) as failure:
            failures.append(failure)

    closing = threading.Thread(target=run, name="kafka_pubsub-closing", daemon=True)
    try:
        closing.start()
    except RuntimeError:  # the interpreter is ending, and starts no more threads
        close()
        return
    closing.join(seconds)
    if closing.is_alive():
        _LOGGER.warning("%s of librdkafka's doesn't close within %g s: it is left behind", what, seconds)
    if failures:
        raise failures[0]


def _hold(producer: Producer) -> None:
    """Holds the last reference until the caller has surely dropped its own, then frees the handle."""
    time.sleep(_LET_GO_S)


# Every living `ClientFactory` of this process, so that a fork can find them. Empty: nothing to do.
_ALL: weakref.WeakSet[ClientFactory] = weakref.WeakSet()


def _after_fork() -> None:
    for handles in list(_ALL):
        handles.orphan()


os.register_at_fork(after_in_child=_after_fork)
