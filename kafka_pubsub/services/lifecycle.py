"""A service, as its user sees it: started, drained, stopped, asked how it is.

Theory. A service is a thread that runs an engine: a member of the service's consumer group. Any number of services of
one kind share the partitions, in one process or many; what one leaves, the others take over.

Rules
1. The thread goes on through whatever passes by itself: it makes a new engine after a pause. What needs a person is in
   `health()`, and in the log.
2. `drain` begins nothing more, waits until the transaction that is under way is stored, and gives the partitions back.
   `stop` does the same, and doesn't wait for longer than it is told to.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from functools import partial
from types import TracebackType
from typing import NamedTuple, Protocol, Self, TypeVar

from kafka_pubsub.counters import PARTS, Reading
from kafka_pubsub.errors import BrokerUnavailable, DeadlineExceeded, FailedPrecondition, PubSubError
from kafka_pubsub.log.clocks import steady_milliseconds
from kafka_pubsub.log.ports import Backend, MovableClock
from kafka_pubsub.log.trouble_log import TroubleLog
from kafka_pubsub.services.engine import Engine
from kafka_pubsub.services.metrics import ServiceMetrics

__all__ = ["Client", "Cluster", "MakeEngine", "Service", "ServiceHealth", "ServiceState"]

_log = logging.getLogger("kafka_pubsub.service")

#: Seconds before a new engine after a failure, doubled up to the second.
_PAUSE, _LONGEST_PAUSE = 0.5, 10.0
#: Seconds between two looks whether the service has come so far.
_LOOK = 0.01


class Cluster(Protocol):
    """What a service needs of the cluster of a `PubSub`."""

    @property
    def backend(self) -> Backend: ...

    @property
    def clock(self) -> MovableClock | None: ...


C_co = TypeVar("C_co", bound=Cluster, covariant=True)


class Client(Protocol[C_co]):
    """A `PubSub`: a service works on its cluster."""

    @property
    def _cluster(self) -> C_co: ...


#: Makes the engine of a service, anew after each failure.
MakeEngine = Callable[[ServiceMetrics, Callable[[], int]], Engine]


class ServiceState(Enum):
    """Where a service is in its life."""

    NEW = "new"
    #: It isn't a member of its group yet, or has failed and tries again.
    STARTING = "starting"
    RUNNING = "running"
    DRAINING = "draining"
    STOPPED = "stopped"


class ServiceHealth(NamedTuple):
    """How a service is. `ok`: it runs, holds its share (which may be nothing), and nothing is wrong."""

    state: ServiceState
    partitions: int
    error: str = ""
    #: Seconds by which the time of a log is ahead of its broker's clock, because a broker's clock was ahead before.
    #: Until these have passed, delayed messages come late by as much. 0 below a second.
    log_ahead: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether nothing needs to be looked at."""
        return self.state is ServiceState.RUNNING and not self.error and not self.log_ahead


class Service:
    """Runs one member of a service's group on a thread of its own.

    Example:
        with Service(make_engine) as service:
            service.wait_until_running(timeout=30)
    """

    def __init__(
        self,
        name: str,
        make_engine: MakeEngine,
        clock: MovableClock | None = None,
    ) -> None:
        self.name = name
        self._make_engine = make_engine
        # The cluster's clock, if a test moves it.
        self._moved = clock
        # The engine that runs, on its thread; None: there is none.
        self._engine: Engine | None = None
        self._metrics = ServiceMetrics()
        self._troubles = TroubleLog(_log)
        self._state = ServiceState.NEW
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> Self:
        """Joins the group in the background; `FailedPrecondition` the second time."""
        if self._thread is not None:
            raise FailedPrecondition(f"{self.name}: started already; make a new one")
        self._state = ServiceState.STARTING
        PARTS.add(self)
        if self._moved is not None:
            self._moved.enter(self)
        self._thread = threading.Thread(target=self._run, name=f"kafka_pubsub-{self.name}", daemon=True)
        self._thread.start()
        return self

    def wait_until_running(self, timeout: float = 30.0) -> Self:
        """Waits until it holds partitions, if there are any; raises what is wrong after `timeout` seconds."""
        end = time.monotonic() + timeout
        while not (
            self._state is ServiceState.RUNNING and (self._metrics.partitions or self._metrics.unneeded)
        ):
            if time.monotonic() > end or self._state is ServiceState.STOPPED:
                why = self._metrics.error or "it was given no partitions; others may hold them all"
                raise FailedPrecondition(f"{self.name}: not running after {timeout:g} s: {why}")
            time.sleep(_LOOK)
        return self

    def drain(self) -> None:
        """Begins nothing more; ends in the background when all that was begun is stored."""
        if self._state in (ServiceState.STARTING, ServiceState.RUNNING):
            self._state = ServiceState.DRAINING
        self._ending.set()

    def stop(self, timeout: float = 30.0) -> bool:
        """Drains and waits for the end; False if that takes longer than `timeout` seconds."""
        self.drain()
        if self._thread is not None:
            self._thread.join(timeout)
            return not self._thread.is_alive()
        self._state = ServiceState.STOPPED
        return True

    def health(self) -> ServiceHealth:
        """How it is now."""
        error = self._metrics.error or self._metrics.waits_for
        return ServiceHealth(self._state, self._metrics.partitions, error, self._metrics.log_ahead)

    def metrics(self) -> Mapping[str, int]:
        """What it has done since it was started; of its work only what is known to be stored counts."""
        metrics = self._metrics
        return {
            "partitions": metrics.partitions,
            "transactions": metrics.transactions,
            "records": metrics.records,
            "aborted": metrics.aborted,
            **metrics.counts,
        }

    def readings(self) -> Iterator[Reading]:
        """Returns what it has counted, for `kafka_pubsub.observe`."""
        metrics = self._metrics
        yield Reading(
            {"unit": self.name},
            {
                "transactions": metrics.transactions,
                "transaction_failures": metrics.aborted,
                "records": metrics.records,
            },
            {"up": float(self._state is ServiceState.RUNNING and not self.health().error)},
        )
        yield Reading({}, {}, dict(metrics.gauges))

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # -- as a sleeper of a movable clock -------------------------------------------------------------------------

    def due_at(self) -> float | None:
        """Returns when its engine has something to do by itself."""
        engine = self._engine
        return None if engine is None or engine.wakeup_at is None else engine.wakeup_at / 1000

    def under_way(self, *, callbacks: bool) -> str:
        """Returns what it does now; empty: nothing."""
        if self._ending.is_set():
            return ""
        engine = self._engine
        if engine is None or not engine.joined:
            return f"the {self.name} starts" + (f": {self._metrics.error}" if self._metrics.error else "")
        return f"the {self.name} reads or stores" if engine.busy or engine.unsure else ""

    def wake(self) -> None:
        """Does nothing: its reader is woken."""

    # -- on its thread -----------------------------------------------------------------------------------------

    def _run(self) -> None:
        failures = 0
        try:
            while not self._ending.is_set():
                before = self._metrics.transactions
                try:
                    self._run_engine()
                    continue
                except PubSubError as error:
                    self._fail(str(error), error)
                except Exception as error:
                    _log.exception("%s failed; starting again", self.name)
                    self._fail(f"{error!r}; please report this")
                failures = 0 if self._metrics.transactions > before else min(failures + 1, 20)
                self._ending.wait(min(_LONGEST_PAUSE, _PAUSE * 2**failures))
        finally:
            self._state = ServiceState.STOPPED
            self._metrics.partitions = 0
            PARTS.end(self)
            if self._moved is not None:
                self._moved.leave(self)

    def _fail(self, error: str, cause: PubSubError | None = None) -> None:
        self._metrics.error, self._metrics.partitions = error, 0
        if self._state is ServiceState.RUNNING:
            self._state = ServiceState.STARTING
        text = "%s: %s; trying again"
        if isinstance(cause, BrokerUnavailable | DeadlineExceeded):
            self._troubles.tell(cause, text, self.name, error)
        else:
            _log.error(text, self.name, error)

    def _run_engine(self) -> None:
        engine = self._engine = self._make_engine(self._metrics, partial(steady_milliseconds, self._moved))
        try:
            engine.start()
            while not (self._ending.is_set() or engine.outdated):
                engine.turn()
                if self._state is ServiceState.STARTING and engine.joined:
                    self._state = ServiceState.RUNNING
            while engine.busy:
                engine.turn(take=False)
            if not self._ending.is_set():
                self._state, self._metrics.partitions = ServiceState.STARTING, 0
        finally:
            self._engine = None
            # Otherwise a topic may have been made again, under its old name.
            engine.close(trim=self._ending.is_set())
