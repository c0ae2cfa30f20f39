"""Reads and writes the topics of kafka_pubsub with Apache Spark, at any size.

    from kafka_pubsub_spark import messages

    messages(spark, "orders", bootstrap="localhost:9092").groupBy("ordering_key").count().show()

Theory. A topic is a Kafka topic whose records carry the user's bytes. So Spark's own Kafka source reads it and
Spark's own sink writes it, without a copy or an export. This package adds how a record becomes a row (only in
`reading/rows.py`) and how a row becomes a record (`writing/outgoing.py`).

Rules
1. Rooms import downwards: `base/` (session, files, tables), `reading/` (rows of topics), `writing/` (rows to topics),
   `run/` (what a streaming job does), then a room for each job: `archive/`, `audit/`, `replay/` and `cdc/`, of which
   `audit/` and `replay/` know the archive. `examples/` are programs to copy, which import public names only. No room
   has the name of a public function, which it would replace.
2. Executors need Spark and, for Protobuf, Python with Arrow. They need no librdkafka, and this package
   needn't be installed on them: `session` sends it to them.
3. Modules import each other relatively, because the package is called `kafka_pubsub_spark` where it is installed,
   and `spark` in a clone.
4. Importing this package or a job doesn't import pyspark: the command line lists jobs without it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .archive.table import archived
    from .base.spark_session import session
    from .reading.decoding import decoded
    from .reading.expectations import split
    from .reading.lanes import lane_messages
    from .reading.messages import as_messages, messages, source_options
    from .reading.protobuf import Protobuf
    from .reading.registry import registered, schemas_in
    from .reading.source import register_tables
    from .run.restored import check_checkpoint
    from .writing.outgoing import write, write_stream

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
    "schemas_in",
    "session",
    "source_options",
    "split",
    "write",
    "write_stream",
]

_PLACES = {
    "archived": ".archive.table",
    "as_messages": ".reading.messages",
    "check_checkpoint": ".run.restored",
    "Protobuf": ".reading.protobuf",
    "decoded": ".reading.decoding",
    "lane_messages": ".reading.lanes",
    "messages": ".reading.messages",
    "register_tables": ".reading.source",
    "registered": ".reading.registry",
    "schemas_in": ".reading.registry",
    "session": ".base.spark_session",
    "source_options": ".reading.messages",
    "split": ".reading.expectations",
    "write": ".writing.outgoing",
    "write_stream": ".writing.outgoing",
}


def __getattr__(name: str) -> object:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_PLACES[name], __name__), name)


def __dir__() -> list[str]:
    return sorted(__all__)
