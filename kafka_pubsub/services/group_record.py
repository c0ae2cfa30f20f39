"""How large the record becomes in which the broker keeps a service's group, and a warning before it is too large.

Theory. A broker writes a group as one record of the offsets topic: for each member the names of the topics that it
reads, and over all members once which partitions each of them holds. If that record is larger than the topic takes,
no member can join any more, and the service stops as a whole.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Final

__all__ = ["GroupRecord", "members_that_fit"]

_log = logging.getLogger("kafka_pubsub.service")

#: Bytes that a record of the offsets topic may have, unless a cluster's operator has set it otherwise.
_LIMIT: Final = 1024 * 1024
#: Of each topic's name: its length; and of what is held the number of partitions, and one of them.
_LENGTH, _HELD = 2, 8
#: Bytes that a group and each of its members take beside the topics: ids, hosts, names of protocols.
_BESIDE: Final = 400
#: Two members beside a third one that takes over from one of them.
_WANTED: Final = 3


def members_that_fit(topics: Collection[str]) -> int:
    """Returns how many members a group that reads these topics can have, by the brokers' usual limit."""
    names = sum(len(topic) + _LENGTH for topic in topics)
    held = names + _HELD * len(topics)
    return max(0, _LIMIT - _BESIDE - held) // (names + _BESIDE)


class GroupRecord:
    """The record of one service's group."""

    def __init__(self, service: str) -> None:
        self._service = service
        self._warned_of = _WANTED

    def look(self, topics: Collection[str]) -> None:
        """Warns of topics with which fewer than three members fit; again when fewer fit than before."""
        members = members_that_fit(topics)
        if members >= self._warned_of:
            return
        self._warned_of = members
        _log.warning(
            "%s: with the names of its %d topics a broker can keep a group of %d members: a group is one record of "
            "__consumer_offsets, and those have %d bytes at most unless its max.message.bytes says more. Beyond "
            "that no member can join. Raise that setting, run no more members, or delete topics that aren't used",
            self._service,
            len(topics),
            members,
            _LIMIT,
        )
