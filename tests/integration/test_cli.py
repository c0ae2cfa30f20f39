"""The command line as a person or a script runs it: real processes against a real broker."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from typing import IO, Protocol

import pytest

# Seconds. A generous bound for a command on a busy machine; nothing here waits for the bound to pass.
LIMIT = 60


class Broker(Protocol):
    """The session fixture's value."""

    @property
    def bootstrap(self) -> str: ...


class Cli:
    """Runs commands against a single broker, with a topic and a subscription of this test's own."""

    def __init__(self, bootstrap: str) -> None:
        self.environment = {**os.environ, "KAFKA_PUBSUB_BOOTSTRAP": bootstrap}
        self.environment.pop("KAFKA_PUBSUB_DEBUG", None)
        self.name = f"cli-{uuid.uuid4().hex[:12]}"
        self.running: list[subprocess.Popen[bytes]] = []

    def start(
        self, *arguments: str, stdin: int | IO[bytes] | None = subprocess.DEVNULL
    ) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-m", "kafka_pubsub.cli.main", *arguments],
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.environment,
        )
        self.running.append(process)
        return process

    def run(self, *arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        process = self.start(*arguments, stdin=subprocess.PIPE)
        out, err = process.communicate(stdin, timeout=LIMIT)
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)

    def ok(self, *arguments: str, stdin: bytes = b"") -> bytes:
        result = self.run(*arguments, stdin=stdin)
        assert result.returncode == 0, result.stderr.decode()
        return result.stdout

    def pulled(self, *arguments: str) -> list[dict[str, object]]:
        """The messages that are taken, and acked."""
        return self.shown("pull", self.name, "--ack", *arguments)

    def shown(self, *arguments: str) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.ok(*arguments, "--json").splitlines()]


@pytest.fixture
def cli(kafka: Broker) -> Iterator[Cli]:
    made = Cli(kafka.bootstrap)
    yield made
    for process in made.running:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture
def orders(cli: Cli) -> Cli:
    cli.ok("topic", "create", cli.name, "--partitions", "2", "--ordering")
    cli.ok("subscription", "create", cli.name, "--topic", cli.name, "--ordering")
    return cli


def test_topics_and_subscriptions_live_and_die(cli: Cli) -> None:
    name = cli.name
    made = json.loads(cli.ok("topic", "create", name, "--partitions", "2", "--json"))
    assert (made["name"], made["partitions"], made["replication"]) == (name, 2, 1)
    assert name in {each["name"] for each in json.loads(cli.ok("--json", "topic", "list"))}
    cli.ok("subscription", "create", name, "--topic", name, "--ack-deadline", "1m")
    assert json.loads(cli.ok("sub", "describe", name, "--json"))["ack_deadline"] == 60
    assert json.loads(cli.ok("topic", "describe", name, "--json"))["subscriptions"] == [name]
    again = cli.run("topic", "create", name, "--json")
    assert (again.returncode, json.loads(again.stderr)["error"]["code"]) == (1, 6)
    cli.ok("sub", "delete", name, "--yes")
    cli.ok("topic", "delete", name, "--yes")
    gone = cli.run("topic", "describe", name, "--json")
    assert (gone.returncode, json.loads(gone.stderr)["error"]["type"]) == (1, "NotFound")


def test_lines_of_stdin_come_out_in_the_order_of_their_keys(orders: Cli) -> None:
    lines = b"".join(b"k%d:%d\n" % (number % 5, number) for number in range(200))
    published = orders.ok("publish", orders.name, "--key-separator", ":", "--json", stdin=lines)
    ids = {json.loads(line)["message_id"] for line in published.splitlines()}
    messages = orders.pulled("--max", "200")
    assert {message["message_id"] for message in messages} == ids
    for key in range(5):
        numbers = [int(str(each["data"])) for each in messages if each["ordering_key"] == f"k{key}"]
        assert numbers == list(range(key, 200, 5))


def test_what_was_pulled_is_acked_and_what_was_looked_at_is_not(orders: Cli) -> None:
    orders.ok("publish", orders.name, "--key", "k", stdin=b"0\n1\n2\n")
    for _ in range(2):
        assert [each["data"] for each in orders.shown("pull", orders.name, "--max", "1")] == ["0"]
        assert [each["data"] for each in orders.shown("peek", orders.name)] == ["0", "1", "2"]
        assert [each["data"] for each in orders.shown("topic", "tail", orders.name, "-n", "2")] == ["1", "2"]
    taken = orders.pulled("--max", "2")
    assert [(each["data"], each["attempt"]) for each in taken] == [("0", 1), ("1", 1)]
    assert [each["data"] for each in orders.shown("peek", orders.name)] == ["2"]
    assert [each["data"] for each in orders.pulled("--max", "1")] == ["2"]
    assert orders.shown("peek", orders.name) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
def test_a_signal_ends_following_with_success_and_everything_acked(
    orders: Cli, number: signal.Signals
) -> None:
    following = orders.start("pull", orders.name, "--ack", "--follow", "--data-only")
    orders.ok("publish", orders.name, "hello")
    assert following.stdout is not None
    assert following.stdout.readline() == b"hello\n"
    following.send_signal(number)
    out, err = following.communicate(timeout=LIMIT)
    assert (following.returncode, out, err) == (0, b"", b"")
    assert orders.shown("peek", orders.name) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
def test_a_signal_ends_a_tail_that_follows_with_success(orders: Cli, number: signal.Signals) -> None:
    orders.ok("publish", orders.name, "before")  # or it may say that there is no message yet
    following = orders.start("topic", "tail", orders.name, "--follow", "--data-only")
    assert following.stdout is not None
    assert following.stdout.readline() == b"before\n"
    orders.ok("publish", orders.name, "hello")
    assert following.stdout.readline() == b"hello\n"
    following.send_signal(number)
    out, err = following.communicate(timeout=LIMIT)
    assert (following.returncode, out, err) == (0, b"", b"")


def test_ctrl_c_ends_a_look_without_a_word(orders: Cli) -> None:
    orders.ok("publish", orders.name, "hello")
    looking = orders.start("pull", orders.name, "--data-only", "--timeout", "1h")
    assert looking.stdout is not None
    assert looking.stdout.readline() == b"hello\n"
    looking.send_signal(signal.SIGINT)
    out, err = looking.communicate(timeout=LIMIT)
    assert (looking.returncode, out, err) == (130, b"", b"")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_while_publishing_stores_what_was_taken(
    orders: Cli, number: signal.Signals, code: int
) -> None:
    publishing = orders.start("publish", orders.name, "--json", stdin=subprocess.PIPE)
    assert publishing.stdin is not None
    assert publishing.stdout is not None
    publishing.stdin.write(b"taken\n")
    publishing.stdin.flush()
    assert json.loads(publishing.stdout.readline())["line"] == 1
    publishing.send_signal(number)
    assert publishing.wait(timeout=LIMIT) == code
    assert publishing.stderr is not None
    assert publishing.stderr.read() == b""
    assert [each["data"] for each in orders.pulled("--max", "1")] == ["taken"]


def test_a_reader_that_goes_away_is_no_error_and_loses_nothing(orders: Cli) -> None:
    orders.ok("publish", orders.name, "--key", "k", stdin=b"".join(b"%d\n" % number for number in range(50)))
    pulling = orders.start("pull", orders.name, "--ack", "--follow", "--data-only")
    assert pulling.stdout is not None
    assert pulling.stdout.readline() == b"0\n"
    pulling.stdout.close()
    orders.ok("publish", orders.name, "--key", "k", stdin=b"50\n")
    assert pulling.wait(timeout=LIMIT) == 141
    assert pulling.stderr is not None
    assert pulling.stderr.read() == b""
    rest = [int(str(each["data"])) for each in orders.pulled("--timeout", "5s")]
    assert rest == list(range(rest[0], 51))


def test_a_broker_that_is_not_there_is_one_line_in_bounded_time(cli: Cli) -> None:
    started = time.monotonic()
    result = cli.run("--bootstrap", "127.0.0.1:1", "publish", "x", "y", "--json")
    assert result.returncode == 1
    error = json.loads(result.stderr)["error"]
    assert (error["code"], error["type"]) == (14, "BrokerUnavailable")
    assert "127.0.0.1:1" in error["message"]
    assert time.monotonic() - started < LIMIT


def test_the_demo_proves_order_on_a_real_broker(cli: Cli) -> None:
    outcome = json.loads(
        cli.ok("demo", "--json", "--messages", "1500", "--keys", "40", "--nack-rate", "0.05")
    )
    assert outcome["violations"] == []
    assert (outcome["ok"], outcome["lost"], outcome["consumed"]) == (True, 0, 1500)
    assert outcome["nacked"] > 20


def test_the_demo_stops_at_ctrl_c_and_leaves_nothing_behind(cli: Cli) -> None:
    running = cli.start("demo", "--messages", "50000")
    assert running.stdout is not None
    assert running.stdout.readline().startswith(b"published ")
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=LIMIT)
    assert running.returncode == 130, err.decode()
    assert b"no order was broken" in err
    assert b"Traceback" not in err
    # Its topic's name isn't told; the topic of a demo beside this one goes as well, topics that were left before stay.
    until = time.monotonic() + LIMIT
    while b'"demo-' in cli.ok("topic", "list", "--json"):
        assert time.monotonic() < until, "the demo left its topic behind"
