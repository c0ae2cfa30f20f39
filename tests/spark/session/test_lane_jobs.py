"""Jobs read all lanes of their topics, later lanes too."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kafka_pubsub import Message, PubSub
from kafka_pubsub.local.pytest_plugin import RunningKafka
from tests.spark.session.support import KilledHere, Runner, crash_at, values
from tests.support import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Priority and class of a message.
LANES = [(4, True), (9, True), (0, True), (4, False)]


@pytest.fixture
def run(spark: SparkSession, kafka: RunningKafka) -> Runner:
    return Runner(spark, kafka.bootstrap)


def publish(ps: PubSub, name: str, bodies: Iterable[str], lanes: list[tuple[int, bool]] = LANES) -> None:
    """Publishes each body to the lanes in turn; a key's messages are numbered over all lanes."""
    topic = ps.topic(name)
    for at, body in enumerate(bodies):
        priority, durable = lanes[at % len(lanes)]
        topic.publish(body.encode(), ordering_key=f"k{at % 3}", priority=priority, durable=durable)
    topic.flush(60)


def numbers(first: int, last: int) -> list[str]:
    return [f"{number:03}" for number in range(first, last)]


def test_an_archive_has_all_lanes_and_a_replay_publishes_them(run: Runner, name: str, tmp_path: Path) -> None:
    from spark.archive.table import archived
    from spark.reading.messages import messages

    to, target = str(tmp_path / "archive"), f"{name}-again"
    with PubSub(run.bootstrap) as ps:
        ps.create_topic(name, partitions=2, priorities=10, transient=True)
        ps.create_topic(target, partitions=2)
        publish(ps, name, numbers(0, 80))
        outcome = run("archive", topics=(name,), to=to, max_per_batch=30)
        assert values(archived(run.spark, to)) == numbers(0, 80)
        assert (outcome.facts["messages_read"], outcome.facts["behind"]) == (80, 0)
        # A lane that comes later.
        publish(ps, name, numbers(80, 90), [(7, True)])
        assert run("archive", topics=(name,), to=to).facts["behind"] == 0
        assert values(archived(run.spark, to)) == numbers(0, 90)
    for source in ({}, {"archive": to}):
        options = {**source, "topic": name, "to": target}
        assert run("replay", **options, dry_run=True).facts["messages"] == 90
        assert run("replay", **options, state=tmp_path / f"state{len(source)}").facts["written"] == 90
    assert values(messages(run.spark, target, bootstrap=run.bootstrap)) == sorted(numbers(0, 90) * 2)


@pytest.mark.parametrize("follow", [True, False], ids=["follow", "all that is there"])
def test_a_lane_that_comes_while_a_job_runs_is_taken_up(
    run: Runner, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, follow: bool
) -> None:
    from spark.archive.table import archived
    from spark.base.tables import Table

    to = str(tmp_path / "archive")
    append = Table.append
    with PubSub(run.bootstrap) as ps:
        ps.create_topic(name, partitions=2, priorities=10)
        publish(ps, name, numbers(0, 10), [(4, True)])

        def appended(self: Table, batch: object, query: str, number: int) -> None:
            append(self, batch, query, number)  # type: ignore[arg-type]
            if number == 0:
                publish(ps, name, numbers(10, 20), [(8, True)])
            elif values(archived(run.spark, to)) == numbers(0, 20):
                raise Ended

        monkeypatch.setattr(Table, "append", appended)
        options: dict[str, Any] = {"topics": (name,), "to": to, "max_per_batch": 5}
        if not follow:
            # The job reads the lanes that were there when it began, and the next start reads the new lane.
            assert run("archive", **options).facts["messages_read"] == 10
        with pytest.raises(Exception, match=Ended.__name__):
            run("archive", **options, follow=follow, every="100 milliseconds")
    assert values(archived(run.spark, to)) == numbers(0, 20)


def test_a_lane_that_comes_after_a_kill_is_taken_up(
    run: Runner, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from spark.archive.table import archived
    from spark.base.tables import Table

    to = str(tmp_path / "archive")
    with PubSub(run.bootstrap) as ps:
        ps.create_topic(name, partitions=2, priorities=10)
        publish(ps, name, numbers(0, 10), [(4, True)])
        with monkeypatch.context() as patch:
            patch.setattr(Table, "append", crash_at(1, Table.append))
            with pytest.raises(Exception, match=KilledHere.__name__):
                run("archive", topics=(name,), to=to)
        publish(ps, name, numbers(10, 20), [(8, True)])
    run("archive", topics=(name,), to=to)
    assert values(archived(run.spark, to)) == numbers(0, 20)


class Ended(Exception):
    """Ends a job that follows."""


def test_an_audit_covers_all_lanes(run: Runner, name: str, tmp_path: Path) -> None:
    to, state = str(tmp_path / "archive"), tmp_path / "audits"
    options = {"topic": name, "sequence": "attributes['seq']", "archive": to, "state": state}
    with PubSub(run.bootstrap) as ps:
        topic = ps.create_topic(name, partitions=2, priorities=10, transient=True)
        ps.create_subscription("all", topic=name)
        topic.publish(b"0", ordering_key="k", attributes={"seq": "1"}).result(30)
        ps.create_subscription("rest", topic=name)
        for number in range(2, 42):
            priority, durable = LANES[number % len(LANES)]
            more: dict[str, Any] = {"priority": priority, "durable": durable}
            topic.publish(b"%d" % number, ordering_key="k", attributes={"seq": str(number)}, **more)
        topic.flush(60)
        run("archive", topics=(name,), to=to)
        take(ps, "all", 10)
        audited = run("audit", **options)
        assert audited.ok, audited.text
        assert audited.facts["messages"] == 41
        assert audited.facts["archive"]["behind"] == {}
        told = {each["name"]: (each["acked"], each["waiting"]) for each in audited.facts["subscriptions"]}
        assert told["all"][0] >= 10
        assert sum(told["all"]) == sum(told["rest"]) == 41
        # What came since, in a lane that came since; the archive hasn't it yet, and one of its numbers is missing.
        topic.publish(b"43", ordering_key="k", attributes={"seq": "43"}, priority=7).result(30)
    audited = run("audit", **options)
    assert (audited.facts["before"], audited.facts["messages"]) == (41, 1)
    assert sum(audited.facts["archive"]["behind"].values()) == 1
    (finding,) = audited.facts["findings"]
    assert (finding["kind"], finding["topic"], finding["said"]) == (
        "gap",
        f"{name}.lane.p7",
        "numbers 42 to 42 are missing",
    )


def take(ps: PubSub, subscription: str, count: int) -> None:
    """Acks at least so many messages."""
    acked: list[str] = []

    def handle(message: Message) -> None:
        acked.append(message.message_id)
        message.ack()

    with ps.subscription(subscription).pull(handle):
        until(lambda: len(acked) >= count)
