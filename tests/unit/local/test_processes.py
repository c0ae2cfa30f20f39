"""What is known of other processes."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kafka_pubsub.local.processes import wait_until_frozen

#: Computes without end, on two threads.
BUSY = """
import threading
def work():
    while True:
        pass
threading.Thread(target=work, daemon=True).start()
print("on", flush=True)
work()
"""


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="reads /proc: Linux only")
def test_who_is_frozen_does_nothing_more() -> None:
    with subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"on\n"
            process.send_signal(signal.SIGSTOP)
            wait_until_frozen(process.pid, 30)
            threads = Path(f"/proc/{process.pid}/task").glob("*/stat")
            assert [stat.read_text().rpartition(")")[2].split()[0] for stat in threads] == ["T", "T"]
        finally:
            process.kill()
