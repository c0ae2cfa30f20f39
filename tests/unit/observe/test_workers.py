"""The figures of several processes, put together by their parent."""

from __future__ import annotations

import errno
import socket
import threading
from pathlib import Path

import pytest

from kafka_pubsub import PubSub
from kafka_pubsub.counters import Reading
from kafka_pubsub.observe.workers import PATIENCE, Answering, Sums, answering


def value(readings: list[Reading], field: str) -> float:
    (found,) = [each for each in readings if field in each.counts or field in each.gauges]
    return {**found.counts, **found.gauges}[field]


def answers(count: int, lag: int) -> list[Reading]:
    return [
        Reading(
            {"topic": "orders", "subscription": "billing"}, {"acked": count}, {"lag": lag, "in_flight": 1}
        )
    ]


def test_counters_add_up_and_of_what_kafka_knows_the_highest_counts(tmp_path: Path) -> None:
    places = {1: str(tmp_path / "1"), 2: str(tmp_path / "2")}
    with Answering(places[1], lambda: answers(3, 10)), Answering(places[2], lambda: answers(4, 12)):
        found = Sums(lambda: places).read()
    assert value(found, "acked") == 7
    assert value(found, "in_flight") == 2
    assert value(found, "lag") == 12
    assert value(found, "silent_workers") == 0


def test_what_a_process_had_counted_that_has_ended_stays(tmp_path: Path) -> None:
    places = {1: str(tmp_path / "1")}
    sums = Sums(lambda: places)
    with Answering(places[1], lambda: answers(3, 10)):
        sums.read()
    places.clear()
    places[2] = str(tmp_path / "2")
    with Answering(places[2], lambda: answers(4, 1)):
        found = sums.read()
    assert value(found, "acked") == 7
    assert value(found, "lag") == 1


def test_what_a_process_counted_after_the_last_scrape_stays_too(tmp_path: Path) -> None:
    places = {1: str(tmp_path / "1"), 2: str(tmp_path / "2")}
    sums = Sums(lambda: places)
    counted = 3
    with Answering(places[1], lambda: answers(counted, 10)), Answering(places[2], lambda: answers(1, 10)):
        sums.read()
        counted = 5
    del places[1]
    assert value(sums.read(), "acked") == 6
    assert value(sums.read(), "acked") == 6
    places.clear()
    assert value(sums.read(), "acked") == 6


def test_a_process_that_was_never_scraped_counts(tmp_path: Path) -> None:
    places = {1: str(tmp_path / "1")}
    sums = Sums(lambda: places)
    sums.read()
    with Answering(str(tmp_path / "7"), lambda: answers(4, 10)):
        pass
    assert value(sums.read(), "acked") == 4


def test_scrapes_at_once_count_an_ended_process_once(tmp_path: Path) -> None:
    places = {1: str(tmp_path / "1"), 2: str(tmp_path / "2")}
    slow, go_on = threading.Event(), threading.Event()

    def late() -> list[Reading]:
        slow.set()
        assert go_on.wait(0.9)
        return answers(1, 10)

    sums = Sums(lambda: dict(places))
    with Answering(places[1], late), Answering(places[2], lambda: answers(4, 10)):
        first = threading.Thread(target=sums.read)
        first.start()
        assert slow.wait(5)
        del places[2]
        second = threading.Thread(target=sums.read)
        second.start()
        go_on.set()
        first.join(10)
        second.join(10)
        assert value(sums.read(), "acked") == 5


def test_a_reading_that_raises_leaves_the_next_scrape_its_answer(tmp_path: Path) -> None:
    asked = 0

    def read() -> list[Reading]:
        nonlocal asked
        asked += 1
        if asked == 1:
            raise RuntimeError("once")
        return answers(4, 10)

    places = {1: str(tmp_path / "1")}
    sums = Sums(lambda: places)
    with Answering(places[1], read):
        assert value(sums.read(), "silent_workers") == 1
        assert value(sums.read(), "acked") == 4


@pytest.mark.parametrize("view", [True, False])
def test_one_process_asks_kafka_and_the_others_tell_their_counts_alone(tmp_path: Path, *, view: bool) -> None:
    places = {1: str(tmp_path / "1")}
    with PubSub.in_memory() as ps:
        ps.create_topic("orders")
        sub = ps.create_subscription("billing", "orders")
        with sub.pull(lambda message: message.ack()), answering(places[1], view=view):
            sums = Sums(lambda: places)
            found = sums.read()
            assert any("in_flight" in each.gauges for each in found)
            assert any("view_age" in each.gauges for each in found) is view


def test_a_path_that_is_too_long_for_a_socket_ends_no_process(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with answering(str(tmp_path / ("x" * 120)), view=True):
        pass
    assert "TMPDIR" in caplog.text


def test_a_process_that_does_not_answer_counts_as_before_and_is_told(tmp_path: Path) -> None:
    assert PATIENCE <= 1
    places = {1: str(tmp_path / "1")}
    sums = Sums(lambda: places)
    with Answering(places[1], lambda: answers(3, 10)):
        sums.read()
    with socket.socket(socket.AF_UNIX) as hanging:
        hanging.bind(places[1])
        hanging.listen(1)
        found = sums.read()
    assert value(found, "acked") == 3
    assert value(found, "silent_workers") == 1


class FullOnce:
    """A socket of a process that has too many open files at the first question."""

    def __init__(self, real: socket.socket) -> None:
        self._real, self._full = real, True

    def accept(self) -> tuple[socket.socket, object]:
        if self._full:
            self._full = False
            raise OSError(errno.EMFILE, "Too many open files")
        return self._real.accept()

    def fileno(self) -> int:
        return self._real.fileno()

    def close(self) -> None:
        self._real.close()


def test_too_many_open_files_silence_a_process_for_a_moment_only(tmp_path: Path) -> None:
    answers_now = Answering(str(tmp_path / "1"), lambda: answers(3, 10))
    answers_now._socket = FullOnce(answers_now._socket)  # type: ignore[assignment]
    with answers_now:
        assert value(Sums(lambda: {1: str(tmp_path / "1")}).read(), "acked") == 3
