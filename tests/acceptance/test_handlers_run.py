"""`kafka-pubsub run` on a real broker: SIGTERM drains, a killed process is followed by another, nothing is lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from kafka_pubsub import PubSub
from kafka_pubsub.local.pytest_plugin import RunningKafka
from tests.acceptance.support import PATIENCE, Room, until
from tests.acceptance.test_handlers_web import free_port

ROOT = Path(__file__).parents[2]

SHOP = """
    import os
    import time
    from pathlib import Path

    from pydantic import BaseModel

    from kafka_pubsub import App

    app = App()


    class Order(BaseModel):
        number: int


    @app.subscriber("NAME-billing", topic="NAME-orders", start="earliest", message_ordering=True)
    def charge(order: Order) -> None:
        Path("begun", str(order.number)).touch()
        time.sleep(0.05)
        Path("done", f"{order.number}-{time.time_ns()}").touch()
"""


def run(folder: Path, kafka: RunningKafka, *options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "kafka_pubsub", "run", *options, "--bootstrap", kafka.bootstrap],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
        text=True,
    )


def health(port: int) -> dict[str, object]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz") as answer:
            found: dict[str, object] = json.loads(answer.read())
    except urllib.error.HTTPError as error:
        found = json.loads(error.read())
    except OSError:
        found = {"ok": False, "workers": []}
    return found


def pids(port: int) -> list[int]:
    workers = health(port)["workers"]
    assert isinstance(workers, list)
    return [row["pid"] for row in workers if row["ok"]]


@pytest.mark.slow
def test_processes_that_are_killed_and_stopped_lose_nothing(
    kafka: RunningKafka, ps: PubSub, room: Room, tmp_path: Path
) -> None:
    (tmp_path / "shop.py").write_text(textwrap.dedent(SHOP).replace("NAME", room.name))
    begun, done = tmp_path / "begun", tmp_path / "done"
    for folder in (begun, done):
        folder.mkdir()
    topic = ps.create_topic(f"{room.name}-orders", partitions=4)
    numbers = {str(number) for number in range(300)}
    for number in numbers:
        topic.publish_json({"number": int(number)}, ordering_key=str(int(number) % 20))
    topic.flush(PATIENCE)

    port = free_port()
    process = run(tmp_path, kafka, "shop:app", "--workers", "2", "--http", str(port))
    try:
        until(lambda: health(port)["ok"])
        until(lambda: any(done.iterdir()))
        killed = pids(port)[0]
        os.kill(killed, signal.SIGKILL)
        until(lambda: len(pids(port)) == 2 and killed not in pids(port))
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=PATIENCE)
        assert process.returncode == 128 + signal.SIGTERM
        assert f"started, pid {killed}" in said
        assert "ended with signal 9" in said
    finally:
        process.kill()
        process.wait()

    process = run(tmp_path, kafka, "shop")
    try:
        until(lambda: {path.name.partition("-")[0] for path in done.iterdir()} == numbers)
        until(lambda: ps.subscription(f"{room.name}-billing").state().backlog == 0)
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE)
    # Only what the killed process had in work may have come twice.
    assert len(list(done.iterdir())) <= len(numbers) + 64


@pytest.mark.parametrize(
    ("module", "target", "text"),
    [
        ("", "nowhere:app", "there is no module 'nowhere'"),
        ("x = 1", "shop:app", "'app' in module 'shop' isn't there"),
        ("from kafka_pubsub import App\napp = App()", "shop:app", "this app has no handlers"),
        (
            "from kafka_pubsub import App\napp = App()\n@app.subscriber('a', topic='t')\ndef f(x): ...\n",
            "shop",
            "parameter 'x' has no annotation",
        ),
        (
            "from kafka_pubsub import App\napp = App()\n"
            "@app.subscriber('a', topic='t', batch=5)\ndef f(x: dict): ...\n",
            "shop",
            "annotate it with list[dict]",
        ),
    ],
)
def test_what_is_declared_wrongly_ends_the_command_with_2_and_is_named(
    kafka: RunningKafka, tmp_path: Path, module: str, target: str, text: str
) -> None:
    (tmp_path / "shop.py").write_text(module)
    process = run(tmp_path, kafka, target)
    _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 2
    assert text in said
    assert "Traceback" not in said
