"""The commits of one reader: one at a time, in requests that the broker can store, on a thread that waits for answers.

Theory. librdkafka's own asynchronous commit isn't used (2.16): it gives its answers inside reads only, and nothing is
read while the fetcher waits for room, calls a callback or waits for the broker. And when one partition of a request is
refused it reports all of them as refused. So a thread waits for each answer. It begins with the first commit, serves
those that follow, and ends after a while without commits, so that an idle reader has no such thread.

Rules
1. A request becomes one batch in the broker's offsets topic; one that is too large fails as a whole, so a commit
   of many full maps is cut into several requests.
2. A commit that can't be stored at all (no offset, a NUL, half a surrogate pair) is refused for its partition alone.
3. One commit at a time; another one is refused unsent. `settle` waits until `answered` has returned.
4. When that takes too long the commit is given up: what librdkafka is sending stays unanswered, and the rest isn't
   sent, because that could happen under a newer membership.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping

from confluent_kafka import TopicPartition as KafkaPartition

from kafka_pubsub.errors import (
    BrokerUnavailable,
    DeadlineExceeded,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    PermissionDenied,
    PubSubError,
)
from kafka_pubsub.log.kafka.bounded_calls import ask
from kafka_pubsub.log.kafka.client_factory import Trouble
from kafka_pubsub.log.kafka.conversions import kafka_partition, name_of, plain
from kafka_pubsub.log.kafka.errors import translate
from kafka_pubsub.log.kafka.rights import Doing, of_group, on_topics
from kafka_pubsub.model import Answered, CommitAnswers, Committed, TopicPartition

__all__ = ["Commits", "fenced_requests", "requests"]

_LOGGER = logging.getLogger("kafka_pubsub.reader")

#: Seconds for which a request is sent again after a transient answer; the next commit follows anyhow.
_AGAIN = 2.0

#: Seconds after which a commit is given up. Against a broker that is down librdkafka itself gives up after the
#: session's 6 s, against a frozen one after a minute.
_PATIENCE = 7.0

#: Seconds without a commit after which the thread ends: a busy subscription commits six times a second.
_IDLE = 2.0

#: Refusals of a request that may concern one partition of several.
_OF_ONE_PARTITION = (InvalidArgument, NotFound, PermissionDenied)

#: No answer came, so that other requests would wait as long.
_NO_ANSWER = (BrokerUnavailable, DeadlineExceeded)

#: Bytes of metadata in one commit request. A request becomes one batch in the broker's offsets topic, which takes
#: 1 MiB: 84 full maps of 12 kB pass, 86 fail as a whole. Half leaves room for group and topic names.
_REQUEST_BYTES = 512 * 1024

#: Bytes that a partition costs in that batch beside its metadata: topic (up to 249), group (up to 249), numbers.
_OVERHEAD = 600


def _weight(metadata: str) -> int:
    """Returns the bytes in the broker's batch; raises `InvalidArgument` if the text can't be stored."""
    if "\0" in metadata:
        raise InvalidArgument("the text beside an offset can't hold a NUL character")
    try:
        return _OVERHEAD + len(metadata.encode())
    except UnicodeEncodeError as failure:
        raise InvalidArgument(f"the text beside an offset can't be encoded: {failure.reason}") from None


def requests(
    positions: Mapping[TopicPartition, Committed], answers: dict[TopicPartition, PubSubError | None]
) -> Iterator[list[KafkaPartition]]:
    """Yields the positions in requests that the broker can store; those that can't be stored go to `answers`."""
    request: list[KafkaPartition] = []
    weight = 0
    for partition, to in positions.items():
        try:
            if to.offset is None or to.offset < 0:
                raise InvalidArgument(f"{to.offset} isn't an offset that can be committed")
            adding = _weight(to.metadata)
        except InvalidArgument as refused:
            answers[partition] = refused
            continue
        if request and weight + adding > _REQUEST_BYTES:
            yield request
            request, weight = [], 0
        request.append(kafka_partition(partition, to))
        weight += adding
    if request:
        yield request


def fenced_requests(positions: Mapping[TopicPartition, Committed], doing: str) -> list[list[KafkaPartition]]:
    """Returns all requests of a transaction's positions; raises why a position can't be stored, or if there is none."""
    if not positions:
        raise InvalidArgument(f"{doing}: without a position nothing fences it against a newer owner")
    refused: dict[TopicPartition, PubSubError | None] = {}
    found = list(requests(positions, refused))
    for problem in refused.values():
        if problem is not None:
            raise problem
    return found


class _Commit:
    """The commit that is being sent."""

    def __init__(self, positions: Mapping[TopicPartition, Committed], answered: Answered) -> None:
        self.positions = positions
        self.answered = answered
        self.began = time.monotonic()
        self.given_up = False


class Commits:
    """Sends the commits of one reader: by `send`, librdkafka's synchronous commit, while `is_member` returns True."""

    def __init__(
        self,
        group: str,
        send: Callable[[list[KafkaPartition]], list[KafkaPartition]],
        is_member: Callable[[], bool],
        address: str,
        trouble: Trouble,
    ) -> None:
        self._group = group
        self._doing = of_group(group, "commit")
        self._send = send
        self._is_member = is_member
        self._address = address
        self._trouble = trouble
        self._changed = threading.Condition()
        self._commit: _Commit | None = None
        self._running = self._closed = False

    @property
    def busy(self) -> bool:
        """Whether a commit is unanswered."""
        return self._commit is not None

    def begin(self, positions: Mapping[TopicPartition, Committed], answered: Answered) -> None:
        """Begins a commit; `answered` is called once, on the thread that waits for the answers."""
        with self._changed:
            if not (busy := self._commit is not None):
                if not self._running:
                    threading.Thread(target=self._run, name="kafka_pubsub-commit", daemon=True).start()
                    self._running = True
                self._commit = _Commit(positions, answered)
                self._changed.notify_all()
        if busy:
            refused = BrokerUnavailable(f"{self._doing}: the one before isn't answered yet; nothing was sent")
            answered(dict.fromkeys(positions, refused))

    def settle(self) -> bool:
        """Waits until the commit was answered and its `answered` has returned; False: that takes too long."""
        with self._changed:
            commit = self._commit
            if commit is None:
                return True
            left = max(0.0, commit.began + _PATIENCE - time.monotonic())
            if self._changed.wait_for(lambda: self._commit is not commit, left):
                return True
            commit.given_up = True
            return False

    def close(self) -> None:
        """Ends the thread, as soon as no commit is unanswered."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    # -- on the thread ---------------------------------------------------------------------------------------

    def _run(self) -> None:
        while (commit := self._next()) is not None:
            try:
                answers = self._answers(commit)
            except Exception as failure:  # a bug; without an answer the commit would stay unanswered for good
                _LOGGER.exception("%s", self._doing)
                answers = dict.fromkeys(commit.positions, PubSubError(f"{self._doing}: {failure!r}"))
            try:
                commit.answered(answers)
            except Exception:
                _LOGGER.exception("%s: what is done about its answer", self._doing)
            if (took := time.monotonic() - commit.began) > _PATIENCE:
                _LOGGER.info("%s: it took %.0f s until it was answered", self._doing, took)
            with self._changed:
                self._commit = None
                self._changed.notify_all()

    def _next(self) -> _Commit | None:
        with self._changed:
            self._changed.wait_for(lambda: self._commit is not None or self._closed, _IDLE)
            self._running = self._commit is not None
            return self._commit

    def _answers(self, commit: _Commit) -> CommitAnswers:
        answers: dict[TopicPartition, PubSubError | None] = {}
        silence: PubSubError | None = None
        for request in requests(commit.positions, answers):
            if silence is not None:
                answers.update(dict.fromkeys(plain(request), silence))
                continue
            answers.update(self._request(commit, request))
            first = answers[plain(request)[0]]
            silence = first if isinstance(first, _NO_ANSWER) else None
        return answers

    def _request(self, commit: _Commit, offsets: list[KafkaPartition]) -> CommitAnswers:
        try:
            found = ask(
                lambda _: self._send_one(commit, offsets),
                of_group(self._group, "commit", *(each.topic for each in offsets)),
                address=self._address,
                trouble=self._trouble,
                deadline=_AGAIN,
            )
        except PubSubError as refused:
            if len(offsets) == 1 or not isinstance(refused, _OF_ONE_PARTITION):
                return dict.fromkeys(plain(offsets), refused)
            # librdkafka raises one partition's error for all of them, though the others were stored.
            alone = [self._request(commit, [each]) for each in offsets]
            return {partition: answer for each in alone for partition, answer in each.items()}
        answers = {TopicPartition(each.topic, each.partition): each.error for each in found}
        return {
            place: None if error is None else translate(error, self._doing_in(place))
            for place, error in answers.items()
        }

    def _doing_in(self, place: TopicPartition) -> Doing:
        needs = (*self._doing.needs, *on_topics("READ", place.topic))
        return Doing(f"{self._doing} in {name_of(place)}", *needs)

    def _send_one(self, commit: _Commit, offsets: list[KafkaPartition]) -> list[KafkaPartition]:
        if commit.given_up:
            raise FailedPrecondition(f"{self._doing}: given up, because its partitions are gone")
        if not self._is_member():
            # The broker would take it for a commit from outside the group, and not fence it.
            raise FailedPrecondition(f"group {self._group!r}: not a member of it now")
        return self._send(offsets)
