"""A single driver with several jobs, each in a thread: `python -m tests.spark.drivers.many BOOTSTRAP COMMANDS`.

COMMANDS is JSON: a list of lists, each a job's name and its options, or "copying" and copying.py's arguments. A job
that ends with an error says so in a line of its own; when all have ended, so does the driver.
"""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from spark import session
from tests.spark.drivers.copying import copy
from tests.spark.drivers.scene import CONF
from tests.spark.session.support import Runner

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run(spark: SparkSession, bootstrap: str, job: str, options: list[str]) -> None:
    try:
        if job == "copying":
            copy(spark, bootstrap, *options)
        else:
            Runner(spark, bootstrap).typed(job, options)
    except Exception as error:
        print(f"{job} failed: {error}", file=sys.stderr, flush=True)
        raise


def main(bootstrap: str, commands: str) -> None:
    told = (each.removeprefix("--conf=").partition("=") for each in CONF)
    conf = {name: value for name, _, value in told} | {"spark.driver.memory": "1g"}
    spark = session("many", master="local[2]", conf=conf)
    jobs = [(job, options) for job, *options in json.loads(commands)]
    with ThreadPoolExecutor(len(jobs)) as pool:
        running = [pool.submit(run, spark, bootstrap, job, options) for job, options in jobs]
    raise SystemExit(any(each.exception() for each in running))


if __name__ == "__main__":
    main(*sys.argv[1:])
