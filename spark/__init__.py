"""The pipeline on Spark: the same topics, read and written natively, at any size.

    from kafka_pubsub_spark import messages

    messages(spark, "orders", bootstrap="localhost:9092").groupBy("ordering_key").count().show()

Theory. A topic of ours is a Kafka topic whose records carry the user's bytes, so Spark's own Kafka source reads
it and its own sink writes it: no copy, no export, no second order. What is ours is how a record becomes a row
(`transforms/rows.py`, the only place) and a row becomes a record (`transforms/outgoing.py`).

Rules
1. `transforms/` are DataFrame to DataFrame and know no job; `jobs/` are thin and hold nothing worth testing
   alone.
2. Executors need Spark and, for Avro and sessions, Python with Arrow. They need neither librdkafka nor this
   package installed: a session of ours sends it along.
3. Modules import each other relatively: the package is called `kafka_pubsub_spark` where it is installed,
   `spark` in a clone.
4. Importing this, or a job, doesn't import pyspark: the command line lists jobs without it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .archive_table import archived
    from .spark_session import session
    from .transforms.decoding import decoded
    from .transforms.expectations import split
    from .transforms.frames import registered
    from .transforms.messages import messages
    from .transforms.outgoing import write, write_stream
    from .transforms.protobuf import Protobuf

__all__ = [
    "Protobuf",
    "archived",
    "decoded",
    "messages",
    "registered",
    "session",
    "split",
    "write",
    "write_stream",
]

_PLACES = {
    "archived": ".archive_table",
    "Protobuf": ".transforms.protobuf",
    "decoded": ".transforms.decoding",
    "messages": ".transforms.messages",
    "registered": ".transforms.frames",
    "session": ".spark_session",
    "split": ".transforms.expectations",
    "write": ".transforms.outgoing",
    "write_stream": ".transforms.outgoing",
}


def __getattr__(name: str) -> object:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_PLACES[name], __name__), name)


def __dir__() -> list[str]:
    return sorted(__all__)
