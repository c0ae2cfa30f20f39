"""The figures of the processes of `kafka-pubsub run`, put together by their parent.

Theory. A process of the app answers at a socket in the file system, and the parent asks all of them at a scrape. So one
address shows the sums of all processes, whichever of them is asked, as operators expect of one container.

Rules
1. The parent waits `PATIENCE` seconds at most, for all together. A process that doesn't answer counts as it answered
   last, and `kafka_pubsub_silent_workers` tells how many don't: a sum that fell would look like a restart.
2. What a process had counted that has ended stays in the sums: one that ends in good order leaves its last figures in a
   file beside its socket, of another those of the last scrape count.
3. The parent imports no client of Kafka (`handlers/processes.py`).
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from kafka_pubsub.counters import PARTS, Reading, merged
from kafka_pubsub.observe.metrics import decode, encode
from kafka_pubsub.observe.names import HIGHEST

__all__ = ["PATIENCE", "Answering", "Sums", "answering"]

log = logging.getLogger("kafka_pubsub.metrics")

#: Seconds that a scrape waits for the processes.
PATIENCE: Final = 1.0
#: Seconds until a socket that can't accept, because too many files are open, is asked again.
PAUSE: Final = 0.1
#: How the name of a file ends in which a process leaves its last figures.
LAST: Final = ".last"


class Answering:
    """Answers questions for this process's figures at a socket, on a thread of its own.

    `last` gives what it leaves at its end; None, the default, is `read`.
    """

    def __init__(
        self,
        path: str,
        read: Callable[[], Iterable[Reading]],
        last: Callable[[], Iterable[Reading]] | None = None,
    ) -> None:
        self._read, self._path, self._last = read, path, last or read
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(path)
        self._socket.listen(8)
        self._thread = threading.Thread(target=self._run, name="kafka_pubsub-figures", daemon=True)

    def __enter__(self) -> Answering:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()
        with contextlib.suppress(OSError):
            os.unlink(self._path)
        with contextlib.suppress(OSError):
            Path(self._path + ".part").write_bytes(encode(self._last()))
            os.rename(self._path + ".part", self._path + LAST)

    def _run(self) -> None:
        while True:
            try:
                asked, _ = self._socket.accept()
            except OSError:
                if self._socket.fileno() < 0:
                    return  # it is closed
                time.sleep(PAUSE)  # too many files are open
                continue
            try:
                with asked:
                    asked.settimeout(PATIENCE)
                    asked.sendall(encode(self._read()))
            except OSError:
                continue  # the parent has gone, or waits no longer
            except Exception:
                log.warning("the figures of this process couldn't be told", exc_info=True)


def answering(path: str, *, view: bool) -> AbstractContextManager[object]:
    """Returns what answers for all figures of this process; nothing does where the socket can't be made.

    `view`: also for what Kafka knows. One process of a run tells it, since the others would be told the same.
    """
    from kafka_pubsub.observe.metrics import process_readings

    try:
        return Answering(path, process_readings() if view else PARTS.read, PARTS.read)
    except OSError as error:
        log.warning(
            "/metrics has no figures of this process: %s: %s; TMPDIR chooses the directory", path, error
        )
        return contextlib.nullcontext()


class Sums:
    """The figures of all processes. `places`: the socket of each process that runs now, by its number of start."""

    def __init__(self, places: Callable[[], dict[int, str]]) -> None:
        self._places = places
        #: The last answer of each process, those that have ended included.
        self._last: dict[int, list[Reading]] = {}
        self._past: list[Reading] = []
        self._folders: set[str] = set()
        self._lock = threading.Lock()

    def _read_last(self, places: Mapping[int, str]) -> None:
        """Takes the last figures of processes that have ended."""
        for folder in self._folders:
            for file in Path(folder).glob("*" + LAST):
                number = int(file.name.removesuffix(LAST))
                if number not in places:
                    with contextlib.suppress(OSError, ValueError):
                        self._last[number] = decode(file.read_bytes())
                    file.unlink(missing_ok=True)

    def read(self) -> list[Reading]:
        """Asks all processes, and returns the sums."""
        with self._lock:  # of two scrapes at once, the later answers must not be followed by the earlier ones
            places = self._places()
            with ThreadPoolExecutor(max(1, len(places))) as threads:
                asked = {threads.submit(_ask, path): number for number, path in places.items()}
                done, late = wait(asked, PATIENCE * 1.5)
            silent = len(late)
            for each in done:
                try:
                    self._last[asked[each]] = each.result()
                except (OSError, ValueError):
                    silent += 1
            self._folders |= {os.path.dirname(path) for path in places.values()}
            self._read_last(places)
            for number in self._last.keys() - places.keys():
                ended = [Reading(each.labels, each.counts, {}, each.times) for each in self._last.pop(number)]
                self._past = merged([*self._past, *ended])
            here = [each for number in places for each in self._last.get(number, ())]
            return merged([*self._past, *here, Reading({}, {}, {"silent_workers": silent})], HIGHEST)


def _ask(path: str) -> list[Reading]:
    end = time.monotonic() + PATIENCE
    with socket.socket(socket.AF_UNIX) as asking:
        asking.settimeout(PATIENCE)
        asking.connect(path)
        text = b""
        while not text.endswith(b"\n"):
            asking.settimeout(max(0.01, end - time.monotonic()))
            more = asking.recv(1 << 16)
            if not more:
                break
            text += more
    return decode(text)
