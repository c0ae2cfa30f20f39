"""`pull` over an in-memory cluster."""

from __future__ import annotations

import pytest

from tests.unit.cli.conftest import CommandLine
from tests.unit.cli.test_messages import pulled
from tests.unit.cli.test_peek import lines


@pytest.fixture
def orders(run: CommandLine) -> CommandLine:
    """A topic with a single subscription."""
    run.json("topic", "create", "orders", "--partitions", "2")
    run.json("subscription", "create", "billing", "--topic", "orders", "--ordering")
    return run


def test_pull_shows_the_lane_of_a_message(run: CommandLine) -> None:
    run.json("topic", "create", "orders", "--partitions", "1", "--priorities", "10", "--transient")
    run.json("subscription", "create", "billing", "--topic", "orders", "--ageing", "1m", "--strict")

    def publish() -> None:
        run.json("publish", "orders", "low", "--priority", "2")
        run.json("publish", "orders", "default")
        run.json("publish", "orders", "lost?", "--priority", "9", "--transient")

    publish()
    described = run("subscription", "describe", "billing").stdout
    assert "orders.lane.p2: 1, the oldest for " in described
    assert "ageing             1m" in described
    shown = run("pull", "billing", "--ack", "--timeout", "1s")
    assert [line.split("  ", 1)[1] for line in shown.stdout.splitlines()] == [
        "(priority 9, transient)  lost?",
        "default",
        "(priority 2)  low",
    ]
    publish()
    lanes = [(message["data"], message["priority"], message["durable"]) for message in pulled(run)]
    assert lanes == [("lost?", 9, False), ("default", 4, True), ("low", 2, True)]
    changed = run.json("subscription", "update", "billing", "--ageing", "7s", "--no-strict")
    assert isinstance(changed, dict)
    assert (changed["ageing"], changed["strict"]) == (7, False)


def test_pull_takes_so_many_and_leaves_the_rest(orders: CommandLine) -> None:
    orders("publish", "orders", "--key", "k", stdin="".join(f"{number}\n" for number in range(5)))
    assert [message["data"] for message in pulled(orders, "--max", "2")] == ["0", "1"]
    orders.pubsub.subscription("billing")
    assert [message["data"] for message in pulled(orders)] == ["2", "3", "4"]
    assert pulled(orders) == []


def test_data_only_is_the_bytes_and_a_person_sees_no_control_characters(orders: CommandLine) -> None:
    orders("publish", "orders", "--key", "k\x1b", stdin=b"\x1b[31m\xff\n\x1b[31m\xff\n")
    raw = orders("pull", "billing", "--ack", "--data-only", "--max", "1")
    assert raw.stdout_bytes == b"\x1b[31m\xff\n"
    shown = orders("pull", "billing", "--ack", "--max", "1").stdout
    assert "[k\\x1b]" in shown
    assert "\\x1b[31m\\xff" in shown
    assert "\x1b" not in shown


@pytest.fixture
def three(run: CommandLine) -> CommandLine:
    run.json("topic", "create", "orders", "--partitions", "1")
    run.json("subscription", "create", "billing", "--topic", "orders", "--ordering")
    run("publish", "orders", "--key", "k", stdin="one\ntwo\nthree\n")
    return run


def test_pull_takes_nothing_unless_it_is_told_to(three: CommandLine) -> None:
    for _ in range(2):
        shown = three("pull", "billing", "--timeout", "1s")
        assert "one" in shown.stdout
        assert "two" not in shown.stdout
        assert "--ack takes it" in shown.stderr
        assert "peek billing" in shown.stderr
    (message,) = lines(three, "pull", "billing", "--timeout", "1s")
    assert (message["data"], message["attempt"]) == ("one", 1)
    taken = three("pull", "billing", "--ack", "--timeout", "1s")
    assert len(taken.stdout.splitlines()) == 3
    assert taken.stderr == ""
    assert three("peek", "billing").stderr == "billing has finished everything.\n"
