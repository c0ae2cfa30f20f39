"""Dead letters of delayed messages: listed, replayed and purged."""

from __future__ import annotations

import json

from kafka_pubsub.delays.service import DelayRouter
from tests.support import until
from tests.unit.cli.conftest import CommandLine
from tests.unit.cli.test_delay import publish


def test_dead_letters_are_listed_replayed_and_purged(run: CommandLine) -> None:
    assert "No dead letters." in run("delay", "deadletters").stderr
    message_id = publish(run, "orders", "--delay", "300ms", "--key", "k")
    publish(run, "bills", "--delay", "300ms")
    for topic in ("orders", "bills"):
        run.pubsub.delete_topic(topic)
    with DelayRouter(run.pubsub) as router:
        until(lambda: router.metrics().get("dead") == 2)
    listed = {each["topic"]: each for each in json.loads(run("delay", "deadletters", "--json").stdout)}
    assert set(listed) == {"orders", "bills"}
    assert (listed["orders"]["message_id"], listed["orders"]["key"]) == (message_id, "k")
    assert listed["orders"]["reason"] == "home topic 'orders' doesn't exist any more"
    place = listed["orders"]["place"]
    for id in (message_id, place):
        (one,) = json.loads(run("delay", "deadletters", "--id", id, "--json").stdout)
        assert one == listed["orders"]
        error = run.error("delay", "show", id)
        assert "no router could deliver it (home topic 'orders' doesn't exist any more)" in str(
            error["message"]
        )
        assert f"`kafka-pubsub delay deadletters --id {message_id}`" in str(error["message"])
    run.pubsub.create_topic("orders")
    assert "Would replay: 1" in run("delay", "deadletters", "--replay", "--dry-run").stdout
    answer = run.json("delay", "deadletters", "--replay")
    assert isinstance(answer, dict)
    assert (answer["replayed"], answer["keys"]) == (1, 1)
    assert "topic 'bills' doesn't exist any more: make it again" in str(answer["skipped"])
    assert run.error("delay", "deadletters", "--purge")["exit_code"] == 2
    assert run.error("delay", "deadletters", "--purge", "--replay")["exit_code"] == 2
    assert "Purged: 1" in run("delay", "deadletters", "--topic", "bills", "--purge", "--yes").stdout
    assert "No dead letters." in run("delay", "deadletters").stderr
