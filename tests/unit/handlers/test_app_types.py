"""A program with handlers passes `mypy --strict` and strict pyright, and wrong ones are found by both."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]

SAMPLE = """
    import asyncio
    from collections.abc import AsyncIterator, Callable
    from datetime import timedelta

    from pydantic import BaseModel

    from kafka_pubsub import App, DeadLetter, DeadLetterPolicy, Drop, Message, PubSub, Retry, RetryPolicy


    class Order(BaseModel):
        user_id: str
        total: int


    class Invoice(BaseModel):
        paid: int


    app = App(pubsub=PubSub.in_memory())
    orders = app.topic("orders", Order, key=lambda order: order.user_id)
    anything = app.topic("anything")


    @app.lifespan
    async def resources(app: App) -> AsyncIterator[None]:
        yield


    @app.middleware
    def timed(call: Callable[[], object], message: Message) -> object:
        return call()


    @app.subscriber(
        "billing",
        topic="orders",
        start=timedelta(hours=1),
        message_ordering=True,
        retry=RetryPolicy(min_backoff=1),
        dead_letter=DeadLetterPolicy(topic="orders-dead"),
        dead_letter_on=(ValueError,),
        max_workers=16,
        to="invoices",
        ensure="create",
    )
    def charge(order: Order, message: Message) -> Invoice:
        if order.total < 0:
            raise DeadLetter("negative")
        if order.total == 0:
            raise Drop()
        if message.delivery_attempt == 1:
            raise Retry(delay=timedelta(seconds=30))
        return Invoice(paid=order.total)


    @app.subscriber("mail", topic="invoices", batch=100)
    async def mail(invoices: list[Invoice]) -> None:
        await asyncio.sleep(0)


    def test_shop() -> None:
        with app.test() as t:
            message_id: str = t.publish("orders", Order(user_id="ada", total=12), ordering_key="ada")
            t.wait_idle(timeout=5)
            paid: list[int] = [each.json(Invoice).paid for each in t.published("invoices")]
            assert message_id and paid
            assert [each.delivery_attempt for each in t.calls("billing")] == [1, 2]
            assert [each.reason for each in t.dead("billing")] == []


    async def serve() -> None:
        async with app.running():
            await asyncio.wrap_future(orders.publish(Order(user_id="ada", total=1)))
            anything.publish({"a": 1})


    invoice: Invoice = charge(Order(user_id="ada", total=1), next(iter(app.pubsub.topic("orders").tail(1))))
"""

WRONG = """
    orders.publish({"user_id": "ada"})
    orders.publish(Order(user_id="ada", total=1), ordering_keys="ada")
    app.subscriber("a", topic="orders", ensure="maybe")
    app.subscriber("b", topic="orders", start=30)
    app.subscriber("c", topic="orders", retries=3)
    charge("text")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the program, and with one that has a mistake in each of its last lines."""
    sample, wrong = textwrap.dedent(SAMPLE), textwrap.dedent(WRONG)
    (tmp_path / "right.py").write_text(sample)
    (tmp_path / "wrong.py").write_text(sample + wrong)
    return tmp_path


def mistakes() -> set[int]:
    """The lines with mistakes."""
    begin = len(textwrap.dedent(SAMPLE).splitlines())
    return {begin + number for number in range(2, 8)}


def run(folder: Path, *command: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=folder,
        env={**os.environ, "MYPYPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout


def test_a_strict_program_passes_mypy_and_its_mistakes_are_found(folder: Path) -> None:
    pytest.importorskip("mypy")
    options = ["--strict", "--no-error-summary", "--follow-imports", "silent"]
    said = run(folder, "mypy", *options, "--cache-dir", str(folder / "cache"), "right.py", "wrong.py")
    errors = [line for line in said.splitlines() if "error:" in line]
    assert [line for line in errors if line.startswith("right.py")] == []
    assert {int(line.split(":")[1]) for line in errors} == mistakes(), said


def test_a_strict_program_passes_pyright_and_its_mistakes_are_found(folder: Path) -> None:
    pytest.importorskip("basedpyright")
    settings = {"typeCheckingMode": "strict", "extraPaths": [str(ROOT)]}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    said = run(folder, "basedpyright", "--outputjson", "--pythonpath", sys.executable)
    found = json.loads(said)["generalDiagnostics"]
    assert [each for each in found if each["file"].endswith("right.py")] == []
    assert {each["range"]["start"]["line"] + 1 for each in found} == mistakes(), said
