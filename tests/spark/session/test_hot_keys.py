"""`hot-keys`: the hottest first, and a number of partitions that the keys can fill."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kafka_pubsub import PubSub
from kafka_pubsub.local.pytest_plugin import RunningKafka
from tests.spark.session.support import Runner, publish

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize(
    ("loads", "rest", "least", "most"),
    [
        # One key carries most: more partitions would stand idle.
        ([900], 100, 1, 1),
        ([500, 500], 0, 1, 2),
        ([1] * 10_000, 0, 64, 128),
        ([100] * 100, 0, 2, 64),
    ],
    ids=["one key", "two keys", "many", "a hundred"],
)
def test_a_number_that_the_keys_can_fill(loads: list[int], rest: int, least: int, most: int) -> None:
    from spark.transforms.hot_keys import KeyLoad, suggest

    keys = [KeyLoad(f"k{n}".encode(), load, load) for n, load in enumerate(loads)]
    found = suggest(keys, sum(loads) + rest)
    assert least <= found.partitions <= most
    assert found.unevenness[found.partitions] <= 1.5
    assert found.unevenness[1] == 1


def test_nothing_to_judge() -> None:
    from spark.transforms.hot_keys import suggest

    assert suggest([], 0).partitions == 1


def test_the_job(spark: SparkSession, kafka: RunningKafka, name: str) -> None:
    run = Runner(spark, kafka.bootstrap)
    with PubSub(kafka.bootstrap) as ps:
        ps.create_topic(name, partitions=4)
        publish(ps, name, [("hot" if n % 2 else f"k{n % 30}", "x") for n in range(200)])
        publish(ps, name, [(None, "x")] * 10)
    outcome = run("hot-keys", topic=name, top=2)
    assert outcome.facts["messages"] == 210
    assert outcome.facts["keyed"] == 200
    assert outcome.facts["hottest"][0]["key"] == "hot"
    assert outcome.facts["hottest"][0]["messages"] == 100
    assert len(outcome.facts["hottest"]) == 2
    assert outcome.facts["suggested_partitions"] <= 2
    assert "'hot'" in outcome.text
    nothing = run("hot-keys", topic=name, since="2100-01-01")
    assert nothing.facts["messages"] == 0
