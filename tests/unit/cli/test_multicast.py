"""`multicast status`, and `topic describe` of a causal topic, over an in-memory cluster."""

from __future__ import annotations

import json

from kafka_pubsub.multicast.service import Sequencer
from tests.multicasts import stage
from tests.support import until
from tests.unit.cli.conftest import CommandLine

MISSING = "No sequencer is running: `kafka-pubsub service sequencer` starts one."


def fill(run: CommandLine) -> None:
    """Makes causal topics and stages a message to two of them, which no sequencer delivers."""
    for name in "abc":
        run.pubsub.create_topic(name, causal=True)
    stage(run.pubsub._cluster.backend, "a", "b", message="m1")


def test_without_causal_topics_there_is_nothing_to_say(run: CommandLine) -> None:
    result = run("multicast", "status")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "No causal topics." in result.stderr
    assert MISSING not in result.stderr


def test_what_waits_is_shown_and_what_holds_it_up(run: CommandLine) -> None:
    fill(run)
    result = run("multicast", "status")
    assert result.exit_code == 0, result.output
    assert MISSING in result.stderr
    header, a, _, c = result.stdout.splitlines()
    assert header.split() == ["topic", "partition", "clock", "pending", "oldest", "age", "held", "by"]
    topic, partition, clock, pending, message, age, unit, held_by = a.split()
    assert (topic, partition, clock, pending, unit, held_by) == ("a", "0", "0", "1", "s", "a")
    assert float(age) < 60
    assert c.split() == ["c", "0", "0", "0", "-", "-", "-"]
    found = json.loads(run("multicast", "status", "a", "--json").stdout)
    assert found["sequencers"] == 0
    (row,) = found["topics"]
    assert row["block"]["message"] == message
    assert row["block"]["topics"] == ["a", "b"]
    assert row["block"]["held_by"] == ["a"]
    assert row["block"]["since"].endswith("+00:00")
    # The message, and the record with which an inbox begins.
    assert (row["pending"], row["unread"], row["uncommitted"], row["deleted"], row["problem"]) == (
        1,
        2,
        0,
        False,
        None,
    )


def test_a_sequencer_that_runs_is_counted(run: CommandLine) -> None:
    fill(run)
    with Sequencer(run.pubsub) as sequencer:
        sequencer.wait_until_running()
        until(lambda: not run.pubsub.multicast.status("a")[0].pending)
        result = run("multicast", "status")
        assert MISSING not in result.stderr
        assert json.loads(run("multicast", "status", "--json").stdout)["sequencers"] == 1


def test_a_problem_has_a_column(run: CommandLine) -> None:
    fill(run)
    run.pubsub._cluster.backend.admin.delete_topic("c.inbox")
    assert "no broker finds its inbox 'c.inbox'" in run("multicast", "status").stdout


def test_a_topic_that_isnt_causal_or_isnt_there_is_refused(run: CommandLine) -> None:
    run.pubsub.create_topic("plain")
    assert "isn't causal" in str(run.error("multicast", "status", "plain")["message"])
    assert "topic 'nowhere' not found" in str(run.error("multicast", "status", "nowhere")["message"])


def test_a_causal_topic_is_described_with_what_waits(run: CommandLine) -> None:
    fill(run)
    assert "clock 0, 1 messages wait, the oldest for 0." in run("topic", "describe", "a").stdout
    assert "clock 0, 0 messages wait\n" in run("topic", "describe", "c").stdout
    described = run.json("topic", "describe", "a")
    assert isinstance(described, dict)
    assert described["multicast"][0]["block"]["held_by"] == ["a"]
    run.pubsub.create_topic("plain")
    assert "multicast" not in run("topic", "describe", "plain").stdout


def test_dead_letters_are_listed_replayed_and_purged(run: CommandLine) -> None:
    assert "No dead letters." in run("multicast", "deadletters").stderr
    for name in "ab":
        run.pubsub.create_topic(name, causal=True)
    backend = run.pubsub._cluster.backend
    futures = [run.pubsub.publish_multi(["a", "b"], bytes(size), ordering_key="k") for size in (5000, 6000)]
    backend.admin.update_topic("b", {"max.message.bytes": "1000"})
    with Sequencer(run.pubsub):
        ids = [future.result(20).message_id for future in futures]
        until(lambda: len(list(run.pubsub.multicast.dead_letters())) == 2)
        listed = json.loads(run("multicast", "deadletters", "--topic", "b", "--json").stdout)
        assert [(each["message_id"], each["key"], each["bytes"]) for each in listed] == [
            (ids[0], "k", 5000),
            (ids[1], "k", 6000),
        ]
        assert all("exceeds the limit" in each["problem"] for each in listed)
        backend.admin.update_topic("b", {"max.message.bytes": "10000"})
        assert "Would replay: 2" in run("multicast", "deadletters", "--replay", "--dry-run").stdout
        assert "Replayed: 1" in run("multicast", "deadletters", "--id", ids[0], "--replay").stdout
        assert "Purged: 1" in run("multicast", "deadletters", "--purge", "--yes").stdout
    assert "No dead letters." in run("multicast", "deadletters").stderr
