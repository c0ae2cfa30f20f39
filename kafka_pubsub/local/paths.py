"""The directories of the embedded Kafka, which environment variables can override.

`home()` holds what belongs to this user's broker (its state file and its data); `cache()` holds what can be
fetched again (the jars). Nothing here creates a directory.
"""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["cache", "default_data_dir", "home", "state_file"]


def home() -> Path:
    """Returns `KAFKA_PUBSUB_HOME`, else `kafka-pubsub` in the user's state directory."""
    return _directory("KAFKA_PUBSUB_HOME", "XDG_STATE_HOME", Path(".local") / "state")


def cache() -> Path:
    """Returns `KAFKA_PUBSUB_CACHE`, else `kafka-pubsub` in the user's cache directory."""
    return _directory("KAFKA_PUBSUB_CACHE", "XDG_CACHE_HOME", Path(".cache"))


def default_data_dir() -> Path:
    """Returns the directory in which `up` keeps its data if no data directory was given."""
    return home() / "data"


def state_file() -> Path:
    """Returns the path of the file that records the broker that `up` started last."""
    return home() / "broker.json"


def _directory(own: str, shared: str, below_home: Path) -> Path:
    if given := os.environ.get(own):
        return Path(given).expanduser().absolute()
    # The XDG rules: a relative path in such a variable is to be ignored.
    base = Path(os.environ.get(shared) or "")
    return (base if base.is_absolute() else Path.home() / below_home) / "kafka-pubsub"
