"""A stream, for coroutines: an asynchronous context manager, and the wait for its end.

Rule: waiting for the end holds no thread; the stream calls a function when it has ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from types import TracebackType
from typing import Self

from kafka_pubsub.aio.threads import close_on_thread, run_on_thread
from kafka_pubsub.subscribe.stream.stream import CLOSE_TIMEOUT, Stats
from kafka_pubsub.subscribe.stream.stream import Stream as SyncStream

__all__ = ["Opening", "Stream"]


class Stream:
    """An open `pull`, which runs callbacks until it is closed.

    Example:
        async with sub.pull(handle) as stream:
            await stream.result(timeout=60)   # TimeoutError while all is well
    """

    def __init__(self, sync: SyncStream) -> None:
        self._sync = sync

    async def result(self, timeout: float | None = None) -> None:
        """Waits for the stream's end, and raises its error if it failed; `TimeoutError` if it still runs."""
        await self._wait(timeout)
        self._sync.result(0)

    async def exception(self, timeout: float | None = None) -> BaseException | None:
        """Waits for the end like `result`, and returns the stream's error, or None if it was closed."""
        await self._wait(timeout)
        return self._sync.exception(0)

    async def _wait(self, timeout: float | None) -> None:
        if self._sync.done():
            return
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()

        def wake(_: SyncStream) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(ended.set)

        self._sync.add_done_callback(wake)
        try:
            async with asyncio.timeout(timeout):
                await ended.wait()
        except TimeoutError:
            raise TimeoutError("the stream goes on") from None
        finally:
            self._sync.remove_done_callback(wake)

    def done(self) -> bool:
        """Returns whether the stream has ended."""
        return self._sync.done()

    def cancel(self) -> bool:
        """Begins to close the stream and returns at once; returns False if it has already ended.

        `result` waits for the end.
        """
        return self._sync.cancel()

    async def close(self, timeout: float | None = CLOSE_TIMEOUT) -> None:
        """Stops fetching, waits at most `timeout` seconds for callbacks, commits, and leaves the group."""
        await close_on_thread(lambda: self._sync.close(timeout))

    @property
    def joined(self) -> bool:
        """Whether the stream is a member of its group, with or without partitions."""
        return self._sync.joined

    @property
    def stats(self) -> Stats:
        """Counters of what the stream has done, and what it has in flight now."""
        return self._sync.stats

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<aio {self._sync!r}>"


class Opening:
    """A stream to be opened: `async with sub.pull(...) as stream`, or `stream = await sub.pull(...)`."""

    def __init__(self, begin: Callable[[], SyncStream]) -> None:
        self._begin = begin
        self._stream: Stream | None = None

    async def _open(self) -> Stream:
        if self._stream is None:
            self._stream = Stream(await run_on_thread(self._begin, undo=SyncStream.cancel))
        return self._stream

    def __await__(self) -> Generator[object, None, Stream]:
        return self._open().__await__()

    async def __aenter__(self) -> Stream:
        return await self._open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._stream is not None:
            await self._stream.close()
