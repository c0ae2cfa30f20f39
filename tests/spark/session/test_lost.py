"""Retention takes unread messages: `--lost fail` stops and names them, `--lost skip` names them and goes on.

A consumer reads ahead, so messages deleted between two batches may still come for one of them. Each deletion here
reaches further than that, and the rule is: an offset is in the archive or it is named.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from kafka_pubsub import FailedPrecondition, PubSub
from kafka_pubsub.local.pytest_plugin import RunningKafka
from tests.spark.session.support import KilledHere, Runner, crash_at, publish

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Messages that are published, and fetched, at a time.
PART = 10
#: One of these a fetch, so that little is read ahead.
ONE_PART = {"max.partition.fetch.bytes": "1", "fetch.max.bytes": "1"}
TOLD = re.compile(r"partition (\d): offsets (\d+) to (\d+) are gone")


@pytest.fixture
def run(spark: SparkSession, kafka: RunningKafka) -> Runner:
    return Runner(spark, kafka.bootstrap, config=ONE_PART)


def fill(bootstrap: str, topic: str, parts: int) -> None:
    """To a single partition, `PART` messages at a time; the bodies are the offsets."""
    with PubSub(bootstrap) as ps:
        ps.create_topic(topic, partitions=1)
        for first in range(0, parts * PART, PART):
            publish(ps, topic, [("k", str(n)) for n in range(first, first + PART)])


def delete(bootstrap: str, topic: str, before: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.delete_records([TopicPartition(topic, 0, before)]).values():
        future.result(20)


def held(run: Runner, to: Path) -> list[int]:
    from spark.archive.table import archived

    return sorted(row["offset"] for row in archived(run.spark, str(to)).select("offset").collect())


def named(texts: Iterable[str]) -> set[int]:
    """The offsets in the notes."""
    found = [match for text in texts for match in TOLD.finditer(text)]
    return {offset for match in found for offset in range(int(match[2]), int(match[3]) + 1)}


def after_the_first_batch(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], None]) -> None:
    """An action when the archive's first batch is in and the query is still in it."""
    from spark.base.tables import Table

    append = Table.append

    def appended(self: Table, batch: Any, query: str, number: int) -> None:
        append(self, batch, query, number)
        if number == 0:
            happens()

    monkeypatch.setattr(Table, "append", appended)


@pytest.mark.parametrize("follow", [False, True], ids=["all that is there", "follow"])
def test_deleted_between_two_batches_it_stops_and_names_what_is_lost(
    run: Runner, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, follow: bool
) -> None:
    fill(run.bootstrap, name, 6)
    after_the_first_batch(monkeypatch, lambda: delete(run.bootstrap, name, 45))
    options: dict[str, Any] = {"topics": (name,), "to": tmp_path / "archive", "max_per_batch": PART}
    with pytest.raises(FailedPrecondition, match=f"lost: {name} partition 0: .*--lost skip") as failed:
        run("archive", **options, follow=follow, every="100 milliseconds")
    before = held(run, tmp_path / "archive")
    assert before in (list(range(PART)), list(range(2 * PART)))
    lost = set(range(45)) - set(before)
    assert named([str(failed.value)]) == lost
    # Nobody goes on by accident; and told to, the job takes the remaining messages, once.
    with pytest.raises(FailedPrecondition) as failed:
        run("archive", **options)
    assert named([str(failed.value)]) == lost
    outcome = run("archive", **options, lost="skip")
    assert named(outcome.facts["lost"]) == lost
    assert held(run, tmp_path / "archive") == [*before, *range(45, 60)]


def test_deleted_between_two_batches_it_goes_on_when_told_to(
    run: Runner, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(run.bootstrap, name, 6)
    after_the_first_batch(monkeypatch, lambda: delete(run.bootstrap, name, 45))
    outcome = run(
        "archive",
        topics=(name,),
        to=tmp_path / "archive",
        max_per_batch=PART,
        optimize_every="never",
        vacuum_every="never",
        lost="skip",
    )
    assert outcome.ok
    # Each offset once, though several batches looked for it.
    assert outcome.facts["lost"] == [f"{name} partition 0: offsets {PART} to 44 are gone"]
    assert f"lost: {name} partition 0: offsets {PART} to 44 are gone" in run.notes
    found = held(run, tmp_path / "archive")
    assert found[-15:] == list(range(45, 60))
    # The second batch got what had been read ahead, which is less than a batch where the producer wrote parts of one.
    assert found[:-15] == list(range(len(found) - 15))
    assert PART <= len(found) - 15 <= 2 * PART


def test_deleted_between_two_runs(run: Runner, name: str, tmp_path: Path) -> None:
    fill(run.bootstrap, name, 1)
    options: dict[str, Any] = {"topics": (name,), "to": tmp_path / "archive"}
    run("archive", **options)
    with PubSub(run.bootstrap) as ps:
        publish(ps, name, [("k", str(n)) for n in range(PART, 3 * PART)])
    delete(run.bootstrap, name, 15)
    with pytest.raises(
        FailedPrecondition, match=f"{name} partition 0: offsets 10 to 14 are gone.*--lost skip"
    ):
        run("archive", **options)
    outcome = run("archive", **options, lost="skip")
    assert outcome.facts["lost"] == [f"{name} partition 0: offsets 10 to 14 are gone"]
    assert held(run, tmp_path / "archive") == [*range(10), *range(15, 30)]
    assert run("archive", **options).facts["lost"] == []


def test_deleted_while_a_first_batch_was_interrupted(
    run: Runner, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from spark.base.tables import Table

    fill(run.bootstrap, name, 3)
    options: dict[str, Any] = {"topics": (name,), "to": tmp_path / "archive"}
    with monkeypatch.context() as patch:
        patch.setattr(Table, "append", crash_at(1, Table.append))
        with pytest.raises(Exception, match=KilledHere.__name__):
            run("archive", **options)
    delete(run.bootstrap, name, 15)
    with pytest.raises(FailedPrecondition, match=f"{name} partition 0: offsets 0 to 14 are gone"):
        run("archive", **options)
    run("archive", **options, lost="skip")
    assert held(run, tmp_path / "archive") == list(range(15, 30))
