"""docs/handlers.md, "In a web application": FastAPI under uvicorn, which SIGTERM ends in good order."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

from kafka_pubsub import PubSub
from kafka_pubsub.local.pytest_plugin import RunningKafka
from tests.acceptance.support import PATIENCE, Room, until

ROOT = Path(__file__).parents[2]


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
        return port


def ask(port: int, path: str, body: object = None) -> object:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}", data, {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        return json.loads(answer.read())


def answers(port: int) -> bool:
    try:
        ask(port, "/charged/none")
    except (urllib.error.URLError, OSError):
        return False
    return True


def test_a_request_publishes_a_handler_of_the_same_process_gets_it_and_sigterm_ends_both(
    kafka: RunningKafka, ps: PubSub, room: Room, tmp_path: Path
) -> None:
    blocks = re.findall(
        r"^```python\n(.*?)^```$", (ROOT / "docs" / "handlers.md").read_text(), re.MULTILINE | re.DOTALL
    )
    (text,) = [block for block in blocks if block.startswith("# web.py")]
    text = text.replace('"orders"', f'"{room.name}-orders"').replace('"billing"', f'"{room.name}-billing"')
    (tmp_path / "web.py").write_text(text)
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "uvicorn", "web:web", "--port", str(port), "--log-level", "warning"],
        cwd=tmp_path,
        env={**os.environ, "KAFKA_PUBSUB_BOOTSTRAP": kafka.bootstrap, "PYTHONPATH": str(ROOT)},
    )
    try:
        until(lambda: answers(port))
        sent = ask(port, "/orders", {"user_id": "ada", "total": 12})
        assert isinstance(sent, dict)
        assert str(sent["id"]).startswith(f"{room.name}-orders:")
        until(lambda: ask(port, "/charged/ada") == 12)
        process.send_signal(signal.SIGTERM)
        # uvicorn ends with the signal after it has closed everything.
        assert process.wait(PATIENCE) in (0, -signal.SIGTERM)
    finally:
        process.kill()
        process.wait()
    state = ps.subscription(f"{room.name}-billing").state()
    assert (state.backlog, state.members) == (0, 0)
