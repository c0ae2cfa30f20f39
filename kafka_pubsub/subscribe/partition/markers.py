"""Which offset at the end of a log is a transaction's marker, though no reader was told so.

Theory. A transaction leaves a marker somewhere behind its records. A reader of committed records gets such a record
only when the marker lies below the end of the log. So if the log has room for one offset only behind that record, this
offset is the marker.
"""

from __future__ import annotations

__all__ = ["is_marker"]


def is_marker(written: int, position: int, end: int) -> bool:
    """Returns whether the last offset of a log is the marker behind the record at `written`.

    `written`: the last offset of a transaction that was committed. `position`: up to where committed records were read.
    `end`: the end of the log since then, with open transactions.
    """
    return written + 1 == position == end - 1
