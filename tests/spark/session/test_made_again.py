"""A topic that was deleted and made again stops a job, or is read from its beginning, and never on in its middle."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kafka_pubsub import FailedPrecondition, PubSub
from kafka_pubsub.local.pytest_plugin import RunningKafka
from tests.spark.session.support import KilledHere, Runner, crash_at, publish, values

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def run(spark: SparkSession, kafka: RunningKafka) -> Runner:
    return Runner(spark, kafka.bootstrap)


def texts(prefix: str, count: int) -> list[str]:
    return [f"{prefix}{at:03}" for at in range(count)]


def make(ps: PubSub, name: str, bodies: list[str]) -> None:
    ps.create_topic(name, partitions=1)
    publish(ps, name, [("k", body) for body in bodies])


def make_again(ps: PubSub, name: str, bodies: list[str]) -> None:
    ps.delete_topic(name)
    make(ps, name, bodies)


@pytest.mark.parametrize("count", [5, 30], ids=["fewer messages", "more messages"])
def test_an_archive_stops_and_takes_the_new_topic_from_its_beginning(
    run: Runner, name: str, tmp_path: Path, count: int
) -> None:
    from spark.archive.table import archived

    to, other = str(tmp_path / "archive"), f"{name}-other"
    options: dict[str, Any] = {"topics": (name, other), "to": to}
    with PubSub(run.bootstrap) as ps:
        make(ps, name, texts("old", 10))
        make(ps, other, texts("other", 10))
        run("archive", **options)
        make_again(ps, name, texts("new", count))
        publish(ps, other, [("k", "other-later")])
        audited = run("audit", topic=name, archive=to)
        assert sum(audited.facts["archive"]["behind"].values()) == count
        for _ in range(2):
            with pytest.raises(FailedPrecondition, match=f"topic '{name}' was made again.*--lost skip"):
                run("archive", **options)
        outcome = run("archive", **options, lost="skip")
        assert [each[:40] for each in outcome.facts["lost"]] == [f"topic '{name}' was made again"[:40]]
        found = archived(run.spark, to)
        everything = texts("old", 10) + texts("new", count) + texts("other", 10) + ["other-later"]
        assert values(found) == sorted(everything)
        # An id is unique with the topic's own.
        assert found.select("message_id", "topic_id").distinct().count() == len(everything)
        assert found.where("topic_id is null").count() == 0
        # From then on it goes on as ever.
        publish(ps, name, [("k", "newest")])
        assert run("archive", **options).facts["messages_read"] == 1
        assert run("audit", topic=name, archive=to).ok
        _replay(ps, run, name, tmp_path)


def _replay(ps: PubSub, run: Runner, name: str, tmp_path: Path) -> None:
    """Of two topics of the same name a replay takes the chosen topic."""
    from spark.archive.table import archived
    from spark.reading.messages import messages

    to = str(tmp_path / "archive")
    target = f"{name}-target"
    ps.create_topic(target, partitions=1)
    options = {"topic": name, "to": target, "archive": to, "state": tmp_path / "state"}
    with pytest.raises(FailedPrecondition, match="holds 2 topics that were called"):
        run("replay", **options)
    (old,) = archived(run.spark, to).where("cast(data as string) = 'old000'").select("topic_id").collect()
    assert run("replay", **options, where=f"topic_id = '{old.topic_id}'").facts["written"] == 10
    assert values(messages(run.spark, target, bootstrap=run.bootstrap)) == texts("old", 10)


@pytest.mark.parametrize(("follow", "count"), [(True, 30), (False, 30), (False, 3)])
def test_while_a_job_runs_it_ends_and_says_how_to_go_on(
    run: Runner, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, follow: bool, count: int
) -> None:
    from spark.archive.table import archived
    from spark.base.tables import Table

    to = str(tmp_path / "archive")
    append = Table.append
    with PubSub(run.bootstrap) as ps:
        make(ps, name, texts("old", 10))

        def appended(self: Table, batch: Any, query: str, number: int) -> None:
            append(self, batch, query, number)
            if number == 0:
                make_again(ps, name, texts("new", count))

        options: dict[str, Any] = {"topics": (name,), "to": to, "max_per_batch": 5}
        with monkeypatch.context() as patch:
            patch.setattr(Table, "append", appended)
            with pytest.raises(FailedPrecondition, match=f"'{name}' was made again.*--lost skip"):
                run("archive", **options, follow=follow, every="100 milliseconds")
    assert values(archived(run.spark, to)) == texts("old", 5)
    run("archive", **options, lost="skip")
    assert values(archived(run.spark, to)) == texts("new", count) + texts("old", 5)


@pytest.mark.parametrize("follow", [True, False])
def test_a_topic_that_is_deleted_while_a_job_runs_is_named(
    run: Runner, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, follow: bool
) -> None:
    from spark.base.tables import Table

    append = Table.append
    with PubSub(run.bootstrap) as ps:
        make(ps, name, texts("old", 10))

        def appended(self: Table, batch: Any, query: str, number: int) -> None:
            append(self, batch, query, number)
            if number == 0:
                ps.delete_topic(name)

        monkeypatch.setattr(Table, "append", appended)
        options: dict[str, Any] = {"topics": (name,), "to": str(tmp_path / "archive"), "max_per_batch": 5}
        with pytest.raises(FailedPrecondition, match=f"topic '{name}' is gone.*--lost skip goes on without"):
            run("archive", **options, follow=follow, every="100 milliseconds")


def test_after_a_batch_that_was_not_finished(
    run: Runner, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from spark.archive.table import archived
    from spark.base.tables import Table

    to, other = str(tmp_path / "archive"), f"{name}-other"
    options: dict[str, Any] = {"topics": (name, other), "to": to}
    with PubSub(run.bootstrap) as ps:
        make(ps, name, texts("old", 10))
        make(ps, other, texts("other", 10))
        with monkeypatch.context() as patch:
            patch.setattr(Table, "append", crash_at(1, Table.append))
            with pytest.raises(Exception, match=KilledHere.__name__):
                run("archive", **options)
        make_again(ps, name, texts("new", 20))
    run("archive", **options, lost="skip")
    assert values(archived(run.spark, to)) == sorted(texts("new", 20) + texts("other", 10))


def test_a_topic_that_came_in_a_batch_that_was_not_finished(
    run: Runner, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from spark.archive.table import archived
    from spark.run.streams import Run

    to, other = str(tmp_path / "archive"), f"{name}-other"
    options: dict[str, Any] = {"pattern": f"{name}.*", "to": to}
    with PubSub(run.bootstrap) as ps:
        make(ps, name, texts("first", 10))
        run("archive", **options)
        make(ps, other, texts("old", 10))
        with monkeypatch.context() as patch:
            # Killed when the batch is in the archive.
            patch.setattr(Run, "_count", crash_at(1, Run._count))
            with pytest.raises(Exception, match=KilledHere.__name__):
                run("archive", **options)
        make_again(ps, other, texts("new", 20))
    with pytest.raises(FailedPrecondition, match=f"topic '{other}' was made again"):
        run("archive", **options)
    run("archive", **options, lost="skip")
    assert values(archived(run.spark, to)) == sorted(texts("first", 10) + texts("old", 10) + texts("new", 20))


def test_the_last_states_are_those_of_the_new_topic(run: Runner, name: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"topic": name, "to": tmp_path / "table", "checkpoint": tmp_path / "checkpoint"}

    def change(total: int) -> str:
        return json.dumps({"action": "UPDATE", "data": {"total": total}})

    with PubSub(run.bootstrap) as ps:
        make(ps, name, [change(total) for total in range(10)])
        run("cdc", **options)
        make_again(ps, name, [change(99)])
    run("cdc", **options, lost="skip")
    (row,) = run.spark.read.format("delta").load(str(tmp_path / "table")).collect()
    assert json.loads(row.data) == {"total": 99}


def test_a_replay_whose_source_or_target_was_made_again_is_refused(
    run: Runner, name: str, tmp_path: Path
) -> None:
    target = f"{name}-target"
    with PubSub(run.bootstrap) as ps:
        make(ps, name, texts("old", 10))
        make(ps, target, [])
        for at, again in enumerate((name, target)):
            options = {"topic": name, "to": target, "state": tmp_path / f"state-{at}"}
            run("replay", **options)
            make_again(ps, again, texts("new", 30))
            with pytest.raises(FailedPrecondition, match=f"'{again}'.* was made again since this replay"):
                run("replay", **options)
