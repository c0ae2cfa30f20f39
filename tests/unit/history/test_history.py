"""A history's file: told events are there, whatever becomes of the process, and the checker reads them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from kafka_pubsub.history.history import HistoryFile, fingerprint, this_host
from kafka_pubsub.history.protocol import History, Move, Standing
from tests.checker.check import check
from tests.checker.reading import NotAHistory

SMALL = 1 << 16


def lines(path: Path) -> list[dict[str, Any]]:
    whole = path.read_bytes().split(b"\0")[0]
    return [json.loads(line) for line in whole.splitlines() if line]


def made(path: Path) -> HistoryFile:
    return HistoryFile(path, role="subscriber", topic="orders", subscription="billing", segment=SMALL)


def test_it_is_what_the_client_tells(tmp_path: Path) -> None:
    file = made(tmp_path / "a.jsonl")
    history: History = file  # mypy holds the two against each other
    history.assign(0, 1, Standing(3, [(5, 7)]), Standing(0), 9)
    history.relocate(1, 0, 1, [Move(4, None, 2, 1.5, "nack"), Move(5, 7, 2, None, "park")])
    history.commit(1, 0, 1, Standing(5, [(6, 8)]), None)
    history.answer(1, 0, 1, None, [(4, 9)])
    file.close()
    _, assign, relocate, commit, answer, close = lines(tmp_path / "a.jsonl")
    assert (assign["main"], assign["retry"], assign["retry_end"]) == ([3, [5, 7]], [0, []], 9)
    assert relocate["moves"] == [[4, None, 2, 1500, "nack"], [5, 7, 2, None, "park"]]
    assert commit["main"] == [5, [6, 8]]
    assert "retry" not in commit
    assert (answer["accepted"], answer["placed"]) == (None, [[4, 9]])
    assert close["event"] == "close"


def test_its_head_joins_the_clocks_and_says_who_wrote_it(tmp_path: Path) -> None:
    made(tmp_path / "a.jsonl").close()
    head = lines(tmp_path / "a.jsonl")[0]
    assert (head["event"], head["pid"], head["host"]) == ("open", os.getpid(), this_host())
    assert head["wall"] > head["t"] > 0


def test_keys_and_errors_of_any_kind_are_told(tmp_path: Path) -> None:
    file = made(tmp_path / "a.jsonl")
    odd = 'quote " newline \n snowman ☃ broken \udcff'
    file.send(1, odd, "00")
    file.handler_end(0, 1, 1, odd)
    file.close()
    _, send, end, _ = lines(tmp_path / "a.jsonl")
    assert send["key"] == end["error"] == odd


def test_threads_and_segments_lose_and_mix_nothing(tmp_path: Path) -> None:
    file = made(tmp_path / "a.jsonl")

    def tell(thread: int) -> None:
        for at in range(2000):
            file.ack(thread, at, 1, 1)

    threads = [threading.Thread(target=tell, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    file.handler_end(0, 1, 1, "x" * 3 * SMALL)  # longer than a segment
    file.close()
    told = lines(tmp_path / "a.jsonl")
    for number in range(4):
        assert [e["offset"] for e in told if e["event"] == "ack" and e["partition"] == number] == list(
            range(2000)
        )
    assert (tmp_path / "a.jsonl").stat().st_size > 2 * SMALL


def test_sigkill_takes_nothing_that_was_told(tmp_path: Path) -> None:
    program = (
        "import os, signal, sys; from pathlib import Path; from kafka_pubsub.history.history import HistoryFile\n"
        "file = HistoryFile(Path(sys.argv[1]), role='subscriber', topic='orders')\n"
        "for at in range(1000): file.ack(0, at, 1, 1)\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    path = tmp_path / "a.jsonl"
    ended = subprocess.run([sys.executable, "-c", program, str(path)], check=False)
    assert ended.returncode == -signal.SIGKILL
    assert [event["offset"] for event in lines(path)[1:]] == list(range(1000))


def test_a_file_that_is_there_isnt_touched(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("mine")
    with pytest.raises(FileExistsError):
        made(tmp_path / "a.jsonl")


def test_closing_twice_is_closing(tmp_path: Path) -> None:
    file = made(tmp_path / "a.jsonl")
    file.close()
    file.close()
    assert len(lines(tmp_path / "a.jsonl")) == 2


@pytest.mark.parametrize(
    "other",
    [
        (b"l", b"data", {}),
        (b"k", b"dat", {}),
        (None, b"data", {}),
        (b"k", b"data", {"a": ""}),
        (b"", b"kdata", {}),
    ],
)
def test_the_fingerprint_covers_all_that_was_given(other: tuple[bytes | None, bytes, dict[str, str]]) -> None:
    assert fingerprint(b"k", b"data", {}) != fingerprint(*other)
    assert len(fingerprint(*other)) == 16


def test_half_a_line_at_the_end_is_no_event_and_no_fault(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    file = made(path)
    file.ack(0, 0, 1, 1)
    whole = path.read_bytes().split(b"\0")[0]
    path.write_bytes(whole + b'{"event":"ack","t":1' + bytes(100))
    assert check([path]).counts.keys() == {"unowned", "vanished"}


@pytest.mark.parametrize("text", ["", "{}", "nonsense", '{"event":"open","t":1}'])
def test_what_is_no_history_isnt_checked(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.jsonl").write_text(text + "\n")
    with pytest.raises(NotAHistory, match="first line"):
        check([tmp_path / "a.jsonl"])
