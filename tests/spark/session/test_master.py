"""Where the suite's session runs: as `KAFKA_PUBSUB_SPARK_MASTER` says; a cluster's nodes have what the driver ships."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import pytest

from tests.spark.needs import need_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_session_runs_where_it_was_told_to(spark: SparkSession) -> None:
    from tests.spark.standalone import CHOICE, CLUSTER, LOCAL, WORKERS

    def sources(_: Iterable[int]) -> Iterator[str]:
        import kafka_pubsub.errors
        import spark.reading.rows

        yield from (kafka_pubsub.errors.__file__, spark.reading.rows.__file__)

    context = spark.sparkContext
    found = context.parallelize(range(4), 4).mapPartitions(sources).collect()
    # The driver counts as one.
    nodes = len(context._jsc.sc().statusTracker().getExecutorInfos()) - 1
    shipped = {"kafka_pubsub_shipped.zip" in each for each in found}
    if os.environ.get(CHOICE) == CLUSTER:
        assert (str(context.master)[:8], nodes, shipped) == ("spark://", WORKERS, {True})
    else:
        assert (context.master, nodes, shipped) == (LOCAL, 0, {False})


def test_a_second_session_of_an_application_is_used_as_the_first(spark: SparkSession) -> None:
    from spark.base.spark_session import _ship

    # On a cluster: its executors have our Python already.
    for each in (spark, spark.newSession()):
        _ship(each)
        _ship(each)


def test_a_master_that_the_suite_doesn_t_know_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    need_spark()
    from tests.spark.standalone import CHOICE, chosen_master

    monkeypatch.setenv(CHOICE, "yarn")
    refused = r"KAFKA_PUBSUB_SPARK_MASTER is 'yarn': it may be 'local\[2\]' \(the default\) or 'standalone'"
    with pytest.raises(pytest.fail.Exception, match=refused), chosen_master():
        pass
