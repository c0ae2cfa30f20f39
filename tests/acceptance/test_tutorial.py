"""The tutorial, as a reader goes through it: its files, its commands, and what they say; on a broker of its own.

Its first part also runs in an empty environment: in how many lines and minutes a newcomer has a handler and a test.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_pubsub.local import LocalKafka, paths
from tests.first_hour import Hour
from tests.support import until
from tests.unit.house.repository import ROOT

PAGE = (ROOT / "docs" / "tutorial.md").read_text("utf-8")
FIRST_PART = PAGE.partition("## 5.")[0]
#: Lines that a reader types in the first part, and seconds that the part may take.
LINES, SECONDS = 25, 300
#: Opens a client with the settings of the environment; nothing is sent to the cluster, which is no real one.
OPEN = """
from kafka_pubsub.config import load_settings
from kafka_pubsub.log.kafka.configuration import Configuration
settings = load_settings()
Configuration(settings.bootstrap, settings.config)
"""
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
        blocks: list[tuple[str, str]] = BLOCK.findall(PAGE)
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

    def save(self, name: str, text: str) -> None:
        """Saves a file beside the program that runs, and waits until it has started anew."""
        before = self.terminal().count("Process 1 receives.")
        (self.folder / name).write_text(text)
        until(lambda: self.terminal().count("Process 1 receives.") > before, "it receives again", 60)

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
    shop, tests, failing, more_tests, own_cluster = reader.programs
    (reader.folder / "shop.py").write_text(shop)
    (reader.folder / "test_shop.py").write_text(tests)
    assert "1 passed" in reader.type(reader.command("pytest -q test_shop.py"))

    reader.start()
    reader.type(reader.command('"ann", "cents": 1200'))
    reader.says("charged ann 1200")

    shop = shop.partition("def charge")[0] + failing
    reader.save("shop.py", shop)
    reader.save("test_shop.py", tests + "\n\n" + more_tests)
    assert "2 passed" in reader.type(reader.command("pytest -q test_shop.py"))
    reader.type(reader.command('"bob", "cents": 500'))
    reader.says("charged ann 300")
    assert "bob" in reader.type(reader.command("subscription keys"))
    reader.says("charged bob 500")
    assert "charged bob 999999" not in reader.terminal()
    listing, with_misfit = (text for text in reader.commands if "deadletter list" in text)
    assert "the bank doesn't answer" in reader.type(listing)
    assert "cents" in reader.type(with_misfit)

    reader.save("shop.py", shop.replace("100_000", "10_000_000"))
    reader.type(reader.command("deadletter replay"))
    reader.says("charged bob 999999")
    assert reader.stop() in (0, 143)

    reader.type("kafka-pubsub subscription delete billing --yes")
    reader.type(reader.command("export KAFKA_PUBSUB_BOOTSTRAP") + f'{sys.executable} -c "{OPEN}"')
    reader.type(reader.command("--start earliest"))
    (reader.folder / "shop.py").write_text(shop.partition("dead = ")[0] + own_cluster)
    reader.start()
    reader.says("charged ann 1200")
    assert reader.stop() in (0, 143)


@pytest.mark.slow
def test_the_first_part_takes_25_lines_and_five_minutes_in_an_empty_environment(tmp_path: Path) -> None:
    blocks: list[tuple[str, str]] = BLOCK.findall(FIRST_PART)
    typed = [line for _, text in blocks for line in text.splitlines() if line.strip()]
    assert len(typed) <= LINES

    hour = Hour(tmp_path)
    subprocess.run(["git", "clone", "-q", str(ROOT), str(hour.clone)], check=True)
    # The versions of the lock, and the broker's files that are on this machine already.
    lock = (ROOT / "requirements.lock").read_text("utf-8")
    constraints = re.findall(r"^[\w.-]+==[^\\\n]+", lock, re.MULTILINE)
    (tmp_path / "constraints").write_text("\n".join(constraints))
    hour.environment["PIP_CONSTRAINT"] = str(tmp_path / "constraints")
    hour.environment["KAFKA_PUBSUB_CACHE"] = str(paths.cache())
    (_, install), (_, shop), (_, tests), (_, check), (_, run), (_, publish) = blocks
    wait = "timeout 60 bash -c 'until grep -q \"{}\" said; do sleep 0.2; done'\n"
    steps = [
        f"set -e\n{install}",
        f"cat > shop.py <<'END'\n{shop}END\n",
        f"cat > test_shop.py <<'END'\n{tests}END\n",
        check,
        f"{run.strip()} > said 2>&1 & run=$!\ntrap 'kill $run; wait $run || true; kafka-pubsub down' EXIT\n",
        wait.format("Process 1 receives"),
        publish,
        wait.format("charged ann 1200"),
    ]
    began = time.monotonic()
    said = hour.shell("the tutorial's first part", "".join(steps), "1 passed")
    took = time.monotonic() - began
    assert "published" in said.lower() or "orders:" in said
    assert took < SECONDS
    print(f"{len(typed)} lines, {took:.0f} s")
