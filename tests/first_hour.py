"""The first hour of a newcomer, from the documentation alone: `python -m tests.first_hour`, or `just first-hour`.

It clones the repository into a new folder, and there runs the commands and programs of README.md and the pages, in an
empty environment: installing, the demo, a broker that stays, the program of README.md, the pages on looking, delays,
lanes, multicast and testing. It prints the seconds of each step, and ends with 1 at the first step that fails.

Rule: a command or a program is read out of its page. Here it gets only the lines that a reader would fill in.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: Seconds that one step may take.
LIMIT = 300
BLOCK = re.compile(r"^```(?:python|console|sh)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Hour:
    """A clone, its environment, and the steps so far."""

    def __init__(self, folder: Path) -> None:
        self.clone = folder / "kafka_pubsub"
        self.home = folder / "home"
        self.home.mkdir()
        self.seconds: list[tuple[float, str]] = []
        # The variables of a new shell, and those that tell a package client where to look on this machine.
        kept = {
            name: value
            for name, value in os.environ.items()
            if name.startswith(("PIP_", "SSL_", "REQUESTS_"))
        }
        path = os.pathsep.join(
            each for each in os.environ["PATH"].split(os.pathsep) if not (Path(each) / "activate").exists()
        )
        self.environment = {"PATH": path, "HOME": str(self.home), "LANG": "C.UTF-8", **kept}

    def block(self, page: str, part: str) -> str:
        """Returns the only block of a page that contains this."""
        found: list[str] = [
            text for text in BLOCK.findall((self.clone / page).read_text("utf-8")) if part in text
        ]
        if len(found) != 1:
            raise SystemExit(f"{page} has {len(found)} blocks with {part!r}, not one")
        return found[0]

    def shell(self, name: str, command: str, expected: str = "") -> str:
        """Runs a command as in a terminal; fails unless it ends with 0 and shows the expected text."""
        began = time.monotonic()
        ran = subprocess.run(
            ["bash", "-c", command],
            cwd=self.clone,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LIMIT,
            check=False,
        )
        self.seconds.append((time.monotonic() - began, name))
        print(f"{self.seconds[-1][0]:8.1f}  {name}", flush=True)
        if ran.returncode != 0 or expected not in ran.stdout:
            print(f"$ {command}\n{ran.stdout}\nexit code {ran.returncode}, expected {expected!r}", flush=True)
            raise SystemExit(1)
        return ran.stdout

    def activated(self, name: str, command: str, expected: str = "") -> str:
        """The same in the activated environment."""
        return self.shell(name, f". .venv/bin/activate && {command}", expected)

    def python(self, name: str, program: str, expected: str = "") -> str:
        """Saves a program and runs it."""
        path = self.home / "program.py"
        path.write_text(program, "utf-8")
        return self.activated(name, f"python {path}", expected)

    def console(self, page: str, command: str, expected: str = "") -> str:
        """Runs a single line of a `console` block, without its comment."""
        lines = [line for line in self.block(page, command).splitlines() if line.startswith(f"$ {command}")]
        return self.activated(command, lines[0].removeprefix("$ ").partition("  #")[0], expected)


def install(hour: Hour) -> None:
    subprocess.run(["git", "clone", "-q", str(ROOT), str(hour.clone)], check=True)
    hour.shell("README: install, and the demo", hour.block("README.md", "kafka-pubsub demo"))


def run_the_program(hour: Hour) -> None:
    hour.activated("README: kafka-pubsub up", "kafka-pubsub up")
    (hour.home / "shop.py").write_text(hour.block("README.md", "@app.subscriber"), "utf-8")
    (hour.home / "test_shop.py").write_text(hour.block("README.md", "app.test()"), "utf-8")
    hour.activated("README: the test", f"pip install -q pytest && pytest -q {hour.home}", "1 passed")
    run = hour.block("README.md", "kafka-pubsub run").strip()
    body = '{"user": "ann", "cents": 500}'
    wait = "timeout 60 bash -c 'until grep -q \"{}\" said; do sleep 0.2; done'"
    steps = [
        f"cd {hour.home}",
        f"({run} > said 2>&1 & echo $! > pid)",
        wait.format("receives"),
        f"kafka-pubsub publish orders '{body}' --key ann",
        wait.format("charging"),
        "kill $(cat pid)",
        "cat said",
    ]
    hour.activated("README: the handler", " && ".join(steps), "charging ann 500")


def look(hour: Hour) -> None:
    hour.activated(
        "publish a message that nothing receives",
        "kafka-pubsub publish orders '{\"total\": 7}' --key user-123",
    )
    hour.console("docs/redelivery.md", "kafka-pubsub peek billing", "user-123")
    hour.activated("kafka-pubsub topic tail orders", "kafka-pubsub topic tail orders", "user-123")
    hour.console("docs/redelivery.md", "kafka-pubsub pull billing --ack", "user-123")
    hour.activated("kafka-pubsub subscription list", "kafka-pubsub subscription list", "billing")


def delay(hour: Hour) -> None:
    hour.python("delays: the program", hour.block("docs/delays.md", "deliver_at=datetime("))
    hour.console("docs/delays.md", "kafka-pubsub publish orders 'remind me' --delay")
    hour.console("docs/delays.md", "kafka-pubsub delay list --topic orders --messages", "8.5 min")


def use_lanes(hour: Hour) -> None:
    hour.console("docs/lanes.md", "kafka-pubsub topic create jobs")
    hour.console("docs/lanes.md", "kafka-pubsub publish jobs")
    hour.console("docs/lanes.md", "kafka-pubsub topic describe jobs")


def multicast(hour: Hour) -> None:
    program = hour.block("docs/multicast.md", "causal=True)\n\nfuture = ps.publish_multi(")
    hour.python(
        "multicast: the program",
        f"from kafka_pubsub import PubSub\n\nps = PubSub()\n{program}print(sent.message_id)\nps.close()\n",
        "-1.0",
    )


def test_their_own(hour: Hour) -> None:
    program = hour.block("docs/testing.md", "test_an_order_is_charged") + hour.block(
        "docs/testing.md", "test_a_reminder_comes_after_an_hour"
    )
    (hour.home / "test_orders.py").write_text(program, "utf-8")
    hour.activated("testing: pytest", f"pip install -q pytest && pytest -q {hour.home}", "2 passed")


def stop(hour: Hour) -> None:
    hour.activated("kafka-pubsub down", "kafka-pubsub down")


STEPS: Sequence[Callable[[Hour], None]] = (
    install,
    run_the_program,
    look,
    delay,
    use_lanes,
    multicast,
    test_their_own,
    stop,
)


def main() -> None:
    """Goes through the hour."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    with tempfile.TemporaryDirectory() as folder:
        hour = Hour(Path(folder))
        try:
            for step in STEPS:
                step(hour)
        finally:
            if (hour.clone / ".venv").exists():
                subprocess.run(
                    [".venv/bin/kafka-pubsub", "down"],
                    cwd=hour.clone,
                    env=hour.environment,
                    capture_output=True,
                    check=False,
                )
    print(f"{sum(seconds for seconds, _ in hour.seconds):8.1f}  all of it")


if __name__ == "__main__":
    main()
