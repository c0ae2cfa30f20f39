"""A flag that a signal sets, whatever the main thread is doing."""

from __future__ import annotations

import subprocess
import sys
import threading

from kafka_pubsub.services.signals import StopFlag

#: The signal comes at any step of the wait: with a `threading.Event` as the flag the wait hangs within some ten rounds.
SCRIPT = """
import random, signal
from kafka_pubsub.services.signals import StopFlag

for _ in range(3000):
    flag = StopFlag()
    signal.signal(signal.SIGALRM, flag.take)
    signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-5, 3e-4))
    while not flag.wait(1e-5):
        pass
"""


def test_a_signal_in_the_middle_of_a_wait_is_taken() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_wait_ends_with_its_time_or_with_the_flag() -> None:
    flag = StopFlag()
    assert not flag.wait(0.0)
    setter = threading.Timer(0.01, flag.set)
    setter.start()
    assert flag.wait()
    assert flag.wait(0.0)
    setter.join()


def test_a_flag_waits_no_longer_than_it_is_told() -> None:
    flag = StopFlag()
    assert not flag.wait(0.01)
    flag.set()
    assert flag.wait(60)
    assert flag.is_set()
