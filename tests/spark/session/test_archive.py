"""`archive`: the log, once each, whatever is killed when; growth, small files, fields that come; strange paths."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from kafka_pubsub import FailedPrecondition, NotFound, PubSub
from kafka_pubsub.local.pytest_plugin import RunningKafka
from tests.spark.session.support import Runner, publish, values

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def run(spark: SparkSession, kafka: RunningKafka) -> Runner:
    return Runner(spark, kafka.bootstrap)


def some(first: int, last: int) -> list[tuple[str | None, str]]:
    return [(f"k{n % 3}", f"{n:03}") for n in range(first, last)]


def expected(last: int) -> list[str]:
    return [f"{n:03}" for n in range(last)]


@pytest.mark.parametrize("form", ["parquet", "delta"])
def test_each_message_once_over_several_runs(run: Runner, name: str, tmp_path: Path, form: str) -> None:
    from spark.archives import archived

    to = str(tmp_path / "archive")
    with PubSub(run.bootstrap) as ps:
        ps.create_topic(name, partitions=2)
        for first in (0, 60):
            publish(ps, name, some(first, first + 60))
            outcome = run("archive", topics=(name,), to=to, form=form, max_per_batch=40)
            assert outcome.ok
    again = run("archive", topics=(name,), to=to, form=form)
    found = archived(run.spark, to)
    assert values(found) == expected(120)
    assert again.facts["batches"] == 0
    row = found.where("cast(data as string) = '007'").first()
    assert row is not None
    assert (row.ordering_key, row.topic, row.date) == ("k1", name, row.publish_time.date())
    assert row.archived_at > row.publish_time
    plain = run.spark.read.format(form).load(to)
    assert values(plain) == expected(120)
    assert (tmp_path / "archive" / f"date={row.date}" / f"topic={name}").is_dir()


def test_topics_that_appear_or_grow_are_taken_in(run: Runner, name: str, tmp_path: Path) -> None:
    from spark.archives import archived

    to = str(tmp_path / "archive")
    pattern = f"{name}-.*"
    with PubSub(run.bootstrap) as ps:
        ps.create_topic(f"{name}-a", partitions=1)
        publish(ps, f"{name}-a", some(0, 10))
        run("archive", pattern=pattern, to=to)
        admin = AdminClient({"bootstrap.servers": run.bootstrap})
        for future in admin.create_partitions([NewPartitions(f"{name}-a", 3)]).values():
            future.result(20)
        ps.create_topic(f"{name}-b", partitions=2)
        publish(ps, f"{name}-b", some(10, 20))
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": run.bootstrap})
    producer.produce(f"{name}-a", "020", partition=2)
    producer.flush(20)
    run("archive", pattern=pattern, to=to)
    assert values(archived(run.spark, to)) == expected(21)


def test_a_path_or_a_checkpoint_that_isn_t_ours(run: Runner, name: str, tmp_path: Path) -> None:
    from spark.archives import archived, open_archive

    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_text("")
    (tmp_path / "strange" / "offsets").mkdir(parents=True)
    with PubSub(run.bootstrap) as ps:
        for suffix in ("", "-other"):
            ps.create_topic(name + suffix, partitions=1)
        publish(ps, name, some(0, 3))
    checkpoint = str(tmp_path / "checkpoint")
    run("archive", topics=(name,), to=str(tmp_path / "a"), checkpoint=checkpoint)

    def refuses(
        said: str, topic: str = name, to: str = "a", checkpoint: str = checkpoint, **more: str
    ) -> None:
        with pytest.raises((FailedPrecondition, NotFound), match=said):
            run("archive", topics=(topic,), to=str(tmp_path / to), checkpoint=checkpoint, **more)

    refuses(r"photos isn't an archive of kafka_pubsub: it holds cat\.jpg", to="photos")
    refuses("format is 'parquet' there and 'delta' here", form="delta")
    refuses("doesn't exist", topic="no-such-topic", to="b", checkpoint=str(tmp_path / "new"))
    refuses("belongs to another job: topics is", topic=f"{name}-other")
    refuses("belongs to another job: to is", to="c")
    refuses("was filled with another checkpoint", checkpoint=str(tmp_path / "newer"))
    refuses(
        "isn't a checkpoint of kafka_pubsub: it holds offsets", to="d", checkpoint=str(tmp_path / "strange")
    )
    with pytest.raises(NotFound, match="isn't an archive"):
        archived(run.spark, str(tmp_path / "photos"))
    open_archive(run.spark, str(tmp_path / "empty"), "parquet")
    with pytest.raises(NotFound, match="nothing was written to yet"):
        archived(run.spark, str(tmp_path / "empty"))
