"""What a process does that runs a service and nothing else."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["alone"]

#: New objects that start a run of the collector over the youngest, and the runs that start one over older ones.
_THRESHOLDS = (100_000, 20, 50)
#: Seconds after which a thread that computes makes room for one that waits to go on.
_SWITCH = 0.0005


@contextmanager
def alone() -> Iterator[None]:
    """Lets the collector of cycles run rarely meanwhile, and threads take turns often.

    What waits in a service's memory are tens of thousands of records without cycles. To look through them again and
    again took a fifth of a router's processor time. A transaction has some ten steps, each behind an answer of the
    broker: with Python's own 5 ms its thread waited for most of them until the engine paused.
    """
    before, switch = gc.get_threshold(), sys.getswitchinterval()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)
    sys.setswitchinterval(_SWITCH)
    try:
        yield
    finally:
        sys.setswitchinterval(switch)
        gc.set_threshold(*before)
        gc.unfreeze()
