"""A process's history as JSON lines, for `tests/checker`, or for you to see what happened.

Theory. Each event is copied into a file that is mapped into shared memory, so the kernel has it at once: a SIGKILL
loses no recorded event, and recording one needs no system call. With one `write` for each event a busy stream would
run at a quarter of its speed, because each `write` releases the interpreter's lock. A power cut may lose events.

Format. One JSON object a line, `event` first, `t` second: nanoseconds of the monotonic clock. The first line is
`open`; its `wall` (nanoseconds since 1970) was read together with its `t`, and so gives every `t` of the file a wall
time; `host` names the monotonic clock: the events of files with the same host can be put in one order.
Offsets of the home topic name messages; a standing is `[position, [start, end, start, end ...]]`. A partition of a lane
has the number that `protocol.number_of` gives it.

    open         role (subscriber, publisher, driver), format, wall, host, pid, process, topic, subscription, ordered
    close        the stream has ended cleanly
    send         n, key, sha             stored   n, partition, offset           failed   n, error
    assign       partition, epoch, main, retry (null: no such topic), retry_end
    revoke       partition, epoch, lost
    deliver      partition, offset, epoch, attempt, sha, [retry], [batch]
    handler_end  partition, offset, epoch, [error]
    ack          partition, offset, epoch, attempt
    nack         the same, delay, [rejected: the callback gave the message up]
    extend       the same, seconds               stale    the same, verb
    expire, durable_ack                  the same as ack
    relocate     n, partition, epoch, moves: [[offset, retry, attempt, due in ms since 1970, why] ...]
    dead_letter  n, partition, offset, epoch, retry, attempt, error
    commit       n, partition, epoch, [main], [retry]
    answer       n, partition, epoch, accepted (null: unknown), [placed: [[offset, retry] ...]]
    subscribe    positions: {partition: position}
    crash, stop, cont   of (pid)         fault    name, pids                     mend     name
    replay       partition, offset

Rules
1. Any thread may call; each call writes one line, and lines are in the order of the calls.
2. A file belongs to one process and one stream: it is always new, never appended to. A child after `fork` opens its
   own.
3. Disk space is allocated before it is mapped: a full disk raises `OSError` here, where a mapped hole would kill the
   process. A `forgiving` file logs the error and drops all later events.
4. After the last event the file holds zeros, unless it was closed. A line that SIGKILL interrupted has no end.
5. Events after `close` are dropped: a callback may outlive its stream.
"""

from __future__ import annotations

import hashlib
import json
import logging
import mmap
import os
import platform
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from kafka_pubsub.model import Message, Run

__all__ = ["FORMAT", "HistoryFile", "fingerprint", "this_host"]

log = logging.getLogger("kafka_pubsub.history")

#: The version of the format; it is increased when an event changes its meaning.
FORMAT = 1
#: Bytes mapped at a time: some 100,000 events, so that mapping costs nothing; a multiple of every page size.
SEGMENT = 16 << 20

_text = json.encoder.encode_basestring_ascii
_BOOT = Path("/proc/sys/kernel/random/boot_id")


def this_host() -> str:
    """Returns a name of the monotonic clock that this process reads."""
    try:
        return _BOOT.read_text(encoding="ascii").strip()
    except OSError:
        return platform.node()


def fingerprint(key: bytes | None, data: bytes, attributes: Mapping[str, str]) -> str:
    """Returns 64 bits of the SHA-256 of a message's key, body and attributes."""
    parts = [b"" if key is None else b"k" + key, data]
    for name in sorted(attributes):
        parts += (
            name.encode("utf-8", "surrogateescape"),
            attributes[name].encode("utf-8", "surrogateescape"),
        )
    # with the length before each part, so that different messages never give the same bytes
    text = b"".join(b"%d:%b" % (len(part), part) for part in parts)
    return hashlib.sha256(text).hexdigest()[:16]


def _standing(standing: tuple[int, Sequence[Run]] | None) -> str:
    if standing is None:
        return "null"
    position, runs = standing
    return f"[{position},[{','.join([f'{start},{end}' for start, end in runs])}]]"


class HistoryFile:
    """The history of one stream. It implements `client.history.History`, and serves publishers and test drivers too."""

    def __init__(
        self,
        path: Path,
        *,
        role: str,
        topic: str,
        subscription: str | None = None,
        ordered: bool = True,
        process: int = 0,
        pid: int | None = None,
        host: str | None = None,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
        time_ns: Callable[[], int] = time.time_ns,
        segment: int = SEGMENT,
        forgiving: bool = False,
    ) -> None:
        self._forgiving = forgiving
        self._over = False
        self._segment = segment
        self._clock = monotonic_ns
        self._lock = threading.Lock()
        self._file = path.open("xb+")
        self._begins = 0
        self._at = 0
        self._map = self._mapped(0, segment)
        self._room = segment
        self._tell(
            "open",
            f'"role":{_text(role)},"format":{FORMAT},"wall":{time_ns()},"host":{_text(host or this_host())},'
            f'"pid":{os.getpid() if pid is None else pid},"process":{process},"topic":{_text(topic)},'
            f'"subscription":{json.dumps(subscription)},"ordered":{json.dumps(ordered)}',
        )

    def _mapped(self, begins: int, size: int) -> mmap.mmap:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(self._file.fileno(), begins, size)
        else:
            self._file.truncate(begins + size)
        return mmap.mmap(self._file.fileno(), size, offset=begins)

    def _tell(self, event: str, fields: str) -> None:
        line = f'{{"event":"{event}","t":{self._clock()},{fields}}}\n'.encode()
        with self._lock:
            if self._over:
                return
            end = self._at + len(line)
            if end > self._room:
                try:
                    self._next_segment(len(line))
                except OSError as error:
                    if not self._forgiving:
                        raise
                    self._over = True
                    log.error("the history %s ends here: %s", self._file.name, error)
                    return
                end = self._at + len(line)
            self._map[self._at : end] = line
            self._at = end

    def _next_segment(self, least: int) -> None:
        begins = self._begins + self._room
        size = -(-least // self._segment) * self._segment
        after = self._mapped(begins, size)
        self._map[self._at : self._room] = b"\n" * (self._room - self._at)  # empty lines, which readers skip
        self._map.close()
        self._map, self._begins, self._room, self._at = after, begins, size, 0

    def close(self) -> None:
        """Records that the stream has ended cleanly, and closes the file."""
        self._tell("close", '"last":true')
        with self._lock:
            if not self._file.closed:
                self._over = True
                self._map.close()
                self._file.truncate(self._begins + self._at)
                self._file.close()

    # A stream (client.history.protocol.History)

    def assign(
        self,
        partition: int,
        epoch: int,
        main: tuple[int, Sequence[Run]],
        retry: tuple[int, Sequence[Run]] | None,
        retry_end: int,
    ) -> None:
        self._tell(
            "assign",
            f'"partition":{partition},"epoch":{epoch},"main":{_standing(main)},"retry":{_standing(retry)},'
            f'"retry_end":{retry_end}',
        )

    def revoke(self, partition: int, epoch: int, *, lost: bool) -> None:
        self._tell("revoke", f'"partition":{partition},"epoch":{epoch},"lost":{json.dumps(lost)}')

    def deliver(
        self,
        message: Message,
        partition: int,
        offset: int,
        epoch: int,
        attempt: int,
        retry: int | None = None,
        batch: int | None = None,
    ) -> None:
        sha = fingerprint(message.key, message.data, message.attributes)
        self.delivered(partition, offset, epoch, attempt, sha, retry, batch)

    def delivered(
        self,
        partition: int,
        offset: int,
        epoch: int,
        attempt: int,
        sha: str,
        retry: int | None = None,
        batch: int | None = None,
    ) -> None:
        """Records a delivery like `deliver`, for a caller that already has the fingerprint."""
        more = "" if retry is None else f',"retry":{retry}'
        if batch is not None:
            more += f',"batch":{batch}'
        self._tell("deliver", f'{_lease(partition, offset, epoch, attempt)},"sha":"{sha}"{more}')

    def handler_end(self, partition: int, offset: int, epoch: int, error: str | None = None) -> None:
        more = "" if error is None else f',"error":{_text(error)}'
        self._tell("handler_end", f'"partition":{partition},"offset":{offset},"epoch":{epoch}{more}')

    def ack(self, partition: int, offset: int, epoch: int, attempt: int) -> None:
        self._tell("ack", _lease(partition, offset, epoch, attempt))

    def nack(
        self,
        partition: int,
        offset: int,
        epoch: int,
        attempt: int,
        delay: float | None,
        *,
        rejected: bool = False,
    ) -> None:
        more = ',"rejected":true' if rejected else ""
        self._tell("nack", f'{_lease(partition, offset, epoch, attempt)},"delay":{json.dumps(delay)}{more}')

    def extend(self, partition: int, offset: int, epoch: int, attempt: int, seconds: float) -> None:
        self._tell("extend", f'{_lease(partition, offset, epoch, attempt)},"seconds":{json.dumps(seconds)}')

    def stale(self, verb: str, partition: int, offset: int, epoch: int, attempt: int) -> None:
        self._tell("stale", f'{_lease(partition, offset, epoch, attempt)},"verb":{_text(verb)}')

    def expire(self, partition: int, offset: int, epoch: int, attempt: int) -> None:
        self._tell("expire", _lease(partition, offset, epoch, attempt))

    def durable_ack(self, partition: int, offset: int, epoch: int, attempt: int) -> None:
        self._tell("durable_ack", _lease(partition, offset, epoch, attempt))

    def relocate(
        self,
        number: int,
        partition: int,
        epoch: int,
        moves: Sequence[tuple[int, int | None, int, float | None, str]],
    ) -> None:
        text = [
            [offset, retry, attempt, None if due is None else round(due * 1000), why]
            for offset, retry, attempt, due, why in moves
        ]
        self._tell(
            "relocate", f'"n":{number},"partition":{partition},"epoch":{epoch},"moves":{_compact(text)}'
        )

    def dead_letter(
        self,
        number: int,
        partition: int,
        offset: int,
        epoch: int,
        retry: int | None,
        attempt: int,
        error: str,
    ) -> None:
        place = "null" if retry is None else retry
        self._tell(
            "dead_letter",
            f'"n":{number},{_lease(partition, offset, epoch, attempt)},"retry":{place},"error":{_text(error)}',
        )

    def commit(
        self,
        number: int,
        partition: int,
        epoch: int,
        main: tuple[int, Sequence[Run]] | None,
        retry: tuple[int, Sequence[Run]] | None,
    ) -> None:
        more = "" if main is None else f',"main":{_standing(main)}'
        if retry is not None:
            more += f',"retry":{_standing(retry)}'
        self._tell("commit", f'"n":{number},"partition":{partition},"epoch":{epoch}{more}')

    def answer(
        self,
        number: int,
        partition: int,
        epoch: int,
        accepted: bool | None,
        placed: Sequence[tuple[int, int]] = (),
    ) -> None:
        more = f',"placed":{_compact(placed)}' if placed else ""
        self._tell(
            "answer",
            f'"n":{number},"partition":{partition},"epoch":{epoch},"accepted":{json.dumps(accepted)}{more}',
        )

    # A publisher

    def send(self, number: int, key: str | None, sha: str) -> None:
        """Records that message `number` of this publisher is about to be published."""
        self._tell("send", f'"n":{number},"key":{"null" if key is None else _text(key)},"sha":"{sha}"')

    def stored(self, number: int, partition: int, offset: int) -> None:
        """Records that message `number` is on all in-sync replicas."""
        self._tell("stored", f'"n":{number},"partition":{partition},"offset":{offset}')

    def failed(self, number: int, error: str) -> None:
        """Records that the message's future failed; the message may be stored nevertheless."""
        self._tell("failed", f'"n":{number},"error":{_text(error)}')

    # A test's driver

    def subscribe(self, positions: Mapping[int, int]) -> None:
        """Records the positions at which the subscription begins; it doesn't receive earlier messages."""
        self._tell("subscribe", f'"positions":{_compact({str(p): at for p, at in positions.items()})}')

    def crash(self, pid: int) -> None:
        """Records that the process has ended; call it after waiting for the process."""
        self._tell("crash", f'"of":{pid}')

    def stop(self, pid: int) -> None:
        """Records that the process stands still; call it before SIGSTOP."""
        self._tell("stop", f'"of":{pid}')

    def cont(self, pid: int) -> None:
        """Records that the process goes on; call it before SIGCONT."""
        self._tell("cont", f'"of":{pid}')

    def fault(self, name: str, pids: Iterable[int]) -> None:
        """Records the begin of a fault, in which these processes may get no answer from the log."""
        self._tell("fault", f'"name":{_text(name)},"pids":{_compact(list(pids))}')

    def mend(self, name: str) -> None:
        """Records the end of a fault."""
        self._tell("mend", f'"name":{_text(name)}')

    def replay(self, partition: int, offset: int) -> None:
        """Records that a dead letter is about to be delivered again."""
        self._tell("replay", f'"partition":{partition},"offset":{offset}')


def _lease(partition: int, offset: int, epoch: int, attempt: int) -> str:
    return f'"partition":{partition},"offset":{offset},"epoch":{epoch},"attempt":{attempt}'


def _compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))
