"""The backend as a whole: a wrong address, forks, threads that end."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable

import pytest

from kafka_pubsub.errors import BrokerUnavailable, FailedPrecondition
from kafka_pubsub.kafka.admin import KafkaAdmin
from kafka_pubsub.kafka.backend import KafkaBackend
from kafka_pubsub.local.pytest_plugin import RunningKafka
from tests.integration.kafka.conftest import MakeBackend
from tests.integration.kafka.member import Member, until

Unique = Callable[[str], str]

#: Nobody listens on port 1.
NOWHERE = "127.0.0.1:1"


@pytest.mark.parametrize("address", [NOWHERE, "no-such-host.invalid:9092"])
def test_a_wrong_address_is_told_with_its_reason(address: str) -> None:
    backend = KafkaBackend(address)
    admin = KafkaAdmin(backend.handles, deadline=2.0)
    begin = time.monotonic()
    with pytest.raises(BrokerUnavailable, match=r"no broker answers at .*check the address") as told:
        admin.topic("t")
    assert time.monotonic() - begin < 15
    assert address in told.value.message
    admin.close()
    backend.close()


def test_a_reader_at_a_wrong_address_tells_its_listener_and_closes(unique: Unique) -> None:
    backend = KafkaBackend(NOWHERE)
    member = Member(backend, unique("g"), unique("t"))

    def told() -> object:
        member.reader.read(1, 0.05)
        return member.failures

    until(told)
    partition, error, fatal = member.failures[0]
    assert (partition, fatal) == (None, False)
    assert isinstance(error, BrokerUnavailable)
    assert "Connection refused" in error.message
    for _ in range(20):
        member.reader.read(1, 0.05)
    # librdkafka says so some 20 times a second.
    assert len(member.failures) < 6
    begin = time.monotonic()
    backend.close()
    assert time.monotonic() - begin < 15
    assert member.reader.closed


def test_closing_ends_every_thread(make_backend: MakeBackend, unique: Unique) -> None:
    make_backend().admin.topic_names()
    before = _native_threads()
    backend = make_backend()
    topic = unique("t")
    backend.admin.create_topic(topic, 1, None, {})
    backend.catalog.topics()
    Member(backend, unique("g"), topic)
    assert _native_threads() > before
    backend.close()
    until(lambda: _native_threads() <= before)
    for call in (backend.admin.topic_names, backend.catalog.topics, lambda: backend.reader("g", "m")):
        with pytest.raises(FailedPrecondition, match="closed"):
            call()


def _native_threads() -> int:
    # librdkafka's threads, which `threading` doesn't know.
    return len(os.listdir("/proc/self/task")) if sys.platform == "linux" else threading.active_count()


def test_a_child_of_fork_is_told_clearly_and_ends(kafka: RunningKafka) -> None:
    """Used before the fork: refused in the child, which still ends, and fine in the parent."""
    _run(
        f"""
        import gc, os, sys
        from kafka_pubsub.errors import FailedPrecondition
        from kafka_pubsub.kafka.backend import KafkaBackend

        used = KafkaBackend({kafka.bootstrap!r})
        used.admin.topic_names()
        used.catalog.topics()
        reader = used.reader("a-group-of-forks", "m")
        child = os.fork()
        if child == 0:
            refused = 0
            for call in (
                used.admin.topic_names,
                used.catalog.topics,
                lambda: used.reader("g", "m"),
                lambda: reader.read(1, 0),
            ):
                try:
                    call()
                except FailedPrecondition as failure:
                    refused += "in the child" in failure.message
            reader.close()
            used.close()
            del used, reader
            gc.collect()
            # Not os._exit: destructors run, and would wait for threads that the fork didn't copy.
            sys.exit(40 + refused)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 44, status
        used.admin.topic_names()
        reader.close()
        used.close()
        print("both ended")
        """
    )


def test_what_was_not_used_before_a_fork_works_in_every_child(kafka: RunningKafka) -> None:
    _run(
        f"""
        import os, sys
        from kafka_pubsub.kafka.backend import KafkaBackend

        unused = KafkaBackend({kafka.bootstrap!r})
        children = []
        for _ in range(4):
            child = os.fork()
            if child == 0:
                unused.admin.topic_names()
                unused.catalog.topics()
                unused.close()
                sys.exit(7)
            children.append(child)
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        assert codes == [7] * 4, codes
        unused.admin.topic_names()
        unused.close()
        print("both ended")
        """
    )


def _run(script: str) -> None:
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (run.returncode, run.stdout) == (0, "both ended\n"), run.stderr
