"""An HTTP endpoint in a process of its own, which counts requests: `python -m tests.benchmarks.endpoint JSON`.

It writes a line with its port, and a line of JSON with figures when `warmup` and `measured` messages have come. With
`failing_key` as many again follow, for which it refuses that key; messages of that key are counted in neither.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from aiohttp import web

__all__ = ["endpoint"]

Figures = dict[str, float]


@contextmanager
def endpoint(
    warmup: int, measured: int, patience: float, failing_key: str = ""
) -> Iterator[tuple[str, Callable[[], Figures]]]:
    """Yields the endpoint's URL, and a function that waits for its figures, `patience` seconds at most."""
    wanted = json.dumps({"warmup": warmup, "measured": measured, "failing_key": failing_key})
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.benchmarks.endpoint", wanted], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    lines = process.stdout
    late = threading.Timer(patience, process.kill)
    late.start()

    def wait() -> Figures:
        line = lines.readline()
        if not line:
            raise RuntimeError(f"the endpoint got too little in {patience:.0f} s")
        figures: Figures = json.loads(line)
        return figures

    try:
        yield f"http://127.0.0.1:{int(lines.readline())}/", wait
    finally:
        late.cancel()
        process.kill()
        process.wait()
        lines.close()


class _Endpoint:
    def __init__(self, warmup: int, measured: int, failing_key: str) -> None:
        self._key = failing_key
        #: After how many messages each part ends, and when it did.
        self._ends = [warmup, warmup + measured] + [warmup + 2 * measured] * bool(failing_key)
        self._times = list[float]()
        self._measured = measured
        self._count = 0
        self.refused = 0

    async def answer(self, request: web.BaseRequest) -> web.Response:
        await request.read()
        if self._key and request.headers.get("ce-partitionkey") == self._key:
            fails = len(self._times) == 2
            self.refused += fails
            return web.Response(status=500 if fails else 200)
        self._count += 1
        if len(self._times) < len(self._ends) and self._count == self._ends[len(self._times)]:
            self._times.append(time.perf_counter())
            if len(self._times) == len(self._ends):
                print(json.dumps(self._figures()), flush=True)
        return web.Response()

    def _figures(self) -> Figures:
        rates = [
            self._measured / (end - start) for start, end in zip(self._times, self._times[1:], strict=False)
        ]
        return {"rate": rates[0], "rate_failing": rates[-1], "refused": float(self.refused)}


async def _run(warmup: int, measured: int, failing_key: str) -> None:
    made = _Endpoint(warmup, measured, failing_key)
    runner = web.ServerRunner(web.Server(made.answer, access_log=None))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_run(**json.loads(sys.argv[1])))
