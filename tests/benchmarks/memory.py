"""How much memory a process has ever held."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

__all__ = ["megabytes", "peak_megabytes"]


def megabytes() -> float:
    """Resident memory of this process now, in MB of 1,000,000 bytes; where that can't be seen, the peak."""
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text(encoding="ascii").split()[1]) * resource.getpagesize() / 1e6
    return peak_megabytes()


def peak_megabytes() -> float:
    """The highest resident memory of this process, in MB of 1,000,000 bytes (the stricter reading).

    The kernel's own high-water mark, so no sample can miss the peak. `VmHWM` and not `ru_maxrss` where there is one:
    the latter starts at the parent's value when the parent started us.
    """
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024 / 1e6
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1e6 if sys.platform == "darwin" else peak * 1024 / 1e6
