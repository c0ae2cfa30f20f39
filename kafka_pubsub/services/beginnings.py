"""What is known of partitions whose tasks begin: what is committed, and where the logs lie.

Rules
1. What is asked for one partition fails alone: the others begin.
2. A position counts once no transaction of an earlier owner is open.
3. A dead owner's id is fenced on a thread of its own, because the log may hold it up for as long as a partition that
   it wrote to has no leader. What takes longer than `_SOON` is asked for again; the others don't wait for it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor

from kafka_pubsub.errors import BrokerUnavailable, DeadlineExceeded, PubSubError
from kafka_pubsub.log.ports import Backend, LogReader, Transactions
from kafka_pubsub.model import Committed, TopicPartition
from kafka_pubsub.services.role import Beginning, Role
from kafka_pubsub.services.sending import Share

__all__ = ["Beginnings", "Found"]

_log = logging.getLogger("kafka_pubsub.service")

#: Seconds for asking what is committed, and for fencing dead owners before the partitions of others begin.
_BEGINNING, _SOON = 15.0, 3.0
#: Dead owners' ids that are fenced at the same time: a service has one for most partitions, and some for others.
_AT_ONCE = 9
#: Seconds for the leaders' answers where logs begin and end.
_RANGES = 3.0

#: What is known of each partition of a share, or why it isn't.
Found = Sequence[Beginning] | PubSubError


class Beginnings:
    """Asks for many shares at once; the transactional ids of this service begin with `own`."""

    def __init__(self, backend: Backend, reader: LogReader, role: Role, own: str) -> None:
        self._backend, self._reader, self._role, self._own = backend, reader, role, own
        self._threads = ThreadPoolExecutor(_AT_ONCE, "kafka_pubsub-service-fences")
        # What fences; None: nothing was to be fenced yet.
        self._writer: Transactions | None = None
        # By id: those that are being fenced. The engine's thread and the one that asks again share them.
        self._fences: dict[str, Future[None]] = {}
        self._lock = threading.Lock()

    def close(self) -> None:
        """Waits for nothing that is being fenced: the next owner asks for it again."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        if self._writer is not None:
            self._writer.close()

    def find(self, shares: Sequence[Share]) -> Mapping[Share, Found]:
        """Returns what is known of each share; where one question for all fails, each of them is asked for alone."""
        found = self.find_together(shares)
        if len(shares) > 1 and all(isinstance(each, PubSubError) for each in found.values()):
            return {share: self.find_together([share])[share] for share in shares}
        return found

    def find_together(self, shares: Sequence[Share]) -> Mapping[Share, Found]:
        """Returns what is known of each share, by one question for all of them."""
        if not shares:
            return {}
        places = [place for share in shares for place in share.places]
        try:
            wrong = dict(self._end_writers(shares, self._reader.committed_unstable(places)))
            well = [share for share in shares if share not in wrong]
            stored = self._committed([place for share in well for place in share.places])
            ranges = self._reader.reachable_ranges(list(stored), _RANGES) if stored else {}
        except PubSubError as error:
            return dict.fromkeys(shares, error)
        return wrong | {share: _known(share, stored, ranges) for share in well}

    def _committed(self, places: Sequence[TopicPartition]) -> Mapping[TopicPartition, Committed]:
        return self._reader.committed(places, _BEGINNING) if places else {}

    def _end_writers(
        self, shares: Sequence[Share], unstable: Mapping[TopicPartition, Committed]
    ) -> Mapping[Share, PubSubError]:
        """Fences the dead owners that commits name; returns the shares that must wait for that, or can't be read."""
        wrong: dict[Share, PubSubError] = {}
        written: dict[str, list[Share]] = {}
        for share in shares:
            try:
                writer = self._role.writer_of([unstable[place] for place in share.places])
            except PubSubError as error:
                wrong[share] = error
                continue
            if writer is not None and not writer.startswith(self._own):
                written.setdefault(writer, []).append(share)
        until = time.monotonic() + _SOON
        fences = {writer: self._fence(writer) for writer in written}
        for writer, theirs in written.items():
            unended = self._wait(writer, fences[writer], until)
            if unended is not None:
                wrong |= dict.fromkeys(theirs, unended)
        return wrong

    def _fence(self, writer: str) -> Future[None]:
        """Has an id fenced, unless that is under way."""
        with self._lock:
            self._fences = {each: fence for each, fence in self._fences.items() if not fence.done()}
            fence = self._fences.get(writer)
            if fence is None:
                _log.warning(
                    "%s: ending what a killed service may have left open: %s", self._role.name, writer
                )
                if self._writer is None:
                    self._writer = self._backend.transactions(f"{self._own}-fences")
                fence = self._fences[writer] = self._threads.submit(self._writer.fence, writer)
            return fence

    def _wait(self, writer: str, fence: Future[None], until: float) -> PubSubError | None:
        """Returns why the log hasn't ended the id's transaction; None: it has."""
        try:
            fence.result(max(0.0, until - time.monotonic()))
        except PubSubError as error:
            return error
        except (TimeoutError, CancelledError):
            return DeadlineExceeded(f"{writer}: the log hasn't ended its transaction yet; it is tried again")
        return None


def _known(
    share: Share,
    committed: Mapping[TopicPartition, Committed],
    ranges: Mapping[TopicPartition, tuple[int, int]],
) -> Found:
    away = [place for place in share.places if place not in ranges]
    if away:
        topic, number = away[0]
        return BrokerUnavailable(
            f"partition {number} of topic {topic!r} has no leader that answers; it is tried again"
        )
    return [Beginning(committed[place], *ranges[place]) for place in share.places]
