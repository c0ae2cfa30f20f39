"""A TCP proxy in front of a broker that a test can make slow, silent or rude.

Theory: a thread runs an asyncio loop that carries bytes both ways, each direction of each connection by a task of
its own. What is wrong with the network is one value (`Weather`) that every task reads before each chunk, so a change
counts for the connections that there are as well as for new ones.
Rules
1. Bytes are delayed, kept back or lost with their connection; they are never changed, reordered or left out, because
   TCP doesn't do that either.
2. A direction that is cut keeps its connections open and stops reading: the sender's buffers fill up, as behind a
   router that has died. When the cut ends, what was kept back is delivered.
3. While a direction is cut, new connections are taken (the kernel of a frozen host does that too) and stay silent.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Self

__all__ = ["Direction", "Proxy", "Weather"]

Direction = Literal["to_broker", "to_client"]

HOST = "127.0.0.1"
#: Bytes per read; small enough that a throttled connection is slow evenly, not in bursts.
CHUNK = 64 * 1024
#: Seconds between looks at whether a cut is over.
POLL = 0.02
#: Chunks that may be on their way in a delayed direction: 16 MB, more than a client asks for at once.
IN_FLIGHT = 256


@dataclass(frozen=True)
class Weather:
    """What is wrong now. `delay` is in seconds and for each direction, `rate` in bytes a second and connection."""

    delay: float = 0.0
    rate: float | None = None
    cut: frozenset[Direction] = frozenset()
    refuse: bool = False


class Proxy:
    """Forwards `port` to `target` (a port of this machine); use it in a `with` block.

    The target may be set later: a broker has to know our port before it has one of its own.
    """

    def __init__(self, target: int | None = None, port: int = 0) -> None:
        self.target = target
        self._weather = Weather()
        self._wanted_port = port
        self._connections: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._thread.start()
        self._server = self._run(self._listen)
        #: The port that clients connect to.
        self.port: int = self._server.sockets[0].getsockname()[1]

    @property
    def weather(self) -> Weather:
        """What is wrong now."""
        return self._weather

    @property
    def connections(self) -> int:
        """How many connections go through now."""
        return len(self._connections)

    def delay(self, seconds: float) -> None:
        """Every byte arrives this much later, in each direction."""
        self._change(delay=seconds)

    def throttle(self, bytes_per_second: float | None) -> None:
        """Each connection carries no more than this in each direction; None lifts it."""
        self._change(rate=bytes_per_second)

    def cut(self, *directions: Direction) -> None:
        """Nothing passes in these directions (both unless told otherwise); connections stay open."""
        self._change(cut=frozenset(directions or ("to_broker", "to_client")))

    def refuse(self) -> None:
        """New connections are closed at once; those that there are live on."""
        self._change(refuse=True)

    def reset(self) -> None:
        """Every connection breaks now, with a reset; what was on its way is lost."""

        async def abort() -> None:
            for writer in list(self._writers):
                # Closing with nothing to linger for is what sends a reset.
                writer.get_extra_info("socket").setsockopt(
                    socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
                )
                _abort(writer)

        self._run(abort)

    def heal(self) -> None:
        """Everything is well again."""
        self._weather = Weather()

    @contextmanager
    def trouble(self, **changes: Any) -> Iterator[None]:
        """For the length of a block, the `Weather` with these fields."""
        self._change(**changes)
        try:
            yield
        finally:
            self.heal()

    def close(self) -> None:
        """Breaks what goes through and stops listening."""
        if not self._thread.is_alive():
            return
        self._run(self._shut)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _change(self, **changes: Any) -> None:
        known = {name: getattr(self._weather, name) for name in Weather.__dataclass_fields__}
        self._weather = Weather(**{**known, **changes})

    def _run(self, work: Callable[[], Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work(), self._loop).result(10)

    async def _listen(self) -> asyncio.Server:
        return await asyncio.start_server(self._accept, HOST, self._wanted_port, limit=CHUNK)

    async def _shut(self) -> None:
        self._server.close()
        for task in list(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        self._writers.add(writer)
        try:
            with contextlib.suppress(OSError, asyncio.CancelledError):
                if not self._weather.refuse and self.target is not None:
                    await self._carry_both(reader, writer)
        finally:
            _abort(writer)
            self._writers.discard(writer)
            self._connections.discard(task)

    async def _carry_both(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(HOST, self.target, limit=CHUNK)
        self._writers.add(far_writer)
        ways = [
            asyncio.ensure_future(self._carry("to_broker", reader, far_writer)),
            asyncio.ensure_future(self._carry("to_client", far_reader, writer)),
        ]
        try:
            # A connection that one side has ended is over: Kafka knows no half-closed ones.
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            await _close(writer)
            await _close(far_writer)
            self._writers.discard(far_writer)

    async def _carry(
        self, direction: Direction, source: asyncio.StreamReader, sink: asyncio.StreamWriter
    ) -> None:
        """One direction: read now, deliver when it is due, so that a delay doesn't cost throughput."""
        line: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(IN_FLIGHT)
        delivery = asyncio.ensure_future(self._deliver(direction, line, sink))
        try:
            while True:
                await self._passable(direction)
                chunk = await source.read(CHUNK)
                await line.put((time.monotonic() + self._weather.delay, chunk))
                if not chunk:
                    await delivery
                    return
        finally:
            delivery.cancel()
            await asyncio.gather(delivery, return_exceptions=True)

    async def _deliver(
        self, direction: Direction, line: asyncio.Queue[tuple[float, bytes]], sink: asyncio.StreamWriter
    ) -> None:
        while True:
            due, chunk = await line.get()
            await asyncio.sleep(due - time.monotonic())
            # It may have been cut since the chunk was read; then it stays here.
            await self._passable(direction)
            if not chunk:
                return
            if rate := self._weather.rate:
                await asyncio.sleep(len(chunk) / rate)
            sink.write(chunk)
            await sink.drain()

    async def _passable(self, direction: Direction) -> None:
        while direction in self._weather.cut:
            await asyncio.sleep(POLL)


def _abort(writer: asyncio.StreamWriter) -> None:
    transport = writer.transport
    if not transport.is_closing():
        transport.abort()


async def _close(writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        writer.close()
        await writer.wait_closed()
