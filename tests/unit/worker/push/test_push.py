"""A push against a real HTTP server in this process, over the in-memory Kafka: the end of each message."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import ssl
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
from aiohttp import web

from kafka_pubsub import DeadLetterPolicy, PubSub, RetryPolicy
from kafka_pubsub.errors import InvalidArgument
from kafka_pubsub.handlers.lifespan import LoopThread
from kafka_pubsub.worker.connector_unit import ConnectorUnit
from kafka_pubsub.worker.connectors import CLASS
from kafka_pubsub.worker.push.pace import Pace
from kafka_pubsub.worker.push.signature import sign, signing_key
from kafka_pubsub.worker.settings import ConnectorSettings
from tests.secured import Certificates
from tests.support import until

SECRET = "whsec_" + base64.b64encode(b"s" * 32).decode()


class Request(NamedTuple):
    """A request at the endpoint."""

    headers: dict[str, str]
    body: bytes
    path: str = ""


class Endpoint:
    """An HTTP server whose answers the test decides."""

    def __init__(self, secured: ssl.SSLContext | None = None) -> None:
        self.got: list[Request] = []
        self.running = self.most = 0
        self.answer: Callable[[Request], Awaitable[web.StreamResponse] | web.StreamResponse] = lambda _: (
            web.Response()
        )
        self._secured = secured
        self._thread = LoopThread()
        self._runner: web.AppRunner
        self.url = asyncio.run_coroutine_threadsafe(self._begin(), self._thread.loop).result(30)

    async def _begin(self) -> str:
        app = web.Application(client_max_size=10**8)
        app.router.add_post("/{tail:.*}", self._handle)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=self._secured)
        await site.start()
        return f"http{'s' if self._secured else ''}://127.0.0.1:{self._runner.addresses[0][1]}/hook"

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            headers = {name.lower(): value for name, value in request.headers.items()}
            got = Request(headers, await request.read(), request.path)
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


def answers_are_noted(unit: ConnectorUnit) -> bool:
    """Returns whether no request of a push runs."""
    return not unit._connector._sender._turns._running  # type: ignore[attr-defined]  # a Push


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
    ((headers, body, _),) = endpoint.got
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


class Waves:
    """Answers of an endpoint that refuses a key at once, again and again, and takes long for the others.

    A wave of slow requests is answered when all of them run and the key has failed `FAILURES` times meanwhile.
    """

    SIZE, FAILURES = 18, 20

    def __init__(self) -> None:
        self.done = self._failures = 0
        self._held: list[asyncio.Future[None]] = []
        self._opened = False

    async def answer(self, request: Request) -> web.Response:
        if request.body == b"bad" and not self._opened:
            self._failures += 1
            self._end_wave()
            return web.Response(status=500)
        if not self._opened:
            self._held.append(asyncio.get_running_loop().create_future())
            waits = self._held[-1]
            self._end_wave()
            await waits
        return web.Response()

    def _end_wave(self) -> None:
        if len(self._held) == self.SIZE and self._failures >= self.FAILURES:
            self.done += 1
            self._failures = 0
            self._answer_all()

    def _answer_all(self) -> None:
        held, self._held = self._held, []
        for each in held:
            each.set_result(None)

    def open(self) -> None:
        """Answers everything at once from now on, the failing key too."""
        self._opened = True
        self._answer_all()


def push_beside_a_key_that_fails_at_once(endpoint: Endpoint, waves: int) -> None:
    """Fails if the other keys get less than nine places of ten."""
    made, places = Waves(), 20
    endpoint.answer = made.answer
    with PubSub.in_memory() as ps:
        ps.create_topic("orders", partitions=2)
        at_once = RetryPolicy(min_backoff=0, max_backoff=0)
        ps.create_subscription("hook", "orders", message_ordering=True, retry=at_once)
        with pushing(ps, endpoint, concurrency=str(places), timeout="60") as unit:
            turns = unit._connector._sender._turns  # type: ignore[attr-defined]  # a Push
            turns.pace = Pace(places, places)

            def is_over(wave: int) -> bool:
                return made.done > wave or turns.pace.now < Waves.SIZE

            try:
                ps.topic("orders").publish(b"bad", ordering_key="bad").result(10)
                for wave in range(waves):
                    for number in range(Waves.SIZE):
                        ps.topic("orders").publish(b"%d" % wave, ordering_key=str(number)).result(10)
                    until(partial(is_over, wave))
                    assert made.done > wave, f"{turns.pace.now} at a time are too few"
            finally:
                endpoint._thread.loop.call_soon_threadsafe(made.open)
            until(lambda: ps.subscription("hook").state().backlog == 0)
    assert all(endpoint.bodies().count(b"%d" % wave) == Waves.SIZE for wave in range(waves))


def test_a_key_that_fails_at_once_takes_one_place_of_all(endpoint: Endpoint) -> None:
    push_beside_a_key_that_fails_at_once(endpoint, waves=10)


def test_a_status_of_dead_letter_on_makes_a_dead_letter_at_once(ps: PubSub, endpoint: Endpoint) -> None:
    endpoint.answer = lambda _: web.Response(status=422)
    for _ in range(6):
        ps.topic("orders").publish(b"bad").result(10)
    with pushing(ps, endpoint, dead_letter_on="400, 422") as unit:
        until(lambda: len(dead_letters(ps)) == 6)
        assert unit.health().error == "", "the messages are wrong, and the endpoint works"
    assert len(endpoint.got) == 6
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
    with pushing(ps, endpoint) as unit:
        until(lambda: times and answers_are_noted(unit))
        ps.topic("orders").publish(b"y", ordering_key="b").result(10)
        until(lambda: ps.subscription("hook").state().backlog == 0)
    assert len(times) == 3
    assert min(times[1:]) - times[0] >= 1.0, "no other request comes during the pause either"


def test_a_request_that_waits_for_its_turn_waits_for_the_pause_too(ps: PubSub, endpoint: Endpoint) -> None:
    gone_on = threading.Event()

    async def busy() -> web.Response:
        await asyncio.to_thread(gone_on.wait, 30)
        return web.Response(status=503, headers={"retry-after": "3600"})

    endpoint.answer = lambda _: busy()
    with pushing(ps, endpoint, concurrency="3") as unit:
        turns = unit._connector._sender._turns  # type: ignore[attr-defined]  # a Push
        turns.pace = Pace(3, 1)
        for key in "abc":
            ps.topic("orders").publish(b"x", ordering_key=key).result(10)
        until(lambda: len(endpoint.got) == 1)
        gone_on.set()
        until(lambda: turns.is_paused)
    assert len(endpoint.got) == 1


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
    for (headers, body, _), expected in zip(endpoint.got, ("first", "second, and longer"), strict=True):
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


#: Ways to write 127.0.0.1 that a check of the URL's text doesn't see through; the last is a name.
WRITTEN = (
    "127\u30020\u30020\u30021",
    "\uff11\uff12\uff17.0.0.1",
    "2130706433",
    "0x7f.1",
    "127.1",
    "localhost",
)


def test_a_private_address_in_the_url_is_refused_at_the_start(ps: PubSub, endpoint: Endpoint) -> None:
    private = r"127\.0\.0\.1 is private: set allow_private"
    with pytest.raises(InvalidArgument, match=private), pushing(ps, endpoint, allow_private="false"):
        pass


@pytest.mark.parametrize("host", WRITTEN)
def test_a_private_address_isnt_reached_however_it_is_written(
    ps: PubSub, endpoint: Endpoint, host: str
) -> None:
    ps.topic("orders").publish(b"x").result(10)
    url = endpoint.url.replace("127.0.0.1", host)
    with pushing(ps, endpoint, allow_private="false", url=url):
        until(lambda: len(dead_letters(ps)) == 1)
    assert endpoint.got == []


def test_an_address_that_is_refused_says_what_to_do(
    ps: PubSub, endpoint: Endpoint, caplog: pytest.LogCaptureFixture
) -> None:
    ps.topic("orders").publish(b"x").result(10)
    url = endpoint.url.replace("127.0.0.1", "localhost")
    with pushing(ps, endpoint, allow_private="false", url=url):
        until(lambda: len(dead_letters(ps)) == 1)
    assert "to localhost: no connection: the address 127.0.0.1 is private: set allow_private" in caplog.text


def test_a_network_of_allow_may_be_private(ps: PubSub, endpoint: Endpoint) -> None:
    ps.topic("orders").publish(b"x").result(10)
    with pushing(ps, endpoint, allow_private="false", allow="127.0.0.0/8, ::1"):
        until(lambda: ps.subscription("hook").state().backlog == 0)
    assert endpoint.bodies() == [b"x"]


def test_the_status_decides_whatever_becomes_of_the_rest_of_the_answer(
    ps: PubSub, endpoint: Endpoint
) -> None:
    gone_on = threading.Event()

    class Stalling(web.StreamResponse):
        async def write_eof(self, data: bytes = b"") -> None:
            await self.write(b"some")
            await asyncio.to_thread(gone_on.wait, 30)

    endpoint.answer = lambda _: Stalling()
    ps.topic("orders").publish(b"x").result(10)
    with pushing(ps, endpoint, timeout="0.5"):
        until(lambda: ps.subscription("hook").state().backlog == 0)
        gone_on.set()
    assert endpoint.bodies() == [b"x"]


def test_an_endpoint_that_answers_after_the_ack_deadline_gets_the_message_once(endpoint: Endpoint) -> None:
    async def slow() -> web.Response:
        await asyncio.sleep(2.5)
        return web.Response()

    endpoint.answer = lambda _: slow()
    with PubSub.in_memory() as ps:
        ps.create_topic("orders", partitions=1)
        ps.create_subscription("hook", "orders", message_ordering=True, ack_deadline=1)
        ps.topic("orders").publish(b"x").result(10)
        with pushing(ps, endpoint):
            until(lambda: ps.subscription("hook").state().backlog == 0)
    assert endpoint.bodies() == [b"x"]


def test_a_certificate_that_isnt_trusted_says_how_to_mend_it(
    ps: PubSub, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    certificates = Certificates(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificates.issue("endpoint"))
    secured = Endpoint(context)
    try:
        ps.topic("orders").publish(b"x").result(10)
        with pushing(ps, secured):
            until(lambda: len(dead_letters(ps)) == 1)
        assert secured.got == []
        assert "the certificate isn't trusted" in caplog.text
        assert "set ca_file" in caplog.text
        ps.topic("orders").publish(b"y").result(10)
        with pushing(ps, secured, ca_file=str(certificates.ca)):
            until(lambda: ps.subscription("hook").state().backlog == 0)
        assert secured.bodies() == [b"y"]
    finally:
        secured.close()


def test_a_token_file_that_is_gone_is_named(
    ps: PubSub, endpoint: Endpoint, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ps.topic("orders").publish(b"x").result(10)
    with pushing(ps, endpoint, token_file=str(tmp_path / "gone")):
        until(lambda: len(dead_letters(ps)) == 1)
    assert f"token_file {tmp_path / 'gone'} can't be read: No such file" in caplog.text
    assert endpoint.got == []


def test_the_units_health_names_an_endpoint_that_takes_nothing(ps: PubSub, endpoint: Endpoint) -> None:
    refuses = True
    endpoint.answer = lambda _: web.Response(status=500 if refuses else 200)
    with pushing(ps, endpoint) as unit:
        until(lambda: unit.health().ok)
        for number in range(2):
            ps.topic("orders").publish(b"x", ordering_key=str(number)).result(10)
        until(lambda: unit.health().error == "127.0.0.1: the endpoint answered 500")
        assert unit.health().ok, "the unit does all that it can"
        refuses = False
        ps.topic("orders").publish(b"y").result(10)
        until(lambda: not unit.health().error)


def test_a_message_that_waits_for_a_pause_holds_up_no_stop(
    ps: PubSub, endpoint: Endpoint, caplog: pytest.LogCaptureFixture
) -> None:
    endpoint.answer = lambda _: web.Response(status=503, headers={"retry-after": "3600"})
    ps.topic("orders").publish(b"x", ordering_key="a").result(10)
    with pushing(ps, endpoint) as unit:
        until(lambda: "the endpoint answered 503" in caplog.text)
        for number in range(5):
            ps.topic("orders").publish(b"y", ordering_key=str(number)).result(10)
        until(lambda: ps.subscription("hook").state().backlog == 6)
        began = time.monotonic()
        unit.drain()
        assert unit.stop(60)
        assert time.monotonic() - began < 40, "the pause was waited for"
    assert endpoint.bodies() == [b"x"]
    endpoint.answer = lambda _: web.Response()
    with pushing(ps, endpoint):
        until(lambda: endpoint.bodies().count(b"y") == 5)
    assert endpoint.bodies().count(b"x") == 1, "the endpoint asked for an hour"


def test_two_connectors_share_the_keys_and_one_that_ends_leaves_nothing(
    ps: PubSub, endpoint: Endpoint
) -> None:
    def publish(numbers: range) -> None:
        for number in numbers:
            for key in "abcdef":
                ps.topic("orders").publish(f"{key}{number}".encode(), ordering_key=key).result(10)

    async def slow() -> web.Response:
        await asyncio.sleep(0.005)
        return web.Response()

    endpoint.answer = lambda _: slow()
    with pushing(ps, endpoint):
        with pushing(ps, endpoint):
            publish(range(20))
            until(lambda: len(endpoint.got) > 30)
        publish(range(20, 30))
        until(lambda: ps.subscription("hook").state().backlog == 0)
    for key in b"abcdef":
        firsts = list(dict.fromkeys(each for each in endpoint.bodies() if each[0] == key))
        assert firsts == [b"%c%d" % (key, number) for number in range(30)]
