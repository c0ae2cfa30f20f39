"""The backend as a whole: a wrong address, forks, threads that end."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kafka_pubsub.errors import BrokerUnavailable, FailedPrecondition
from kafka_pubsub.local.pytest_plugin import RunningKafka
from kafka_pubsub.log.kafka.admin import KafkaAdmin
from kafka_pubsub.log.kafka.backend import KafkaBackend
from tests.integration.kafka.conftest import MakeBackend
from tests.integration.kafka.member import Member
from tests.support import until

Unique = Callable[[str], str]

#: Nobody listens on port 1.
NOWHERE = "127.0.0.1:1"


@pytest.mark.parametrize("address", [NOWHERE, "no-such-host.invalid:9092"])
def test_a_wrong_address_is_reported_with_its_reason(address: str) -> None:
    backend = KafkaBackend(address)
    admin = KafkaAdmin(backend.handles, deadline=2.0)
    begin = time.monotonic()
    with pytest.raises(BrokerUnavailable, match=r"no broker answers at .*check the address") as told:
        admin.topic("t")
    assert time.monotonic() - begin < 15
    assert address in told.value.message
    admin.close()
    backend.close()


def test_a_reader_at_a_wrong_address_reports_its_listener_and_closes(unique: Unique) -> None:
    backend = KafkaBackend(NOWHERE)
    member = Member(backend, unique("g"), unique("t"))

    def told() -> object:
        member.reader.read(1, 0.05)
        return member.failures

    until(told)
    partition, error, fatal = member.failures[0]
    assert (partition, fatal) == (None, False)
    assert isinstance(error, BrokerUnavailable)
    assert "connection refused" in error.message
    for _ in range(20):
        member.reader.read(1, 0.05)
    # librdkafka says so some 20 times a second.
    assert len(member.failures) < 6
    begin = time.monotonic()
    backend.close()
    assert time.monotonic() - begin < 15
    assert member.reader.closed


def test_after_close_everything_is_refused(make_backend: MakeBackend) -> None:
    backend = make_backend()
    backend.catalog.topics()
    backend.close()
    for call in (backend.admin.topic_names, backend.catalog.topics, lambda: backend.reader("g", "m")):
        with pytest.raises(FailedPrecondition, match="closed"):
            call()


@pytest.mark.skipif(sys.platform != "linux", reason="counts librdkafka's threads in /proc")
def test_closing_ends_every_thread(kafka: RunningKafka, unique: Unique) -> None:
    """In a process of its own: other tests' clients have threads that come and go."""
    _run(
        f"""
        import os
        from kafka_pubsub.log.kafka.backend import KafkaBackend
        from tests.integration.kafka.member import Member
        from tests.support import until

        backend = KafkaBackend({kafka.bootstrap!r})
        backend.admin.create_topic({unique("t")!r}, 1, None, {{}})
        backend.catalog.topics()
        Member(backend, {unique("g")!r}, {unique("t")!r})
        assert len(os.listdir("/proc/self/task")) > 5
        backend.close()
        # Whoever has joined a thread is told before the kernel takes it off its list.
        until(lambda: len(os.listdir("/proc/self/task")) == 1, "the end of every thread", 10)
        print("done")
        """
    )


def test_a_child_of_fork_is_reported_clearly_and_ends(kafka: RunningKafka) -> None:
    """Used before the fork: refused in the child, which still ends, and fine in the parent."""
    _run(
        f"""
        import gc, os, sys
        from kafka_pubsub.errors import FailedPrecondition
        from kafka_pubsub.log.kafka.backend import KafkaBackend

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
        print("done")
        """
    )


def test_what_was_not_used_before_a_fork_works_in_every_child(kafka: RunningKafka) -> None:
    _run(
        f"""
        import os, sys
        from kafka_pubsub.log.kafka.backend import KafkaBackend

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
        print("done")
        """
    )


def _run(script: str) -> None:
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=Path(__file__).parents[3],
    )
    assert (run.returncode, run.stdout) == (0, "done\n"), run.stderr
