"""A directory of histories: a file for each stream, and one for each topic that a process publishes to.

Rules
1. A file's name contains the role, the topic or subscription, and the process. Files that exist aren't changed.
2. If a history can't be written, for example to a full disk, this is logged once, and the process goes on without it:
   a history must never cause a failure itself.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from urllib.parse import quote

from kafka_pubsub.config import SubscriptionRecord
from kafka_pubsub.errors import InvalidArgument
from kafka_pubsub.history.history import HistoryFile, fingerprint

__all__ = ["HistoryFolder", "PublisherFile"]

log = logging.getLogger("kafka_pubsub.history")

#: The most characters of a topic's or subscription's name in a file's name, because file systems limit names.
SHOWN = 150


class HistoryFolder:
    """A folder that makes history files; it implements `protocol.Histories`."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InvalidArgument(
                f"history: {str(path)!r} can't be a directory of histories: {error}"
            ) from error

    def of_stream(self, subscription: SubscriptionRecord) -> HistoryFile:
        """Returns a new history for a stream that is about to be opened."""
        return self._made(
            "subscriber",
            subscription.topic,
            subscription.name,
            ordered=subscription.options.message_ordering,
        )

    def of_publisher(self, topic: str) -> PublisherFile:
        """Returns a new history for what this process publishes to a topic."""
        return PublisherFile(self._made("publisher", topic, None))

    def _made(self, role: str, topic: str, subscription: str | None, *, ordered: bool = True) -> HistoryFile:
        name = quote(subscription or topic, safe="")[:SHOWN]
        for number in count(1):  # a process that had the same number may have left its file
            path = self.path / f"{role}-{name}-{os.getpid()}-{number}.jsonl"
            try:
                return HistoryFile(
                    path, role=role, topic=topic, subscription=subscription, ordered=ordered, forgiving=True
                )
            except FileExistsError:
                continue
            except OSError as error:
                raise InvalidArgument(f"history: {path} can't be written: {error}") from error
        raise AssertionError("there is always another number")


class PublisherFile:
    """A publisher's history; it implements `client.history.PublishHistory`."""

    def __init__(self, file: HistoryFile) -> None:
        self._file = file
        self.stored = file.stored
        self.failed = file.failed
        self.close = file.close

    def send(self, number: int, key: str | None, data: bytes, attributes: Mapping[str, str]) -> None:
        """Records that message `number` is about to be published."""
        raw = None if key is None else key.encode("utf-8", "surrogateescape")
        self._file.send(number, key, fingerprint(raw, data, attributes))
