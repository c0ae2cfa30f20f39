"""A worker on an in-memory Kafka where much is stuck, for tests of the page.

`python -m tests.integration.worker.stuck` serves the page until Ctrl-C; with a folder it draws the docs' pictures.
"""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path

from kafka_pubsub import DeadLetterPolicy, Message, PubSub, RetryPolicy
from kafka_pubsub.log.memory import MemoryBackend
from kafka_pubsub.worker.control import Control
from kafka_pubsub.worker.follower import Follower
from kafka_pubsub.worker.rest.access import Access
from kafka_pubsub.worker.rest.app import make_app
from kafka_pubsub.worker.rest.server import RestServer
from kafka_pubsub.worker.settings import parse
from kafka_pubsub.worker.units import make_unit
from kafka_pubsub.worker.worker import Worker
from tests.browser import open_browser
from tests.multicasts import stage
from tests.support import until

__all__ = ["HOSTILE", "PATIENCE", "READ", "WRITE", "Stuck", "serve_stuck"]

PATIENCE = 60.0
WRITE, READ = "write-token", "read-token"
#: A text that would be code in a page that inserts texts as HTML.
HOSTILE = "<img src=x onerror=window.pwned=1>"
FILE = """
[connectors.crm]
class = "push"
subscription = "crm"
topic = "hooks"
url = "https://endpoint.invalid/"
token = "${env:KAFKA_PUBSUB_TEST_MISSING}"

[connectors.hook]
class = "push"
subscription = "hook"
topic = "hooks"
url = "https://endpoint.invalid/"

[connectors.old-hook]
class = "push"
subscription = "old-hook"
topic = "hooks"
url = "https://endpoint.invalid/"
"""
_QUICK = RetryPolicy(min_backoff=0.001, max_backoff=0.002)


class Stuck:
    """What runs: `ps`: the client, `url`: the page's address, `handled`: the bodies of `billing`."""

    def __init__(self, ps: PubSub) -> None:
        self.ps, self.url = ps, ""
        self.handled: list[bytes] = []
        #: Whether the callback of `billing` succeeds now.
        self.mended = False

    def charge(self, message: Message) -> None:
        """Handles a message of `billing`."""
        if message.data == b"later" and not self.mended:
            message.nack(delay=3600)
        elif message.data == b"bad" and not self.mended:
            raise ValueError("the card has expired")
        else:
            self.handled.append(message.data)
            message.ack()


def send(message: Message) -> None:
    """Fails each message of `mail`."""
    raise ConnectionError(f"no answer from {message.attributes.get('to', 'the server')}")


@contextlib.contextmanager
def serve_stuck(port: int = 0) -> Iterator[Stuck]:
    """Runs the worker inside the block."""
    backend = MemoryBackend()
    with ExitStack() as opened:
        ps = opened.enter_context(PubSub.in_memory(backend, services=False))
        world = Stuck(ps)
        _publish(world, backend)
        opened.enter_context(ps.subscription("billing").pull(world.charge))
        with ps.subscription("mail").pull(send):
            until(lambda: len(list(ps.subscription("mail").dead_letters())) == 4, "dead letters", PATIENCE)
        billing = ps.subscription("billing")
        until(lambda: {each.state for each in billing.keys()} == {"parked", "waiting"}, "keys", PATIENCE)  # noqa: SIM118
        worker = Worker(
            lambda name, settings: make_unit(name, settings, lambda: contextlib.nullcontext(ps)), grace=10
        )
        opened.callback(worker.stop)
        follower = Follower(worker, backend.catalog.connectors)
        opened.callback(follower.stop)
        follower.start(parse(FILE, "worker.toml"))
        control = Control(follower, worker, lambda: backend, "127.0.0.1:8080")
        control.set_state("old-hook", "paused")
        access = Access(token=WRITE, read_token=READ)
        app = make_app(control, version("kafka-pubsub-orderly"), lambda: "c", access, pubsub=ps)
        until(lambda: control.status("hook")["connector"]["state"] == "RUNNING", "a unit", PATIENCE)
        until(lambda: "trace" in control.status("crm")["connector"], "a failure", PATIENCE)
        server = opened.enter_context(RestServer(app, "127.0.0.1", port))
        world.url = f"http://127.0.0.1:{server.port}/ui"
        yield world


def _publish(world: Stuck, backend: MemoryBackend) -> None:
    ps = world.ps
    for name in ("orders", "mails", "hooks", "dead"):
        ps.create_topic(name, partitions=2)
    parking = DeadLetterPolicy(topic="dead", max_attempts=5, on_exhausted="park")
    dying = DeadLetterPolicy(topic="dead", max_attempts=5)
    for name, topic, policy in (("billing", "orders", parking), ("mail", "mails", dying)):
        ps.create_subscription(name, topic, message_ordering=True, retry=_QUICK, dead_letter=policy)
    for key, data in (("user-17", b"bad"), ("user-17", b"next"), ("user-4", b"later"), ("user-5", b"good")):
        ps.topic("orders").publish(data, ordering_key=key).result(PATIENCE)
    for number in range(3):
        to = {"to": f"mx{number}.example"}
        body = b'{"to": "ann", "text": "your order is on its way"}'
        ps.topic("mails").publish(body, ordering_key=f"user-{number}", attributes=to).result(PATIENCE)
    hostile = {"to": HOSTILE, "note": HOSTILE}
    ps.topic("mails").publish(HOSTILE.encode(), ordering_key=HOSTILE, attributes=hostile).result(PATIENCE)
    ps.topic("orders").publish(b"1", ordering_key="user-6", delay=1800).result(PATIENCE)
    for name in ("stock", "ledger"):
        ps.create_topic(name, causal=True)
    stage(backend, "stock", "ledger", message="9f1c22ab34d05e67-18")


def draw(folder: Path) -> None:
    """Writes the pictures of the docs."""
    with serve_stuck() as world, open_browser() as browser:
        for name, width, height, scheme in (("page", 960, 700, "light"), ("page-phone", 360, 560, "dark")):
            context = browser.new_context(
                viewport={"width": width, "height": height},
                color_scheme="dark" if scheme == "dark" else "light",
            )
            page = context.new_page()
            page.goto(world.url)
            page.fill("#token", WRITE)
            page.click("#login button")
            page.wait_for_selector("#keys tbody tr")
            page.screenshot(path=folder / f"worker-{name}.png")
            context.close()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        draw(Path(sys.argv[1]))
    else:
        with serve_stuck(8080) as served:
            print(f"{served.url} with the token {WRITE}, or {READ} for reading")
            signal.pause()
