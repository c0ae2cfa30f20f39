"""A program with handlers passes `mypy --strict`, and wrong ones are found by it."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

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


def test_a_strict_program_passes_and_its_mistakes_are_found(tmp_path: Path) -> None:
    sample, wrong = textwrap.dedent(SAMPLE), textwrap.dedent(WRONG)
    (tmp_path / "right.py").write_text(sample)
    (tmp_path / "wrong.py").write_text(sample + wrong)
    begin = len(sample.splitlines())
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "right.py", "wrong.py"]
    environment = {**os.environ, "MYPYPATH": str(ROOT)}
    done = subprocess.run(
        [*command, "--cache-dir", str(tmp_path / "cache"), "--follow-imports", "silent"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    errors = [line for line in done.stdout.splitlines() if "error:" in line]
    assert [line for line in errors if line.startswith("right.py")] == []
    lines = {int(line.split(":")[1]) for line in errors}
    assert lines == {begin + number for number in range(2, 8)}, done.stdout
