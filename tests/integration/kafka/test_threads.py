"""A commit is answered while another thread reads, waits, or is inside a rebalance.

The Python client lets a single thread at a time into a consumer; `consumer_guard.py` goes past that by a name that is
internal to the client. These tests fail when it no longer works.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from kafka_pubsub.errors import PubSubError
from kafka_pubsub.log.kafka.backend import KafkaBackend
from kafka_pubsub.model import Committed, TopicPartition
from tests.integration.kafka.member import PATIENCE, Member
from tests.support import commit, until

Unique = Callable[[str], str]


def _started(backend: KafkaBackend, unique: Unique) -> tuple[Member, TopicPartition]:
    topic = unique("t")
    backend.admin.create_topic(topic, 1, None, {})
    member = Member(backend, unique("g"), topic)
    deadline = time.monotonic() + PATIENCE
    while not member.next:
        assert time.monotonic() < deadline
        member.reader.read(1, 0.1)
    return member, TopicPartition(topic, 0)


def test_commits_are_answered_while_a_read_waits(backend: KafkaBackend, unique: Unique) -> None:
    member, at = _started(backend, unique)
    assert commit(member.reader, {at: Committed(0, "")}) == {at: None}
    reading = threading.Thread(target=lambda: member.reader.read(1, 4))
    reading.start()
    begin = time.monotonic()
    for _ in range(20):
        assert commit(member.reader, {at: Committed(0, "")}) == {at: None}
        member.reader.committed([at])
    # Behind the read it would be 4 s.
    assert time.monotonic() - begin < 2
    assert reading.is_alive()
    reading.join(PATIENCE)
    member.reader.close()


def test_a_listener_may_wait_for_a_commit_of_another_thread(backend: KafkaBackend, unique: Unique) -> None:
    answers: list[PubSubError | None] = []

    class Waiting(Member):
        def revoked(self, partitions: Sequence[TopicPartition]) -> None:
            positions = {each: Committed(0, "from elsewhere") for each in partitions}
            other = threading.Thread(target=lambda: answers.extend(commit(self.reader, positions).values()))
            other.start()
            other.join(PATIENCE)

    topic, group = unique("t"), unique("g")
    backend.admin.create_topic(topic, 1, None, {})
    member = Waiting(backend, group, topic).start()
    until(lambda: member.next)
    begin = time.monotonic()
    member.stop()
    assert answers == [None]
    assert time.monotonic() - begin < 4
    assert backend.admin.group_offsets(group, topic)[0].metadata == "from elsewhere"


def test_a_close_waits_for_a_running_call(backend: KafkaBackend, unique: Unique) -> None:
    """Freeing the consumer under another thread's call would take the process down."""
    for _ in range(5):
        member, at = _started(backend, unique)
        stop = threading.Event()

        def commit_on(member: Member = member, at: TopicPartition = at, stop: threading.Event = stop) -> None:
            while not stop.is_set():
                try:
                    commit(member.reader, {at: Committed(0, "")})
                except PubSubError:
                    return

        threads = [threading.Thread(target=commit_on) for _ in range(4)]
        for thread in threads:
            thread.start()
        member.reader.close()
        stop.set()
        for thread in threads:
            thread.join(PATIENCE)
            assert not thread.is_alive()
