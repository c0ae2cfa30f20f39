"""A process that uses the library: forks before and after use, and the log of librdkafka."""

from __future__ import annotations

import logging
import subprocess
import sys
import textwrap

import pytest

from kafka_pubsub import PubSub
from kafka_pubsub.errors import BrokerUnavailable
from kafka_pubsub.local.pytest_plugin import RunningKafka
from tests.acceptance.support import PATIENCE, Room

HEAD = """
    import os, signal, sys
    from kafka_pubsub import FailedPrecondition, PubSub

    signal.alarm(60)
    bootstrap, name, subscription = sys.argv[1:]

    def in_child(work):
        pid = os.fork()
        if pid == 0:
            try:
                work()
            except BaseException as error:
                print(f"{type(error).__name__}: {error}", file=sys.stderr)
                os._exit(1)
            os._exit(0)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
"""


def run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    program = textwrap.dedent(HEAD) + textwrap.dedent(script)
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE,
        check=False,
    )


def test_a_fork_after_use_gives_a_clear_error_and_leaves_the_parent_alone(
    kafka: RunningKafka, room: Room
) -> None:
    topic, subscription = room.pair()
    ended = run(
        """
        ps = PubSub(bootstrap)
        topic, sub = ps.topic(name), ps.subscription(subscription)
        topic.publish(b"0", ordering_key="key").result(30)
        (message,) = sub.receive(1, timeout=30)

        def child():
            for call in (
                lambda: topic.publish(b"x", ordering_key="key"),
                lambda: topic.flush(),
                lambda: sub.receive(1, timeout=1),
                lambda: sub.pull(print),
                lambda: ps.list_topics(),
                lambda: ps.topic("other").publish(b"x"),
            ):
                try:
                    call()
                except FailedPrecondition as error:
                    assert "fork" in error.message, error
                else:
                    raise AssertionError("no error")
            ps.close()
            with PubSub(bootstrap) as mine:  # a new one is the way
                mine.topic(name).publish(b"1", ordering_key="key").result(30)

        assert in_child(child) == 0
        message.ack()
        (message,) = sub.receive(1, timeout=30)
        assert message.data == b"1"
        message.ack()
        topic.publish(b"2", ordering_key="key").result(30)
        ps.close()
        print("fine")
        """,
        kafka.bootstrap,
        topic.name,
        subscription.name,
    )
    assert (ended.returncode, ended.stdout) == (0, "fine\n"), ended.stderr


def test_a_fork_before_use_works_in_the_child_and_in_the_parent(kafka: RunningKafka, room: Room) -> None:
    """As gunicorn and Celery do: made while the application is loaded, used in each worker."""
    topic, subscription = room.pair()
    ended = run(
        """
        ps = PubSub(bootstrap)
        topic, sub = ps.topic(name), ps.subscription(subscription)

        def child():
            topic.publish(b"child", ordering_key="key").result(30)
            (message,) = sub.receive(1, timeout=30)
            assert message.data == b"child"
            message.ack()
            ps.close()

        assert in_child(child) == 0
        topic.publish(b"parent", ordering_key="key").result(30)
        (message,) = sub.receive(1, timeout=30)
        assert message.data == b"parent"
        message.ack()
        ps.close()
        print("fine")
        """,
        kafka.bootstrap,
        topic.name,
        subscription.name,
    )
    assert (ended.returncode, ended.stdout) == (0, "fine\n"), ended.stderr


def test_librdkafkas_log_goes_to_logging_and_nowhere_else(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    with (
        caplog.at_level(logging.DEBUG, "kafka_pubsub.librdkafka"),
        PubSub("127.0.0.1:1") as ps,
        pytest.raises(BrokerUnavailable),
    ):
        ps.list_topics()
    lines = [record.getMessage() for record in caplog.records if record.name == "kafka_pubsub.librdkafka"]
    assert any("127.0.0.1:1" in line for line in lines), caplog.text
    assert "127.0.0.1:1" not in "".join(capfd.readouterr())
