"""Asking another thread, and waiting for its answer."""

from __future__ import annotations

import threading

import pytest

from kafka_pubsub.errors import FailedPrecondition
from kafka_pubsub.log.question import Question


def test_the_answer_is_what_the_call_returned() -> None:
    question = Question(lambda: 7)
    other = threading.Thread(target=question.run)
    other.start()
    assert question.wait(lambda: True, None) == 7
    other.join()


def test_what_the_call_raised_is_raised_to_the_one_that_waits() -> None:
    def fail() -> int:
        raise KeyError("missing")

    question = Question(fail)
    question.run()
    with pytest.raises(KeyError):
        question.wait(lambda: True, None)


def test_a_thread_that_is_gone_is_not_waited_for() -> None:
    with pytest.raises(FailedPrecondition, match="the stream has ended"):
        Question(lambda: 7).wait(lambda: False, None)
    with pytest.raises(FailedPrecondition, match="the stream has ended"):
        Question(lambda: 7).wait(lambda: True, 0.0)
