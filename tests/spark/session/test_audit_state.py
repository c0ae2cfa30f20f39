"""An audit that goes on from the last audit: new messages are judged as if all was read, and the topic is read once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from kafka_pubsub import FailedPrecondition, PubSub
from kafka_pubsub.local.pytest_plugin import RunningKafka
from tests.spark.session.support import KilledHere, Runner

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SEQUENCE = "attributes['seq']"
NEVER = {"optimize_every": "never", "vacuum_every": "never"}


@pytest.fixture
def run(spark: SparkSession, kafka: RunningKafka) -> Runner:
    return Runner(spark, kafka.bootstrap)


def send(run: Runner, name: str, numbers: dict[str, list[int]]) -> None:
    """Each key's numbers, to partition 0."""
    producer = Producer({"bootstrap.servers": run.bootstrap})
    for key, each in numbers.items():
        for number in each:
            producer.produce(name, b"x", key=key, partition=0, headers={"seq": str(number)})
    assert producer.flush(30) == 0


def made(run: Runner, name: str, partitions: int = 1) -> None:
    with PubSub(run.bootstrap) as ps:
        ps.create_topic(name, partitions=partitions)


def found(outcome: Any) -> list[tuple[str, str, str]]:
    findings = [each for each in outcome.facts["findings"] if each["step"] == "order of the log"]
    return sorted((each["kind"], each["key"], each["said"]) for each in findings)


def test_what_came_since_is_judged_by_what_was_there(
    run: Runner, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from spark.audit.audits import Audit
    from spark.audit.state import AuditState

    made(run, name)
    options: dict[str, Any] = {"topic": name, "sequence": SEQUENCE, "state": tmp_path / "audits"}
    archive: dict[str, Any] = {"topics": (name,), "to": tmp_path / "archive", **NEVER}
    send(run, name, {"a": [1, 2, 3], "b": [1, 2], "c": [1, 3]})
    run("archive", **archive)
    outcome = run("audit", **options, archive=tmp_path / "archive")
    assert found(outcome) == [("gap", "c", "numbers 2 to 2 are missing")]
    assert (outcome.facts["messages"], outcome.facts["before"]) == (7, 0)

    # Of a: as it should be; b: comes again, and late; c: a gap to earlier messages; d: new, and one is missing.
    send(run, name, {"a": [4, 5], "b": [2, 1, 3], "c": [6], "d": [1, 3]})
    expected = [
        ("duplicate", "b", "number 2 comes twice"),
        ("gap", "c", "numbers 4 to 5 are missing"),
        ("gap", "d", "numbers 2 to 2 are missing"),
        ("reorder", "b", "number 1 comes after 2"),
    ]
    read: list[dict[int, int]] = []
    raw = Audit._raw

    def spied(self: Any, starting: Any, ending: Any) -> Any:
        if name in ending:
            read.append(starting[name])
        return raw(self, starting, ending)

    # Killed when the numbers of its keys are in the table and it isn't: the next one judges as if it had never been.
    with monkeypatch.context() as patch:
        patch.setattr(AuditState, "_keep_numbers", killed_behind(AuditState._keep_numbers))
        with pytest.raises(KilledHere):
            run("audit", **options)
    monkeypatch.setattr(Audit, "_raw", spied)
    run("archive", **archive)
    outcome = run("audit", **options, archive=tmp_path / "archive")
    assert found(outcome) == expected
    assert (outcome.facts["messages"], outcome.facts["before"]) == (8, 7)
    # In the log and in the archive.
    assert outcome.facts["earlier"] == {"gap": 2}
    assert outcome.facts["archive"]["delays"]["messages"] == 8
    # Earlier messages aren't read, and new messages are read once.
    assert read == [{0: 7}]

    outcome = run("audit", **options, archive=tmp_path / "archive")
    assert (outcome.ok, outcome.facts["messages"], outcome.facts["before"]) == (True, 0, 15)
    assert outcome.facts["earlier"] == {"duplicate": 1, "gap": 4, "reorder": 1}
    outcome = run("audit", **options, since="beginning")
    assert (outcome.facts["messages"], outcome.facts["before"]) == (15, 0)
    # All in one: a number that comes again is a duplicate, whichever it is.
    assert ("duplicate", "b", "number 1 comes twice") in found(outcome)


def killed_behind(method: Any) -> Any:
    def killed(*arguments: Any, **named: Any) -> Any:
        method(*arguments, **named)
        raise KilledHere("behind it")

    return killed


def test_a_whole_audit_reads_the_topic_once(
    run: Runner, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from spark.audit.audits import Audit

    made(run, name, 3)
    with PubSub(run.bootstrap) as ps:
        ps.create_subscription(f"{name}-one", topic=name, message_ordering=True)
        ps.create_subscription(f"{name}-two", topic=name, message_ordering=False)
        handle = ps.topic(name)
        for number in range(30):
            handle.publish(b"x", ordering_key=f"k{number % 5}", attributes={"seq": str(number // 5 + 1)})
        handle.flush(60)
    run("archive", topics=(name,), to=tmp_path / "archive", **NEVER)
    read: list[str] = []
    raw = Audit._raw

    def spied(self: Any, starting: Any, ending: Any) -> Any:
        read.extend(ending)
        return raw(self, starting, ending)

    monkeypatch.setattr(Audit, "_raw", spied)
    outcome = run("audit", topic=name, sequence=SEQUENCE, archive=tmp_path / "archive")
    assert outcome.ok
    assert [each["waiting"] for each in outcome.facts["subscriptions"]] == [30, 30]
    assert read.count(name) == 1


def test_everything_is_read_again_when_what_was_kept_can_t_judge(
    run: Runner, name: str, tmp_path: Path
) -> None:
    made(run, name)
    options: dict[str, Any] = {"topic": name, "state": tmp_path / "audits"}
    send(run, name, {"a": [1, 2]})
    run("audit", **options)
    outcome = run("audit", **options, sequence=SEQUENCE)
    assert outcome.facts["messages"] == 2
    assert "everything is read again: --sequence is another one" in run.notes
    with PubSub(run.bootstrap) as ps:
        ps.delete_topic(name)
    made(run, name)
    send(run, name, {"a": [1]})
    outcome = run("audit", **options, sequence=SEQUENCE)
    assert (outcome.ok, outcome.facts["messages"]) == (True, 1)
    assert "everything is read again: the topic was made again" in run.notes


def test_of_two_audits_at_once_one_says_that_it_is_not_kept(
    run: Runner, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from spark.audit.state import AuditState

    made(run, name)
    options: dict[str, Any] = {"topic": name, "state": tmp_path / "audits"}
    send(run, name, {"a": [1, 2]})
    keep = AuditState.keep

    def late(self: Any, *arguments: Any, **named: Any) -> None:
        monkeypatch.setattr(AuditState, "keep", keep)
        send(run, name, {"a": [3]})
        run("audit", **options)
        keep(self, *arguments, **named)

    monkeypatch.setattr(AuditState, "keep", late)
    with pytest.raises(FailedPrecondition, match=r"another audit of .* has ended meanwhile"):
        run("audit", **options)
    assert run("audit", **options).facts["messages"] == 0


def test_numbers_that_were_added_are_put_together(
    run: Runner, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark.audit.state._CLEANED", 3)
    made(run, name)
    options: dict[str, Any] = {"topic": name, "sequence": SEQUENCE, "state": tmp_path / "audits"}
    rows = []
    for number in (1, 2, 3):
        send(run, name, {"a": [number]})
        assert found(run("audit", **options)) == []
        table = run.spark.read.format("delta").load(f"{tmp_path}/audits-numbers")
        rows.append([row.number for row in table.orderBy("number").collect()])
    assert rows == [[1], [1, 2], [3]]
