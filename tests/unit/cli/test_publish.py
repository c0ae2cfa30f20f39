"""`publish --delay` and `service router`, over an in-memory cluster."""

from __future__ import annotations

import pytest

from kafka_pubsub.delays.service import DelayRouter
from tests.unit.cli.conftest import CommandLine


def test_a_delayed_message_waits_and_says_so_when_no_router_runs(run: CommandLine) -> None:
    run.pubsub.create_topic("orders")
    result = run("publish", "orders", "later", "--delay", "1500ms")
    assert result.stdout.startswith("Published _kafka_pubsub.delay.in:")
    assert "No delay router is running: `kafka-pubsub service router` starts one." in result.stderr
    with DelayRouter(run.pubsub) as router:
        router.wait_until_running()
        result = run("publish", "orders", "later", "--deliver-at", "2030-03-01T08:00Z")
        assert "No delay router" not in result.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--delay", "soon"], "is not a duration"),
        (["--deliver-at", "soon"], "is not a time"),
        (["--deliver-at", "10m"], "'10m' is a duration, not a time: give it to --delay"),
        (["--deliver-at", "600"], "--delay takes how long to wait"),
        (["--delay", "5m", "--deliver-at", "2030-03-01"], "give --delay or --deliver-at, not both"),
        (["--delay", "9000d"], "longer than the 3106 days"),
    ],
)
def test_a_wrong_delay_is_refused(run: CommandLine, options: list[str], said: str) -> None:
    run.pubsub.create_topic("orders")
    result = run("publish", "orders", "x", *options)
    assert result.exit_code != 0
    assert said in result.output
