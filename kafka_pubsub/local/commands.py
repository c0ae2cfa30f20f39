"""`up`, `down` and `status`: one broker of this user that outlives the command that started it.

Theory: `up` leaves a process in a session of its own and a record of it (`state`). `down` ends that process
and deletes the record. A record whose process is gone means a crash: `status` says so, the next `up` cleans
it away.
Rules: a command holds the lock while it changes the record, so two `up` at once give one broker and one clear error.
`up` writes the record before it waits for the broker: if `up` itself is killed, `down` still finds what it
started.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

from kafka_pubsub.errors import InvalidArgument
from kafka_pubsub.local import paths, processes, state
from kafka_pubsub.local.broker_process import READY_TIMEOUT_S, launch, prepare, wait_until_ready
from kafka_pubsub.local.diagnosis import explain_death, last_lines
from kafka_pubsub.local.errors import ALREADY_EXISTS, LocalKafkaError, PortInUse
from kafka_pubsub.local.file_lock import exclusive
from kafka_pubsub.local.installation import locate
from kafka_pubsub.local.node_config import NodeFiles, NodeSettings
from kafka_pubsub.local.service_process import end_services, start_services
from kafka_pubsub.local.settings import DEFAULT_HEAP_MB, STOP_TIMEOUT_S, checked_heap, checked_port
from kafka_pubsub.local.tcp_ports import broker_answers, free_ports, is_free

__all__ = ["DEFAULT_PORT", "Status", "down", "find_running", "status", "up"]

# Kafka's customary port, so that every tool's default finds the broker.
DEFAULT_PORT: Final = 9092

State = Literal["running", "starting", "unresponsive", "crashed", "stopped"]


@dataclass(frozen=True, slots=True)
class Status:
    """The state of the broker that `up` started.

    `running`: the broker answers. `starting` and `unresponsive`: its process lives and doesn't answer (yet).
    `crashed`: it ended without `down`; `problem` says why as far as its log tells, and `log_tail` holds the log's
    last lines. `stopped`: there is no broker, and the other fields are empty. `services`: whether the services that
    `up` started beside it still run; None: it started none.
    """

    state: State
    bootstrap: str | None = None
    pid: int | None = None
    data_dir: Path | None = None
    ephemeral: bool = False
    started_at: float | None = None
    problem: str | None = None
    log_tail: tuple[str, ...] = ()
    services: bool | None = None


def up(
    *,
    port: int | None = None,
    data_dir: str | os.PathLike[str] | None = None,
    ephemeral: bool = False,
    heap_mb: int = DEFAULT_HEAP_MB,
    exist_ok: bool = False,
    services: bool = True,
    quick: bool = False,
    java: str | os.PathLike[str] | None = None,
    kafka_home: str | os.PathLike[str] | None = None,
    ready_timeout: float = READY_TIMEOUT_S,
    on_progress: Callable[[str], None] = lambda text: None,
) -> Status:
    """Starts this user's broker as a process that outlives this one, and returns when it answers.

    It listens on `port` (default 9092). Its data is kept in `data_dir` (default: below the user's state directory),
    or, with `ephemeral`, in a temporary directory that `down` deletes. If the broker already runs, that is an error
    (code 6), unless `exist_ok`. With `services`, the default, the delay router and the sequencer run beside it, until
    `down`; with `exist_ok` they are started beside a broker that runs without them.

    Messages may have 1 MiB, and the first member of a group waits 3 s for others, as with a stock broker. With `quick`
    (default False) they may have 10 MiB, and it waits for none, as with `LocalKafka`: for tests.
    """
    if ephemeral and data_dir is not None:
        raise InvalidArgument("data_dir= and ephemeral= exclude each other: give one.")
    checked_heap(heap_mb)
    wanted_port = DEFAULT_PORT if port is None else checked_port(port)
    with _alone():
        running = _clear_the_way(on_progress)
        if running is not None:
            if exist_ok and running.state == "running":
                return _with_living_services(running, on_progress) if services else running
            raise _already_up(running)
        installation = locate(java=java, kafka_home=kafka_home, on_progress=on_progress)
        if not is_free(wanted_port):
            raise PortInUse(wanted_port)
        root = _root(data_dir, ephemeral)
        settings = NodeSettings(wanted_port, free_ports(1)[0], quick=quick)
        try:
            with prepare(installation, NodeFiles(root), settings) as lock:
                on_progress(f"Starting Kafka on {settings.bootstrap}")
                pid = launch(installation, NodeFiles(root), heap_mb, lock, detached=True).pid
        except BaseException:
            if ephemeral:
                shutil.rmtree(root, ignore_errors=True)
            raise
        # A broker that died at once has no identity any more; an empty one never fits, so it counts as dead.
        known = processes.identity(pid) or ""
        record = state.BrokerRecord(pid, known, settings.port, str(root), ephemeral, time.time())
        ready = _await(record, settings, ready_timeout)
        return _with_services(record) if services else ready


def down(
    *, timeout: float = STOP_TIMEOUT_S, on_progress: Callable[[str], None] = lambda text: None
) -> Status:
    """Stops the broker that `up` started, and returns its last status (state `stopped` if there was none)."""
    with _alone():
        before = status()
        record = state.load(paths.state_file())
        if record is None:
            return before
        if record.alive:
            on_progress(f"Stopping Kafka on {record.bootstrap}")
            end_services(record.services_pid, record.services_identity)
            processes.end(record.pid, record.identity, timeout)
        _clean_up(record)
        return before


def status() -> Status:
    """Returns whether the broker that `up` started runs, and the cause if it crashed."""
    record = state.load(paths.state_file())
    if record is None:
        return Status("stopped")
    if record.alive:
        return _described(record, _state_of_living(record))
    # The first line: the log's last lines go into a field of their own.
    problem = explain_death(record.files, record.port).message.splitlines()[0]
    return _described(record, "crashed", problem, tuple(last_lines(record.files)))


def find_running() -> str | None:
    """Returns the address of the broker that `up` started if its process lives; cheap, and never raises."""
    record = state.load(paths.state_file())
    return record.bootstrap if record is not None and record.alive else None


@contextmanager
def _alone() -> Iterator[None]:
    """Keeps other `up` and `down` calls of this user waiting meanwhile."""
    with ExitStack() as held:
        try:
            held.enter_context(exclusive(paths.home() / "up.lock"))
        except OSError as error:
            raise LocalKafkaError(
                f"Can't keep the record of the running broker in {paths.home()} ({error.strerror or error}). "
                "Make it writable, or set KAFKA_PUBSUB_HOME to a directory that is."
            ) from error
        yield


def _clear_the_way(on_progress: Callable[[str], None]) -> Status | None:
    """Returns the status of a broker that already runs, if there is one; deletes the record of a crashed one."""
    found = status()
    record = state.load(paths.state_file())
    if record is None:
        return None
    if found.state != "crashed":
        return found
    on_progress(f"The last broker ended without `down`; its data is in {record.data_dir}")
    _clean_up(record)
    return None


def _clean_up(record: state.BrokerRecord) -> None:
    end_services(record.services_pid, record.services_identity)
    if record.ephemeral:
        shutil.rmtree(record.data_dir, ignore_errors=True)
    state.forget(paths.state_file())


def _already_up(running: Status) -> LocalKafkaError:
    where = f"{running.bootstrap} (process {running.pid}, data in {running.data_dir})"
    if running.state == "running":
        text = f"Kafka is already running at {where}. Use it as it is, or `kafka-pubsub down` it first."
    elif running.state == "starting":
        text = f"Kafka is just starting at {where}. Wait for it: `kafka-pubsub status` says when it answers."
    else:
        text = f"Kafka runs at {where} but doesn't answer. `kafka-pubsub down` ends it; then `up` again."
    return LocalKafkaError(text, code=ALREADY_EXISTS)


def _root(data_dir: str | os.PathLike[str] | None, ephemeral: bool) -> Path:
    if ephemeral:
        return Path(tempfile.mkdtemp(prefix="kafka-pubsub-"))
    return paths.default_data_dir() if data_dir is None else Path(data_dir).expanduser().absolute()


def _await(record: state.BrokerRecord, settings: NodeSettings, timeout_s: float) -> Status:
    try:
        state.save(paths.state_file(), record)
        wait_until_ready(record.files, settings, lambda: not record.alive, timeout_s)
    except BaseException:
        processes.end(record.pid, record.identity, timeout_s=0)
        _clean_up(record)
        raise
    return _described(record, "running")


def _with_living_services(running: Status, on_progress: Callable[[str], None]) -> Status:
    """Starts the services of a running broker if they don't run."""
    record = state.load(paths.state_file())
    if record is None or record.services_alive:
        return running
    on_progress(f"Starting the delay router and the sequencer beside Kafka on {record.bootstrap}")
    return _with_services(record, again=True)


def _with_services(record: state.BrokerRecord, *, again: bool = False) -> Status:
    with contextlib.suppress(OSError):  # without them the broker works, and `status` says that they don't run
        pid, known = start_services(record.bootstrap, Path(record.data_dir), keep_log=again)
        record = replace(record, services_pid=pid, services_identity=known)
        state.save(paths.state_file(), record)
    return _described(record, "running")


def _state_of_living(record: state.BrokerRecord) -> State:
    if broker_answers(record.port, record.files.cluster_id):
        return "running"
    return "starting" if time.time() - record.started_at < READY_TIMEOUT_S else "unresponsive"


def _described(
    record: state.BrokerRecord, now: State, problem: str | None = None, log_tail: tuple[str, ...] = ()
) -> Status:
    return Status(
        now,
        record.bootstrap,
        record.pid,
        Path(record.data_dir),
        record.ephemeral,
        record.started_at,
        problem,
        log_tail,
        record.services_alive,
    )
