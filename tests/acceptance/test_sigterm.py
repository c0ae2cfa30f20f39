"""The programs of docs/operations.md for SIGTERM: callbacks finish, their acks count, and the exit code is 0."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kafka_pubsub.local.pytest_plugin import RunningKafka
from tests.acceptance.support import PATIENCE, Deliveries, Room, until

PAGE = Path(__file__).parents[2] / "docs" / "operations.md"
MESSAGES = 30

#: The reader's own function, which says in a file which messages begin and which are finished.
WORK = {
    "with sync callbacks": """
import pathlib, time

def work(data):
    pathlib.Path("begun", data.decode()).touch()
    time.sleep(1)
    pathlib.Path("finished", data.decode()).touch()
""",
    "with asyncio": """
import asyncio, pathlib

async def work(data):
    pathlib.Path("begun", data.decode()).touch()
    await asyncio.sleep(1)
    pathlib.Path("finished", data.decode()).touch()
""",
}


def recipe(kind: str) -> str:
    """The program of the page for one kind of callbacks."""
    section = PAGE.read_text(encoding="utf-8").split("\n## SIGTERM\n")[1].split("\n## ")[0]
    blocks = re.findall(r"^```python\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    return str(blocks[list(WORK).index(kind)])


@pytest.mark.slow
@pytest.mark.parametrize("kind", list(WORK))
def test_callbacks_finish_and_their_acks_count(
    kafka: RunningKafka, room: Room, log: Deliveries, tmp_path: Path, kind: str
) -> None:
    topic, subscription = room.pair()
    futures = [topic.publish(b"%d" % number, ordering_key=str(number % 10)) for number in range(MESSAGES)]
    for future in futures:
        future.result(PATIENCE)
    begun, finished = tmp_path / "begun", tmp_path / "finished"
    for folder in (begun, finished):
        folder.mkdir()
    program = WORK[kind] + recipe(kind).replace('"billing"', repr(subscription.name))
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**os.environ, "KAFKA_PUBSUB_BOOTSTRAP": kafka.bootstrap, "PYTHONPATH": str(PAGE.parents[1])},
    )
    try:
        # Some have finished, so the handler is set, and others are in work.
        until(lambda: list(finished.iterdir()) and names(begun) > names(finished))
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
    finally:
        process.kill()
        process.wait()
    assert names(begun) == names(finished)
    with subscription.pull(log.ack):
        until(lambda: len(log.all) >= MESSAGES - len(names(finished)))
    left = {body.decode() for body in log.bodies}
    assert left == {str(number) for number in range(MESSAGES)} - names(finished)


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}
