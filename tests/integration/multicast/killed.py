"""A sequencer or a sender of multicasts in a process of its own, to be killed (SIGKILL).

Arguments: the address, "sequencer", or the address, "sender", the phase of its transactions in which it kills itself
(`killed_router.PHASES`, or "never"), in which transaction, a prefix, and topics. A sender prints the number of each
message that has its place in the order.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

from kafka_pubsub import PubSub
from kafka_pubsub.multicast.service import Sequencer
from tests.integration.delays import killed_router

__all__ = ["body", "some_of"]

#: Seconds between two messages of a sender.
_EVERY = 0.02


def body(prefix: str, number: int) -> bytes:
    """What a sender's message holds."""
    return f"{prefix} {number}".encode()


def some_of(topics: Sequence[str], number: int) -> list[str]:
    """The topics of a sender's message: each set of two or more of them in turn, all of them first."""
    masks = [mask for mask in range(2 ** len(topics) - 1, 0, -1) if mask & (mask - 1)]
    mask = masks[number % len(masks)]
    return [topic for bit, topic in enumerate(topics) if mask >> bit & 1]


def main() -> None:
    address, kind, *rest = sys.argv[1:]
    with PubSub(address) as ps:
        if kind == "sequencer":
            with Sequencer(ps):
                while True:
                    time.sleep(1)
        phase, transaction, prefix, *topics = rest
        killed_router.TRANSACTION = int(transaction)
        killed_router.kill_at(phase)
        number = 0
        while True:
            # In turn, so that what is printed is all that was staged before the transaction that is killed.
            if ps.publish_multi(some_of(topics, number), body(prefix, number)).exception() is None:
                print(number, flush=True)
            number += 1
            time.sleep(_EVERY)


if __name__ == "__main__":
    main()
