"""A guard ends its process and deletes temporary files when its maker is gone, and nothing else."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from kafka_pubsub.local.orphan_guard import Guard

# The maker: watches both processes, spares the second, and is killed or lets go.
MAKER = """
import os, signal, sys
from pathlib import Path
from kafka_pubsub.local.orphan_guard import Guard
first, second = map(int, sys.argv[2:4])
guard = Guard(Path(sys.argv[1]))
guard.watch(first)
guard.watch(second)
guard.spare(second)
if sys.argv[4] == "release":
    guard.release()
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def sleepers() -> Iterator[list[subprocess.Popen[bytes]]]:
    with ExitStack() as stack:
        made = [stack.enter_context(subprocess.Popen(["sleep", "300"])) for _ in range(2)]
        yield made
        for each in made:
            each.kill()


def make(folder: Path, sleepers: list[subprocess.Popen[bytes]], how: str) -> None:
    pids = [str(each.pid) for each in sleepers]
    # The guard holds our end of this pipe too: when the pipe is read to its end, the guard has done its work.
    done = subprocess.run(
        [sys.executable, "-c", MAKER, str(folder), *pids, how], capture_output=True, timeout=60, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr


def test_what_is_watched_goes_with_its_maker_paused_or_not(
    tmp_path: Path, sleepers: list[subprocess.Popen[bytes]]
) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()
    (folder / "data").touch()
    watched, spared = sleepers
    watched.send_signal(signal.SIGSTOP)
    make(folder, sleepers, "die")
    assert watched.wait(60) == -signal.SIGKILL
    assert spared.poll() is None
    # We are the parent of the watched process, so it was a corpse until now; the directory goes after that.
    deadline = 200
    while folder.exists() and deadline:
        deadline -= 1
        subprocess.run(["sleep", "0.1"], check=True)
    assert not folder.exists()


def test_a_guard_that_was_released_leaves_everything_alone(
    tmp_path: Path, sleepers: list[subprocess.Popen[bytes]]
) -> None:
    make(tmp_path, sleepers, "release")
    assert [each.poll() for each in sleepers] == [None, None]
    assert tmp_path.exists()


def test_telling_a_guard_that_is_gone_is_no_error(sleepers: list[subprocess.Popen[bytes]]) -> None:
    guard = Guard()
    guard.release()
    guard.watch(sleepers[0].pid)
    guard.spare(sleepers[0].pid)
    guard.release()
