"""A push against a real HTTP server in this process, over the in-memory Kafka: what becomes of each message."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import NamedTuple

import pytest
from aiohttp import web

from kafka_pubsub import DeadLetterPolicy, PubSub, RetryPolicy
from kafka_pubsub.errors import InvalidArgument
from kafka_pubsub.handlers.lifespan import LoopThread
from kafka_pubsub.worker.connector_unit import ConnectorUnit
from kafka_pubsub.worker.connectors import CLASS
from kafka_pubsub.worker.push.signature import sign, signing_key
from kafka_pubsub.worker.settings import ConnectorSettings
from tests.support import until

SECRET = "whsec_" + base64.b64encode(b"s" * 32).decode()


class Request(NamedTuple):
    """What the endpoint got."""

    headers: dict[str, str]
    body: bytes


class Endpoint:
    """An HTTP server whose answers the test decides."""

    def __init__(self) -> None:
        self.got: list[Request] = []
        self.running = self.most = 0
        self.answer: Callable[[Request], Awaitable[web.StreamResponse] | web.StreamResponse] = lambda _: (
            web.Response()
        )
        self._thread = LoopThread()
        self._runner: web.AppRunner
        self.url = asyncio.run_coroutine_threadsafe(self._begin(), self._thread.loop).result(30)

    async def _begin(self) -> str:
        app = web.Application(client_max_size=10**8)
        app.router.add_post("/{tail:.*}", self._handle)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        return f"http://127.0.0.1:{self._runner.addresses[0][1]}/hook"

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            headers = {name.lower(): value for name, value in request.headers.items()}
            got = Request(headers, await request.read())
            self.got.append(got)
            answer = self.answer(got)
            return answer if isinstance(answer, web.StreamResponse) else await answer
        finally:
            self.running -= 1

    def bodies(self) -> list[bytes]:
        return [each.body for each in self.got]

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._runner.cleanup(), self._thread.loop).result(30)
        self._thread.close()


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    made = Endpoint()
    yield made
    made.close()


@pytest.fixture
def ps() -> Iterator[PubSub]:
    with PubSub.in_memory() as pubsub:
        pubsub.create_topic("orders", partitions=2)
        pubsub.create_topic("dead", partitions=1)
        at_once = RetryPolicy(min_backoff=0, max_backoff=0)
        pubsub.create_subscription(
            "hook",
            "orders",
            message_ordering=True,
            retry=at_once,
            dead_letter=DeadLetterPolicy(topic="dead", max_attempts=5),
        )
        yield pubsub


@contextlib.contextmanager
def pushing(ps: PubSub, endpoint: Endpoint, **options: str) -> Iterator[ConnectorUnit]:
    config = {
        CLASS: "push",
        "subscription": "hook",
        "topic": "orders",
        "url": endpoint.url,
        "allow_private": "true",
        **options,
    }
    unit = ConnectorUnit(
        "hook", ConnectorSettings(config=tuple(config.items())), lambda: contextlib.nullcontext(ps)
    )
    try:
        unit.start()
        yield unit
    finally:
        assert unit.stop(30)


def dead_letters(ps: PubSub) -> list[str]:
    return [each.reason for each in ps.subscription("hook").dead_letters()]


def test_a_message_is_posted_as_cloudevents_and_acked(ps: PubSub, endpoint: Endpoint) -> None:
    attributes = {
        "kind": "new",
        "content-type": "application/json",
        "ce_type": "order.paid",
        "Trace Id": "ä b",
        "id": "x",
    }
    message_id = (
        ps.topic("orders").publish(b'{"n":1}', ordering_key="ann lee", attributes=attributes).result(10)
    )
    with pushing(ps, endpoint):
        until(lambda: ps.subscription("hook").state().backlog == 0)
    ((headers, body),) = endpoint.got
    assert body == b'{"n":1}'
    assert headers["content-type"] == "application/json"
    assert headers["ce-specversion"] == "1.0"
    assert headers["ce-id"] == message_id
    assert headers["ce-type"] == "order.paid"
    assert headers["ce-source"] == "/kafka/orders"
    assert headers["ce-partitionkey"] == "ann%20lee"
    assert headers["ce-kind"] == "new"
    assert headers["ce-deliveryattempt"] == "1"
    assert headers["x-attribute-trace%20id"] == "%C3%A4%20b"
    assert headers["x-attribute-id"] == "x"
    assert headers["ce-time"].endswith("Z")


def test_a_message_is_posted_as_google_does(ps: PubSub, endpoint: Endpoint) -> None:
    message_id = (
        ps.topic("orders").publish(b"\xff", ordering_key="ann", attributes={"kind": "new"}).result(10)
    )
    with pushing(ps, endpoint, format="google"):
        until(lambda: endpoint.got)
    posted = json.loads(endpoint.got[0].body)
    assert posted["subscription"] == "hook"
    assert posted["deliveryAttempt"] == 1
    inner = posted["message"]
    assert base64.b64decode(inner["data"]) == b"\xff"
    assert (inner["messageId"], inner["orderingKey"], inner["attributes"]) == (
        message_id,
        "ann",
        {"kind": "new"},
    )
    assert endpoint.got[0].headers["content-type"] == "application/json"


def test_what_the_endpoint_refuses_comes_again_and_holds_up_its_key_only(
    ps: PubSub, endpoint: Endpoint
) -> None:
    def answer(request: Request) -> web.Response:
        first = request.body == b"a0" and endpoint.bodies().count(b"a0") < 3
        return web.Response(status=500 if first else 204)

    endpoint.answer = answer
    for number in range(3):
        for key in ("a", "b"):
            ps.topic("orders").publish(b"%s%d" % (key.encode(), number), ordering_key=key).result(10)
    with pushing(ps, endpoint):
        until(lambda: ps.subscription("hook").state().backlog == 0)
    of = {key: [each for each in endpoint.bodies() if each.startswith(key)] for key in (b"a", b"b")}
    assert of == {b"a": [b"a0", b"a0", b"a0", b"a1", b"a2"], b"b": [b"b0", b"b1", b"b2"]}
    attempts = [each.headers["ce-deliveryattempt"] for each in endpoint.got if each.body == b"a0"]
    assert attempts == ["1", "2", "3"]


def test_a_status_of_dead_letter_on_makes_a_dead_letter_at_once(ps: PubSub, endpoint: Endpoint) -> None:
    endpoint.answer = lambda _: web.Response(status=422)
    ps.topic("orders").publish(b"bad").result(10)
    with pushing(ps, endpoint, dead_letter_on="400, 422"):
        until(lambda: len(dead_letters(ps)) == 1)
    assert len(endpoint.got) == 1
    assert "422" in dead_letters(ps)[0]


def test_a_message_that_is_too_large_is_a_dead_letter_and_is_not_sent(ps: PubSub, endpoint: Endpoint) -> None:
    ps.topic("orders").publish(b"x" * 1001).result(10)
    with pushing(ps, endpoint, max_body="1000"):
        until(lambda: len(dead_letters(ps)) == 1)
    assert endpoint.got == []
    assert "1001 bytes" in dead_letters(ps)[0]


def test_a_busy_endpoint_gets_the_pause_that_it_asks_for(ps: PubSub, endpoint: Endpoint) -> None:
    times: list[float] = []

    def answer(_: Request) -> web.Response:
        times.append(asyncio.get_running_loop().time())
        return web.Response(status=503, headers={"retry-after": "1"}) if len(times) == 1 else web.Response()

    endpoint.answer = answer
    ps.topic("orders").publish(b"x", ordering_key="a").result(10)
    with pushing(ps, endpoint):
        until(lambda: len(times) == 1)
        ps.topic("orders").publish(b"y", ordering_key="b").result(10)
        until(lambda: ps.subscription("hook").state().backlog == 0)
    assert len(times) == 3
    assert min(times[1:]) - times[0] >= 1.0, "no other request comes during the pause either"


def test_requests_are_signed_and_carry_a_token_that_may_change(
    ps: PubSub, endpoint: Endpoint, tmp_path_factory: pytest.TempPathFactory
) -> None:
    token = tmp_path_factory.mktemp("secrets") / "token"
    token.write_text("first\n")
    secret = token.with_name("secret")
    secret.write_text(SECRET)
    with pushing(ps, endpoint, secret=f"${{file:{secret}}}", token_file=str(token)):
        ps.topic("orders").publish(b"one").result(10)
        until(lambda: len(endpoint.got) == 1)
        token.write_text("second, and longer\n")
        ps.topic("orders").publish(b"two").result(10)
        until(lambda: len(endpoint.got) == 2)
    for (headers, body), expected in zip(endpoint.got, ("first", "second, and longer"), strict=True):
        assert headers["authorization"] == f"Bearer {expected}"
        signed = sign(signing_key(SECRET), headers["webhook-id"], int(headers["webhook-timestamp"]), body)
        assert headers["webhook-signature"] == signed["webhook-signature"]
        assert headers["webhook-id"] == headers["ce-id"]


def test_an_endpoint_that_hangs_redirects_or_talks_without_end_fails_the_message_only(
    ps: PubSub, endpoint: Endpoint, caplog: pytest.LogCaptureFixture
) -> None:
    gone_on = threading.Event()

    async def hang() -> web.Response:
        await asyncio.to_thread(gone_on.wait, 30)
        return web.Response()

    def answer(request: Request) -> Awaitable[web.StreamResponse] | web.StreamResponse:
        if endpoint.bodies().count(request.body) > 1:
            return web.Response()
        if request.body == b"hangs":
            return hang()
        if request.body == b"redirects":
            return web.Response(status=307, headers={"location": "http://169.254.169.254/"})
        return web.Response(body=b"x" * 10_000_000)

    endpoint.answer = answer
    for body in (b"hangs", b"redirects", b"talks"):
        ps.topic("orders").publish(body, ordering_key=body.decode()).result(10)
    with pushing(ps, endpoint, timeout="0.5"):
        until(lambda: ps.subscription("hook").state().backlog == 0)
        gone_on.set()
    assert sorted(endpoint.bodies()) == [b"hangs", b"hangs", b"redirects", b"redirects", b"talks"]
    assert "no answer within 0.5 s" in caplog.text
    assert "answered 307 and names http://169.254.169.254/" in caplog.text


def test_few_requests_run_at_first_and_more_while_they_succeed(ps: PubSub, endpoint: Endpoint) -> None:
    async def slow() -> web.Response:
        await asyncio.sleep(0.05)
        return web.Response()

    first: list[int] = []

    def answer(_: Request) -> Awaitable[web.StreamResponse]:
        if len(endpoint.got) == 4:
            first.append(endpoint.most)
        return slow()

    endpoint.answer = answer
    for number in range(200):
        ps.topic("orders").publish(b"%d" % number, ordering_key=str(number)).result(10)
    with pushing(ps, endpoint, concurrency="32"):
        until(lambda: ps.subscription("hook").state().backlog == 0)
    assert first[0] <= 4
    assert 8 <= endpoint.most <= 32


def test_a_private_address_is_refused_unless_it_is_allowed(ps: PubSub, endpoint: Endpoint) -> None:
    private = r"127\.0\.0\.1 is private: set allow_private"
    with pytest.raises(InvalidArgument, match=private), pushing(ps, endpoint, allow_private="false"):
        pass
    named = endpoint.url.replace("127.0.0.1", "localhost")
    ps.topic("orders").publish(b"x").result(10)
    with pushing(ps, endpoint, allow_private="false", url=named):
        until(lambda: len(dead_letters(ps)) == 1)
    assert endpoint.got == []
