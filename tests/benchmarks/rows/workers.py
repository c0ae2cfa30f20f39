"""Workers as processes: the time until a killed worker's work goes on, or all follow a change; an idle worker."""

from __future__ import annotations

import asyncio
import os
import tempfile
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from aiohttp import web

from kafka_pubsub import PubSub
from kafka_pubsub.handlers.lifespan import LoopThread
from kafka_pubsub.history.history import HistoryFile
from tests.benchmarks.row import Measured, say
from tests.checker.judgement import judge
from tests.worker_processes import WorkerProcess

__all__ = ["change", "idle", "kill"]

PATIENCE_S = 120.0
KEYS, PARTITIONS, WORKERS = 60, 12, 3
#: Seconds between two messages; before the kill, and afterwards.
BREAK_S, BEFORE_S, AFTER_S = 0.005, 5.0, 20.0
#: Seconds in which an idle worker settles, and in which the measurement runs.
SETTLE_S, MEASURE_S = 15.0, 30.0
FILE = "[services]\nsequencer = true\n"


class _Got(NamedTuple):
    at: float
    path: str
    key: str


class _Endpoint:
    """Notes when each key was posted to which path."""

    def __init__(self, stack: ExitStack) -> None:
        self.got: list[_Got] = []
        self._thread = LoopThread()
        stack.callback(self._thread.close)
        self._runner: web.ServerRunner
        self._wait(self._begin())
        stack.callback(lambda: self._wait(self._runner.cleanup()))
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def _begin(self) -> None:
        self._runner = web.ServerRunner(web.Server(self._answer, access_log=None))
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()

    def _wait(self, work: Coroutine[object, object, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._thread.loop).result(PATIENCE_S)

    async def _answer(self, request: web.BaseRequest) -> web.Response:
        await request.read()
        self.got.append(_Got(time.monotonic(), request.path, request.headers["ce-partitionkey"]))
        return web.Response()

    def keys(self, path: str, since: float) -> set[str]:
        """Returns the keys that were posted to a path since then."""
        return {each.key for each in self.got.copy() if each.path == path and each.at >= since}


class _Team:
    """Three workers with one push connector, which was made at the first worker."""

    def __init__(self, bootstrap: str, topic: str, stack: ExitStack) -> None:
        self.folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kafka-pubsub-bench-")))
        (self.folder / "worker.toml").write_text(FILE)
        histories = self.folder / "histories"
        histories.mkdir()
        self.histories = histories
        self.endpoint = _Endpoint(stack)
        self.topic = topic
        self.ps = stack.enter_context(PubSub(bootstrap, history=histories))
        self.ps.create_topic(topic, partitions=PARTITIONS)
        self.ps.create_subscription(topic, topic, message_ordering=True)
        self.config = {
            "connector.class": "push",
            "subscription": topic,
            "topic": topic,
            "url": f"{self.endpoint.url}/first",
            "allow_private": "true",
        }
        told = {"KAFKA_PUBSUB_HISTORY": str(histories)}
        self.workers = [WorkerProcess(bootstrap, self.folder, stack, told) for _ in range(WORKERS)]
        _until(lambda: all(each.state("sequencer") == "RUNNING" for each in self.workers), "all answer")
        began = time.monotonic()
        self.workers[0].ask("/connectors", "POST", {"name": topic, "config": self.config})
        _until(lambda: all(each.state(topic) == "RUNNING" for each in self.workers), "all RUNNING")
        #: Seconds until the connector ran on all three.
        self.made_s = time.monotonic() - began
        _until(lambda: self.workers[1].tasks(topic) == WORKERS, "all are members")

    @contextmanager
    def publishing(self) -> Iterator[None]:
        """Publishes all the time, the keys in turn."""
        ended = threading.Event()

        def publish() -> None:
            number = 0
            while not ended.wait(BREAK_S):
                self.ps.topic(self.topic).publish(b"x" * 100, ordering_key=f"key-{number % KEYS}")
                number += 1

        thread = threading.Thread(target=publish)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def settle(self) -> None:
        """Waits until all that was published is pushed."""
        self.ps.topic(self.topic).flush()
        _until(lambda: self.ps.subscription(self.topic).state().backlog == 0, "all is pushed")


def kill(bootstrap: str, topic: str) -> Measured:
    """SIGKILL of one of three workers: the longest time without a message of a key, and how its history is judged."""
    with ExitStack() as stack:
        team = _Team(bootstrap, topic, stack)
        driver = HistoryFile(team.histories / "driver.jsonl", role="driver", topic=topic)
        driver.subscribe(dict.fromkeys(range(PARTITIONS), 0))
        with team.publishing():
            time.sleep(BEFORE_S)
            say("one is killed")
            killed = time.monotonic()
            team.workers[0].kill()
            driver.crash(team.workers[0].process.pid)
            time.sleep(AFTER_S)
        team.settle()
        for worker in team.workers[1:]:
            worker.end()
        team.ps.close()
        driver.close()
        judgement = judge(team.histories)
        gaps = [
            _longest_gap(team.endpoint.got, key, killed) for key in {each.key for each in team.endpoint.got}
        ]
    return {
        "gap_s": max(gaps),
        "violations": 0.0 if judgement.ok else 1.0,
        "note": f"{len(team.endpoint.got)} requests" if judgement.ok else judgement.text[:500],
    }


def _longest_gap(got: list[_Got], key: str, killed: float) -> float:
    times = [each.at for each in got if each.key == key]
    return max(
        (after - before for before, after in pairwise(times) if after > killed),
        default=0.0,
    )


def change(bootstrap: str, topic: str) -> Measured:
    """Making a connector, and changing its URL while messages come: until all three workers do so."""
    with ExitStack() as stack:
        team = _Team(bootstrap, topic, stack)
        with team.publishing():
            _until(lambda: len(team.endpoint.keys("/first", 0.0)) == KEYS, "all keys are pushed")
            began = time.monotonic()
            changed = {**team.config, "url": f"{team.endpoint.url}/second"}
            team.workers[0].ask(f"/connectors/{topic}/config", "PUT", changed)
            _until(lambda: len(team.endpoint.keys("/second", began)) == KEYS, "all keys are at the new URL")
            time.sleep(BEFORE_S)
        team.settle()
        got = team.endpoint.got
    last = max((each.at for each in got if each.path == "/first"), default=began)
    first = {
        key: min(each.at for each in got if each[1:] == ("/second", key))
        for key in {each.key for each in got}
    }
    return {
        "made_s": team.made_s,
        "left_s": max(0.0, last - began),
        "changed_s": max(first.values()) - began,
    }


def idle(bootstrap: str, topic: str) -> Measured:
    """A worker with five push connectors and both services, to which nothing comes."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kafka-pubsub-bench-")))
        ps = stack.enter_context(PubSub(bootstrap))
        names = [f"{topic}-{number}" for number in range(5)]
        for name in names:
            ps.create_topic(name, partitions=4)
            ps.create_subscription(name, name, message_ordering=True)
        table = '[connectors.{0}]\nclass = "push"\nsubscription = "{0}"\ntopic = "{0}"\nurl = "https://example.com/"\n'
        services = "[services]\nrouter = true\nsequencer = true\n"
        (folder / "worker.toml").write_text("".join(map(table.format, names)) + services)
        worker = WorkerProcess(bootstrap, folder, stack)
        units = [*names, "router", "sequencer"]
        _until(lambda: all(worker.state(name) == "RUNNING" for name in units), "all RUNNING")
        time.sleep(SETTLE_S)
        before, began = _cpu_s(worker.process.pid), time.monotonic()
        time.sleep(MEASURE_S)
        share = (_cpu_s(worker.process.pid) - before) / (time.monotonic() - began)
        return {"memory_mb": _memory_mb(worker.process.pid), "cpu": 100 * share}


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _memory_mb(pid: int) -> float:
    (line,) = (
        each for each in Path(f"/proc/{pid}/status").read_text().splitlines() if each.startswith("VmRSS")
    )
    return int(line.split()[1]) / 1024


def _until(condition: Callable[[], bool], what: str) -> None:
    say(f"until {what}")
    end = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > end:
            raise RuntimeError(f"not within {PATIENCE_S:.0f} s: {what}")
        time.sleep(0.02)
