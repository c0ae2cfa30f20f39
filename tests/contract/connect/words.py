"""The meaning of the words in the steps, at a stock Kafka Connect and at our worker."""

from __future__ import annotations

from pathlib import Path

__all__ = ["MORE", "TOPICS", "at_connect", "at_worker"]

#: The topics that are there before the first step.
TOPICS = ("facts", "idle", "odd")
#: Keys that a worker's answers have besides Kafka Connect's.
MORE = frozenset({"lag"})
_FILE = "org.apache.kafka.connect.file."


def at_connect(folder: Path) -> dict[str, object]:
    """Returns the words at a Kafka Connect whose file connectors read and write in `folder`."""
    lines = str(folder / "lines.txt")
    source = {"connector.class": "FileStreamSource", "tasks.max": "1", "file": lines, "topic": "facts"}
    sink = {
        "connector.class": f"{_FILE}FileStreamSinkConnector",
        "tasks.max": "1",
        "file": str(folder / "out.txt"),
        "topics": "facts",
    }
    unreadable = {"value.converter": "org.apache.kafka.connect.json.JsonConverter"}
    return {
        "source": source,
        "idle": {**source, "topic": "idle"},
        "odd": {**source, "topic": "odd"},
        "incomplete": {"connector.class": "FileStreamSource"},
        "sink": sink,
        "failing": {**sink, "file": str(folder / "none.txt"), **unreadable},
        "source class": "FileStreamSource",
        "source type": "source",
        "other class": f"{_FILE}FileStreamSinkConnector",
        "setting": "batch.size",
        "empty setting": "file",
        "source partition": {"filename": lines},
        "source offset": {"position": 4},
        "logger": "org.apache.kafka.connect",
    }


def at_worker(url: str) -> dict[str, object]:
    """Returns the words at a worker whose connectors push to `url`."""
    push = {"connector.class": "push", "tasks.max": "1", "url": url, "topic": "facts"}
    return {
        "source": {**push, "subscription": "src"},
        "idle": {**push, "subscription": "idle", "topic": "idle"},
        "odd": {**push, "subscription": "odd", "topic": "odd"},
        "incomplete": {"connector.class": "push"},
        "sink": {**push, "subscription": "sink"},
        "failing": {**push, "subscription": "failing", "token": "${env:KAFKA_PUBSUB_CONTRACT_MISSING}"},
        "source class": "push",
        "source type": "sink",
        "other class": "other",
        "setting": "concurrency",
        "empty setting": "token",
        "source partition": {"kafka_topic": "facts", "kafka_partition": 0},
        "source offset": {"kafka_offset": 1},
        "logger": "kafka_pubsub.contract",
    }
