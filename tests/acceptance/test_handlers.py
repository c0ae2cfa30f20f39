"""docs/handlers.md on a real broker: a handler gets models, its outcomes hold, and a signal ends it in good order."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

from pydantic import BaseModel

from kafka_pubsub import App, DeadLetter, DeadLetterPolicy, Drop, Message, PubSub, Retry
from tests.acceptance.support import PATIENCE, Room, until


class Order(BaseModel):
    user_id: str
    total: int


class Invoice(BaseModel):
    user_id: str
    paid: int


def test_every_outcome_of_a_handler_holds(ps: PubSub, room: Room) -> None:
    name, seen = room.name, list[tuple[int, int]]()
    app = App(pubsub=ps)
    orders = app.topic(f"{name}-orders", Order, key=lambda order: order.user_id)

    @app.subscriber(
        f"{name}-billing",
        topic=f"{name}-orders",
        message_ordering=True,
        dead_letter=DeadLetterPolicy(topic=f"{name}-dead"),
        dead_letter_on=(KeyError,),
        to=f"{name}-invoices",
    )
    def charge(order: Order, message: Message) -> Invoice:
        seen.append((order.total, message.delivery_attempt))
        if order.total == 1 and message.delivery_attempt < 3:
            raise Retry("busy", delay=0.05)
        if order.total == 2:
            raise DeadLetter("not ours")
        if order.total == 3:
            raise Drop("nobody wants it")
        if order.total == 4:
            raise KeyError("unknown")
        if order.total == 5 and message.delivery_attempt < 2:
            raise RuntimeError("down")
        return Invoice(user_id=order.user_id, paid=order.total)

    app.start()
    for total in range(6):
        orders.publish(Order(user_id="ada", total=total)).result(PATIENCE)
    ps.topic(orders.name).publish_json({"user_id": "bob", "total": "many"}).result(PATIENCE)
    sub = ps.subscription(f"{name}-billing")
    until(lambda: len(list(sub.dead_letters())) == 3 and (5, 2) in seen, "three dead letters")
    until(lambda: len(list(ps.topic(f"{name}-invoices").tail(10))) == 3, "three invoices")
    app.stop()

    assert seen == [(0, 1), (1, 1), (1, 2), (1, 3), (2, 1), (3, 1), (4, 1), (5, 1), (5, 2)]
    reasons = {letter.data: letter.reason for letter in sub.dead_letters()}
    assert "total: Input should be a valid integer" in reasons[b'{"user_id":"bob","total":"many"}']
    assert reasons[b'{"user_id":"ada","total":2}'] == "rejected by the callback: not ours"
    paid = [
        (message.json(Invoice).paid, message.ordering_key)
        for message in ps.topic(f"{name}-invoices").tail(10)
    ]
    assert paid == [(0, "ada"), (1, "ada"), (5, "ada")]
    assert sub.state().backlog == 0


def test_coroutines_run_on_the_loop_of_the_program(ps: PubSub, room: Room) -> None:
    name, loops = room.name, list[object]()
    app = App(pubsub=ps)

    @app.subscriber(f"{name}-billing", topic=f"{name}-orders")
    async def charge(order: Order) -> None:
        await asyncio.sleep(0)
        loops.append(asyncio.get_running_loop())

    async def play() -> object:
        async with app.running():
            sent = app.topic(f"{name}-orders", Order).publish(Order(user_id="ada", total=1))
            await asyncio.wrap_future(sent)
            while not loops:
                await asyncio.sleep(0.01)
        return asyncio.get_running_loop()

    used = asyncio.run(asyncio.wait_for(play(), PATIENCE))
    assert loops == [used]


PROGRAM = r"""
    import sys
    import time

    from pydantic import BaseModel

    from kafka_pubsub import App

    app = App(sys.argv[1])


    class Order(BaseModel):
        total: int


    @app.subscriber(sys.argv[2], topic=sys.argv[3], max_workers=4)
    def charge(order: Order) -> None:
        sys.stdout.write(f"begins {order.total}\n")
        sys.stdout.flush()
        time.sleep(0.5)
        sys.stdout.write(f"ends {order.total}\n")
        sys.stdout.flush()


    app.run()
    print("over", flush=True)
"""


def test_sigterm_lets_handlers_end_and_stores_what_they_did(ps: PubSub, room: Room, tmp_path: Path) -> None:
    topic, sub = room.pair(message_ordering=False)
    program = tmp_path / "shop.py"
    program.write_text(textwrap.dedent(PROGRAM))
    address = ps._where
    for total in range(12):
        topic.publish_json({"total": total}).result(PATIENCE)
    command = [sys.executable, str(program), address, sub.name, topic.name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        rest = process.stdout.read()
        process.wait(PATIENCE)
    lines = [first, *rest.splitlines(keepends=True)]
    begun = {line.split()[1] for line in lines if line.startswith("begins")}
    ended = {line.split()[1] for line in lines if line.startswith("ends")}
    assert process.returncode == 0
    assert lines[-1] == "over\n"
    assert begun == ended
    assert sub.state().backlog == 12 - len(ended)
