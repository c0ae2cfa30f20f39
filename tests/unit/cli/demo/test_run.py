"""The demo over an in-memory cluster, and its drawings."""

from __future__ import annotations

from tests.unit.cli.conftest import CommandLine


def test_the_demo_proves_order_in_memory(run: CommandLine) -> None:
    outcome = run.json("demo", "--messages", "300", "--keys", "10", "--workers", "4", "--nack-rate", "0.1")
    assert isinstance(outcome, dict)
    assert outcome["ok"] is True
    assert (outcome["published"], outcome["consumed"], outcome["lost"]) == (300, 300, 0)
    assert outcome["order_violations"] == 0
    assert outcome["nacked"] == outcome["redelivered"] > 5
    assert run.pubsub.list_topics() == []
    assert run.pubsub.list_subscriptions() == []


def test_without_a_terminal_it_writes_plain_lines(run: CommandLine) -> None:
    result = run("demo", "--messages", "100", "--keys", "5", "--workers", "2", "--nack-rate", "0")
    assert result.exit_code == 0, result.output
    assert "\x1b" not in result.stdout
    assert "consumed 100 " in result.stdout
    assert "Every key kept its order, and nothing was lost." in result.stdout
