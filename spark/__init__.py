"""Reads and writes the topics of kafka_pubsub with Apache Spark, at any size.

    from kafka_pubsub_spark import messages

    messages(spark, "orders", bootstrap="localhost:9092").groupBy("ordering_key").count().show()

Theory. A topic is a Kafka topic whose records carry the user's bytes. So Spark's own Kafka source reads it and
Spark's own sink writes it, without a copy or an export. This package adds how a record becomes a row (only in
`transforms/rows.py`) and how a row becomes a record (`transforms/outgoing.py`).

Rules
1. The functions in `transforms/` turn DataFrames into DataFrames and don't depend on a job. The modules in `jobs/`
   are thin: they contain no logic that needs a test of its own.
2. Executors need Spark and, for Avro and sessions, Python with Arrow. They need no librdkafka, and this package
   needn't be installed on them: `session` sends it to them.
3. Modules import each other relatively, because the package is called `kafka_pubsub_spark` where it is installed,
   and `spark` in a clone.
4. Importing this package or a job doesn't import pyspark: the command line lists jobs without it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .archive_table import archived
    from .delays import waiting
    from .lanes import lane_messages
    from .registry import registered
    from .restored import check_checkpoint
    from .source import register_tables
    from .spark_session import session
    from .transforms.decoding import decoded
    from .transforms.expectations import split
    from .transforms.messages import as_messages, messages, source_options
    from .transforms.outgoing import write, write_stream
    from .transforms.protobuf import Protobuf

__all__ = [
    "Protobuf",
    "archived",
    "as_messages",
    "check_checkpoint",
    "decoded",
    "lane_messages",
    "messages",
    "register_tables",
    "registered",
    "session",
    "source_options",
    "split",
    "waiting",
    "write",
    "write_stream",
]

_PLACES = {
    "archived": ".archive_table",
    "as_messages": ".transforms.messages",
    "check_checkpoint": ".restored",
    "Protobuf": ".transforms.protobuf",
    "decoded": ".transforms.decoding",
    "lane_messages": ".lanes",
    "messages": ".transforms.messages",
    "register_tables": ".source",
    "registered": ".registry",
    "session": ".spark_session",
    "source_options": ".transforms.messages",
    "split": ".transforms.expectations",
    "waiting": ".delays",
    "write": ".transforms.outgoing",
    "write_stream": ".transforms.outgoing",
}


def __getattr__(name: str) -> object:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_PLACES[name], __name__), name)


def __dir__() -> list[str]:
    return sorted(__all__)
