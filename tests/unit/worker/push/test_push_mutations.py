"""Each rule of a push is needed: a scene passes with the rule and fails without."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator

import pytest
from aiohttp import web

from kafka_pubsub import DeadLetterPolicy, PubSub, RetryPolicy
from kafka_pubsub.worker.push.pace import Pace
from tests.support import until
from tests.unit.worker.push.push_mutations import MUTATIONS, Patch
from tests.unit.worker.push.test_addresses import refusal
from tests.unit.worker.push.test_push import (
    Endpoint,
    answers_are_noted,
    push_beside_a_key_that_fails_at_once,
    pushing,
)
from tests.unit.worker.push.test_signature import test_the_published_example_is_signed_as_published as signed


@contextlib.contextmanager
def pushed(endpoint: Endpoint, **options: str) -> Iterator[PubSub]:
    """Pushes a message until its end: an ack or a dead letter."""
    with PubSub.in_memory() as ps:
        ps.create_topic("orders", partitions=1)
        ps.create_topic("dead", partitions=1)
        ps.create_subscription(
            "hook",
            "orders",
            message_ordering=True,
            retry=RetryPolicy(min_backoff=0, max_backoff=0),
            dead_letter=DeadLetterPolicy(topic="dead", max_attempts=2),
        )
        ps.topic("orders").publish(b"x").result(10)
        with pushing(ps, endpoint, **options):
            until(lambda: ps.subscription("hook").state().backlog == 0)
        yield ps


def name_of_a_private_address(endpoint: Endpoint) -> None:
    with pushed(endpoint, url=endpoint.url.replace("127.0.0.1", "localhost"), allow_private="false"):
        assert endpoint.got == []


def addresses_in_other_forms(endpoint: Endpoint) -> None:
    for address in ("::ffff:169.254.169.254", "2002:a9fe:a9fe::", "64:ff9b::a9fe:a9fe"):
        assert refusal(address, allow_private=True)


def stalling_answer(endpoint: Endpoint) -> None:
    """The message is acked by the status, so there is a single request."""

    class Stalling(web.StreamResponse):
        async def write_eof(self, data: bytes = b"") -> None:
            await self.write(b"some")
            await asyncio.sleep(1.5)

    endpoint.answer = lambda _: Stalling()
    with pushed(endpoint, timeout="0.5"):
        assert endpoint.bodies() == [b"x"]


def key_that_fails(endpoint: Endpoint) -> None:
    """Other keys are as quick as before."""
    pace = Pace(100, 100)
    for _ in range(100):
        pace = pace.succeeded().succeeded().failed()
    assert pace.now == 100


def key_that_fails_at_once(endpoint: Endpoint) -> None:
    """The key takes a single place of twenty, however often its message fails while the others are slow."""
    push_beside_a_key_that_fails_at_once(endpoint, waves=2)


def redirect(endpoint: Endpoint) -> None:
    """That is no success: the message ends as a dead letter."""
    endpoint.answer = lambda _: web.Response(status=301)
    with pushed(endpoint) as ps:
        assert len(list(ps.subscription("hook").dead_letters())) == 1


def busy_endpoint(endpoint: Endpoint) -> None:
    """No request of another key comes before the pause is over."""
    times = list[float]()

    def answer(_: object) -> web.Response:
        times.append(time.monotonic())
        busy = len(times) == 1
        return web.Response(status=503, headers={"retry-after": "2"}) if busy else web.Response()

    endpoint.answer = answer
    with PubSub.in_memory() as ps:
        ps.create_topic("orders", partitions=1)
        ps.create_subscription("hook", "orders", message_ordering=True)
        with pushing(ps, endpoint) as unit:
            ps.topic("orders").publish(b"x", ordering_key="a").result(10)
            until(lambda: times and answers_are_noted(unit))
            ps.topic("orders").publish(b"y", ordering_key="b").result(10)
            until(lambda: len(times) > 1)
    assert times[1] - times[0] >= 1.9


SCENES: dict[str, Callable[[Endpoint], None]] = {
    "name_of_a_private_address": name_of_a_private_address,
    "addresses_in_other_forms": addresses_in_other_forms,
    "stalling_answer": stalling_answer,
    "key_that_fails": key_that_fails,
    "key_that_fails_at_once": key_that_fails_at_once,
    "redirect": redirect,
    "busy_endpoint": busy_endpoint,
    "published_signature": lambda _: signed(),
}


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    made = Endpoint()
    yield made
    made.close()


@pytest.mark.parametrize(
    "scene",
    [
        "name_of_a_private_address",
        "stalling_answer",
        "key_that_fails_at_once",
        "redirect",
        "busy_endpoint",
    ],
)
def test_a_scene_passes_with_all_rules(scene: str, endpoint: Endpoint) -> None:
    SCENES[scene](endpoint)


@pytest.mark.parametrize("mutation", list(MUTATIONS), ids=lambda each: each.__name__)
def test_a_rule_that_is_taken_out_is_noticed(
    mutation: Callable[[Patch], None], monkeypatch: pytest.MonkeyPatch, endpoint: Endpoint
) -> None:
    mutation(monkeypatch)
    with pytest.raises(AssertionError):
        SCENES[MUTATIONS[mutation]](endpoint)
