"""The tutorial, as a reader goes through it: its files, its commands, and what they say; on a broker of its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_pubsub.local import LocalKafka
from tests.support import until
from tests.unit.house.repository import ROOT

BLOCK = re.compile(r"^```(python|sh)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Reader:
    """A folder, a shell, and the program that runs in the first terminal."""

    def __init__(self, folder: Path, bootstrap: str) -> None:
        self.folder = folder
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        ours = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
        self.environment = {
            **ours,
            "PATH": path,
            "PYTHONPATH": str(ROOT),
            "KAFKA_PUBSUB_BOOTSTRAP": bootstrap,
        }
        blocks: list[tuple[str, str]] = BLOCK.findall((ROOT / "docs" / "tutorial.md").read_text("utf-8"))
        self.programs = [text for language, text in blocks if language == "python"]
        self.commands = [text for language, text in blocks if language == "sh"]
        self.running: subprocess.Popen[bytes] | None = None

    def command(self, part: str) -> str:
        """Returns the only block of commands that contains this."""
        (found,) = [text for text in self.commands if part in text]
        return found

    def type(self, block: str) -> str:
        """Runs a block in a shell; returns what it said."""
        ran = subprocess.run(
            ["bash", "-ec", block],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert ran.returncode == 0, f"{block}\n{ran.stdout}\n{ran.stderr}"
        return ran.stdout

    def start(self) -> None:
        """Starts the program of the first terminal."""
        with (self.folder / "terminal").open("wb") as terminal:
            self.running = subprocess.Popen(
                self.command("kafka-pubsub run").split(),
                cwd=self.folder,
                env=self.environment,
                stdout=terminal,
                stderr=subprocess.STDOUT,
            )
        self.says("Process 1 receives.")

    def stop(self) -> int:
        """Ends it as a supervisor does; returns its exit code."""
        assert self.running is not None
        self.running.send_signal(signal.SIGTERM)
        return self.running.wait(timeout=60)

    def says(self, line: str) -> None:
        """Waits for a line in the first terminal, of the program that runs now."""
        until(lambda: line in self.terminal().splitlines(), f"{line!r} in the first terminal", 60)

    def terminal(self) -> str:
        return (self.folder / "terminal").read_text("utf-8")


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    with LocalKafka() as kafka:
        reader = Reader(tmp_path, kafka.bootstrap)
        yield reader
        if reader.running is not None:
            reader.running.kill()
            reader.running.wait()


def test_the_tutorial_works_from_top_to_bottom(reader: Reader) -> None:
    shop, tests, own_cluster = reader.programs
    (reader.folder / "shop.py").write_text(shop)
    (reader.folder / "test_shop.py").write_text(tests)
    assert "1 passed" in reader.type(reader.command("pytest -q test_shop.py") + "\n")

    reader.start()
    reader.type(reader.command('"ann", "cents": 1200'))
    reader.says("charged ann 1200")

    reader.type(reader.command('"bob", "cents": 500'))
    reader.says("charged ann 300")
    assert "bob" in reader.type(reader.command("subscription keys"))
    reader.says("charged bob 500")
    assert "charged bob 999999" not in reader.terminal()
    assert "the bank doesn't answer" in reader.type("kafka-pubsub deadletter list billing")
    assert "cents" in reader.type(reader.command("many"))

    (reader.folder / "shop.py").write_text(shop.replace("100_000", "10_000_000"))
    assert reader.stop() in (0, 143)
    reader.start()
    reader.type(reader.command("deadletter replay"))
    reader.says("charged bob 999999")
    assert reader.stop() in (0, 143)

    reader.type("kafka-pubsub subscription delete billing --yes")
    reader.type(reader.command("--start earliest"))
    (reader.folder / "shop.py").write_text(shop.partition("dead = ")[0] + own_cluster)
    reader.start()
    reader.says("charged ann 1200")
    assert reader.stop() in (0, 143)
