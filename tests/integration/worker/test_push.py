"""Push on a broker: a worker is killed, endpoints behave badly, the broker is away."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from aiohttp import web

from kafka_pubsub import PubSub, RetryPolicy
from kafka_pubsub.history.history import HistoryFile
from kafka_pubsub.local import LocalKafka
from kafka_pubsub.worker.connector_unit import ConnectorUnit
from kafka_pubsub.worker.connectors import CLASS
from kafka_pubsub.worker.settings import ConnectorSettings
from tests.checker.judgement import judge
from tests.integration.processes.company import BUSY
from tests.secured import Certificates
from tests.support import until
from tests.unit.worker.push.test_push import Endpoint, Request
from tests.worker_processes import WorkerProcess

PATIENCE = 120.0
KEYS, EACH = 30, 20
AT_ONCE = RetryPolicy(min_backoff=0, max_backoff=0)


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalKafka]:
    with LocalKafka() as made:
        yield made


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    made = Endpoint()
    yield made
    made.close()


def first_of_each(bodies: list[bytes]) -> dict[str, list[int]]:
    """By key the numbers in the order in which they came first."""
    seen: dict[str, list[int]] = {}
    for body in bodies:
        key, number = body.decode().split()
        if int(number) not in seen.setdefault(key, []):
            seen[key].append(int(number))
    return seen


def publish(ps: PubSub, topic: str, numbers: range) -> None:
    """Publishes a message of each key for each number; its body says which."""
    futures = [
        ps.topic(topic).publish(b"%d %d" % (key, number), ordering_key=str(key))
        for number in numbers
        for key in range(KEYS)
    ]
    for future in futures:
        future.result(PATIENCE)


async def answer_slowly(_: Request) -> web.Response:
    await asyncio.sleep(0.01)
    return web.Response()


def test_workers_share_a_push_outlive_one_and_follow_its_changes(
    broker: LocalKafka, endpoint: Endpoint, tmp_path: Path
) -> None:
    (tmp_path / "worker.toml").write_text("[services]\nsequencer = true\n")
    histories = tmp_path / "histories"
    histories.mkdir()
    given = {"subscription": "hook", "topic": "orders", "url": endpoint.url, "allow_private": "true"}
    hook = {CLASS: "push", **given}
    endpoint.answer = answer_slowly
    with PubSub(broker.bootstrap, history=histories) as ps, ExitStack() as stack:
        ps.create_topic("orders", partitions=6)
        ps.create_subscription("hook", "orders", message_ordering=True)
        driver = HistoryFile(histories / "driver.jsonl", role="driver", topic="orders")
        driver.subscribe(dict.fromkeys(range(6), 0))
        told = {"KAFKA_PUBSUB_HISTORY": str(histories)}
        workers = [WorkerProcess(broker.bootstrap, tmp_path, stack, told) for _ in range(3)]
        until(lambda: all(each.ask("/connectors") == ["sequencer"] for each in workers), "all", PATIENCE)
        assert workers[0].ask("/connectors", "POST", {"name": "hook", "config": hook})
        until(lambda: all(each.state("hook") == "RUNNING" for each in workers), "RUNNING", PATIENCE)
        dies, asked, other = workers
        until(lambda: asked.tasks("hook") == 3, "three members", PATIENCE)

        publish(ps, "orders", range(EACH // 2))
        until(lambda: len(endpoint.got) > KEYS, "some are pushed", PATIENCE)
        dies.kill()
        driver.crash(dies.process.pid)
        publish(ps, "orders", range(EACH // 2, EACH))
        until(lambda: ps.subscription("hook").state().backlog == 0, "all pushed", PATIENCE)
        assert first_of_each(endpoint.bodies()) == {str(key): list(range(EACH)) for key in range(KEYS)}
        until(lambda: asked.tasks("hook") == 2, "the dead one isn't shown", PATIENCE)

        assert asked.ask("/connectors/hook/pause", "PUT") == {}
        later = WorkerProcess(broker.bootstrap, tmp_path, stack, told)
        until(lambda: later.state("hook") == "PAUSED", "PAUSED", PATIENCE)
        assert asked.ask("/connectors/hook/config", "PUT", {**hook, "url": f"{endpoint.url}/changed"})
        assert asked.ask("/connectors/hook/resume", "PUT") == {}
        until(lambda: asked.tasks("hook") == 3, "three members again", PATIENCE)
        publish(ps, "orders", range(EACH, EACH + 2))
        until(lambda: ps.subscription("hook").state().backlog == 0, "all pushed", PATIENCE)
        changed = [each.body for each in endpoint.got if each.path.endswith("/changed")]
        assert first_of_each(changed) == {str(key): [EACH, EACH + 1] for key in range(KEYS)}
        for worker in (asked, other, later):
            worker.end()
        driver.close()
    judgement = judge(histories, BUSY)
    assert judgement.ok, judgement.text


@contextlib.contextmanager
def pushing(ps: PubSub, subscription: str, topic: str, url: str, **options: str) -> Iterator[ConnectorUnit]:
    given = {"subscription": subscription, "topic": topic, "url": url, "allow_private": "true"}
    config = {CLASS: "push", **given, **options}
    settings = ConnectorSettings(config=tuple(config.items()))
    unit = ConnectorUnit(subscription, settings, lambda: contextlib.nullcontext(ps))
    try:
        unit.start()
        yield unit
    finally:
        assert unit.stop(60)


def test_endpoints_that_behave_badly_get_each_message_in_the_end(
    broker: LocalKafka, endpoint: Endpoint, tmp_path: Path
) -> None:
    """They hang, answer megabytes, redirect, answer after the ack deadline, or have a wrong certificate."""
    gone_on = threading.Event()

    async def hang() -> web.Response:
        await asyncio.to_thread(gone_on.wait, PATIENCE)
        return web.Response()

    async def late() -> web.Response:
        await asyncio.sleep(2.5)
        return web.Response()

    def paths() -> list[str]:
        return sorted(each.path.removeprefix("/hook/") for each in endpoint.got)

    def answer(request: Request) -> object:
        path = request.path.removeprefix("/hook/")
        if paths().count(path) > 1:
            return web.Response()
        return {
            "hangs": hang,
            "talks": lambda: web.Response(body=b"x" * 10_000_000),
            "redirects": lambda: web.Response(status=307, headers={"location": "/hook/followed"}),
            "is-late": late,
        }[path]()

    endpoint.answer = answer  # type: ignore[assignment]  # of each path its own
    certificates = Certificates(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificates.issue("endpoint"))
    secured = Endpoint(context)
    names = ["hangs", "talks", "redirects", "is-late", "untrusted"]
    with PubSub(broker.bootstrap) as ps, ExitStack() as stack:
        stack.callback(secured.close)
        stack.callback(gone_on.set)
        ps.create_topic("posts", partitions=1)
        for name in names:
            ps.create_subscription(name, "posts", message_ordering=True, retry=AT_ONCE, ack_deadline=1)
        ps.topic("posts").publish(b"x", ordering_key="a").result(PATIENCE)
        for name in names[:4]:
            options = {"timeout": "1"} if name == "hangs" else {"timeout": "60"}
            stack.enter_context(pushing(ps, name, "posts", f"{endpoint.url}/{name}", **options))
        with pushing(ps, "untrusted", "posts", secured.url) as unit:
            until(lambda: "the certificate isn't trusted" in unit.health().error, "an error", PATIENCE)
        assert secured.got == []
        stack.enter_context(pushing(ps, "untrusted", "posts", secured.url, ca_file=str(certificates.ca)))
        until(lambda: not any(ps.subscription(name).state().backlog for name in names), "all", PATIENCE)
        gone_on.set()
    assert paths() == ["hangs", "hangs", "is-late", "redirects", "redirects", "talks"]
    assert secured.bodies() == [b"x"]


def test_a_broker_that_is_away_delays_messages_and_loses_none(broker: LocalKafka, endpoint: Endpoint) -> None:
    away = threading.Event()

    async def wait() -> web.Response:
        await asyncio.to_thread(away.wait, PATIENCE)
        return web.Response()

    endpoint.answer = lambda _: web.Response() if len(endpoint.got) < KEYS or away.is_set() else wait()
    with PubSub(broker.bootstrap) as ps:
        ps.create_topic("parcels", partitions=4)
        ps.create_subscription("carrier", "parcels", message_ordering=True)
        with pushing(ps, "carrier", "parcels", endpoint.url, timeout="60") as unit:
            publish(ps, "parcels", range(5))
            until(lambda: endpoint.running > 1, "requests run", PATIENCE)
            assert ps.subscription("carrier").state().members == 1
            broker.stop()
            away.set()
            until(lambda: not endpoint.running, "they end while the broker is away", PATIENCE)
            broker.start()
            publish(ps, "parcels", range(5, 10))
            until(lambda: len(set(endpoint.bodies())) == 10 * KEYS, "all pushed", PATIENCE)
            until(lambda: unit.health().ok, "it works", PATIENCE)
            # A client that has asked before the broker was away gets an answer again.
            until(lambda: ps.subscription("carrier").state().backlog == 0, "nothing left", PATIENCE)
    assert first_of_each(endpoint.bodies()) == {str(key): list(range(10)) for key in range(KEYS)}
