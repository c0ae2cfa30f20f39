"""A publisher of multicasts in a process of its own, for the rows of `rows/multicast.py`; its single argument is JSON.

bootstrap, topics    where to publish
warmup               messages before the measured ones
messages             how many at once; or
rate, seconds        how many a second, and for how long: an open loop; or
seconds              for how long, each message when the future of the message before has resolved

Warms up, says "ready", waits for a line, publishes, and says as JSON how many messages, how long they took and, of
an open loop, by how many seconds each future was resolved later than its message was meant to be published.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from kafka_pubsub import PubSub

__all__ = ["BODY", "PATIENCE", "WARMUP"]

BODY = bytes(100)
#: Seconds for an answer.
PATIENCE = 60.0
#: Messages before the measured ones, so that a broker that was just started is compiled; in pieces.
WARMUP, _PIECE = 20_000, 500


def _publish(client: PubSub, names: Sequence[str], count: int) -> None:
    futures = [client.publish_multi(names, BODY) for _ in range(count)]
    for future in futures:
        future.result(PATIENCE)


def _publish_in_turn(client: PubSub, names: Sequence[str], seconds: float) -> int:
    end, count = time.perf_counter() + seconds, 0
    while time.perf_counter() < end:
        client.publish_multi(names, BODY).result(PATIENCE)
        count += 1
    return count


def _flow(client: PubSub, names: Sequence[str], rate: float, seconds: float) -> list[float]:
    late: list[float] = []
    began = time.perf_counter()
    sent = []
    for number in range(int(rate * seconds)):
        at = began + number / rate
        if (wait := at - time.perf_counter()) > 0:
            time.sleep(wait)
        future = client.publish_multi(names, BODY)
        future.add_done_callback(partial(_note, late, at))
        sent.append(future)
    for future in sent:
        future.result(PATIENCE)
    return late


def _note(late: list[float], at: float, future: object) -> None:
    late.append(time.perf_counter() - at)


def main() -> None:
    """Publishes as the argument says."""
    plan: dict[str, Any] = json.loads(sys.argv[1])
    with PubSub(plan["bootstrap"]) as client:
        for _ in range(0, plan["warmup"], _PIECE):
            _publish(client, plan["topics"], _PIECE)
        print("ready", flush=True)
        sys.stdin.readline()
        began, late = time.perf_counter(), list[float]()
        if "rate" in plan:
            late = _flow(client, plan["topics"], plan["rate"], plan["seconds"])
            count = len(late)
        elif "seconds" in plan:
            count = _publish_in_turn(client, plan["topics"], plan["seconds"])
        else:
            count = plan["messages"]
            _publish(client, plan["topics"], count)
        seconds = time.perf_counter() - began
        print(json.dumps({"count": count, "seconds": seconds, "late": late}), flush=True)


if __name__ == "__main__":
    main()
