"""Where the embedded Kafka keeps its things: one place to ask, overridable by environment variables.

`home()` holds what belongs to this user's broker (its state file and its data); `cache()` holds what can be
fetched again (the jars). Nothing here creates a directory.
"""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["cache", "default_data_dir", "home", "state_file"]


def home() -> Path:
    """`KAFKA_PUBSUB_HOME`, else `kafka-pubsub` in the user's state directory."""
    return _directory("KAFKA_PUBSUB_HOME", "XDG_STATE_HOME", Path(".local") / "state")


def cache() -> Path:
    """`KAFKA_PUBSUB_CACHE`, else `kafka-pubsub` in the user's cache directory."""
    return _directory("KAFKA_PUBSUB_CACHE", "XDG_CACHE_HOME", Path(".cache"))


def default_data_dir() -> Path:
    """Where `up` keeps its messages when no data directory was given."""
    return home() / "data"


def state_file() -> Path:
    """Which broker `up` started last."""
    return home() / "broker.json"


def _directory(own: str, shared: str, below_home: Path) -> Path:
    if told := os.environ.get(own):
        return Path(told).expanduser().absolute()
    # The XDG rules: a relative path in such a variable is to be ignored.
    base = Path(os.environ.get(shared) or "")
    return (base if base.is_absolute() else Path.home() / below_home) / "kafka-pubsub"
