"""Finished runs as bits, one for each offset: the short form of a map in which many runs lie close together.

A character carries 15 bits (`ack_map`). A run and the gap before it cost two characters as numbers, and the 15th part
of their offsets as bits. So with bits the map of some fifty thousand offsets fits whatever is finished there: enough
for all that happens within seconds, while messages of many keys wait for their redelivery.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence

from kafka_pubsub.core.offsets import Run

__all__ = ["UNIT", "as_runs", "as_units"]

#: Bits of a unit, as a character carries them.
UNIT = 15

_ones = re.compile("1+")


def as_units(runs: Sequence[Run], position: int) -> Sequence[int]:
    """The offsets from `position` to the end of the last run, a set bit for each that is in a run."""
    count = -(-(runs[-1][1] - position) // UNIT)
    bits = bytearray(b"0") * (count * UNIT)
    for start, end in runs:
        bits[start - position : end - position] = b"1" * (end - start)
    text = bits.decode("ascii")
    # Each unit padded to 16 bits, and all of them read as one number: a fraction of a conversion for each.
    padded = "".join(["0" + text[at : at + UNIT] for at in range(0, count * UNIT, UNIT)])
    return struct.unpack(f">{count}H", int(padded, 2).to_bytes(2 * count))


def as_runs(units: Sequence[int], position: int) -> list[Run]:
    """The runs that the units were made of."""
    text = "".join([format(unit, f"0{UNIT}b") for unit in units])
    return [(position + found.start(), position + found.end()) for found in _ones.finditer(text)]
