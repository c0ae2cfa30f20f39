"""Spark searches the modules whose names begin with `pyspark_`, and finds the format `kafka_pubsub` by this one.

Rule: its import never fails, because Spark would then find no format of any other package either.
"""

from contextlib import suppress
from importlib import import_module

__all__ = ["DefaultSource"]

# In a clone the package is called `spark`. There may be another one of that name, whose import may raise anything.
with suppress(Exception):
    try:
        DefaultSource = import_module("kafka_pubsub_spark.reading.source").DefaultSource
    except ModuleNotFoundError:
        DefaultSource = import_module("spark.reading.source").DefaultSource
