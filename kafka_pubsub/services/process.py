"""What a process does that runs a service and nothing else."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["collect_rarely"]

#: New objects that start a run of the collector over the youngest, and the runs that start one over older ones.
_THRESHOLDS = (100_000, 20, 50)


@contextmanager
def collect_rarely() -> Iterator[None]:
    """Lets the collector of cycles run rarely meanwhile.

    What waits in a service's memory are tens of thousands of records without cycles. To look through them again and
    again took a fifth of a router's processor time.
    """
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
