"""Inline leases: what was just read, taken in the order of the log by the thread that read it.

Theory. Where callbacks only compute, handing each key's records to another thread costs more than the callbacks.
An inline lease holds the fresh records of many keys at once, for one holder that takes them one after the other:
so each of those keys is with one holder (I1), and nothing has to be sorted by key. It has no key itself and blocks
nothing; that is safe because its keys have nothing in the queues, and nothing more is received while it is open.

Rules
1. A key that has records in the queues, is blocked or parked has no part in it: its records queue up.
2. What isn't acked gets a lease of its own, which blocks its key; later records of that key are passed over.
3. When it ends, or ends early because its handler takes long, what it didn't come to goes to the queues.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Container, Sequence
from itertools import compress
from operator import methodcaller, not_, or_

from kafka_pubsub.core.events import Passed, Record

__all__ = ["apart", "finished"]

#: One of so many is many.
MANY = 32

_key, _offset = methodcaller("key"), methodcaller("offset")


def apart(
    records: Sequence[Record], busy: Container[bytes | None], parked: Collection[bytes | None] = ()
) -> tuple[Sequence[Record], Sequence[Record]]:
    """Those that may be taken inline, and those whose key is busy or parked (rule 1)."""
    keys = list(map(_key, records))
    taken = list(map(busy.__contains__, keys))
    if parked:
        taken = list(map(or_, taken, map(parked.__contains__, keys)))
    if True not in taken:
        return records, []
    return list(compress(records, map(not_, taken))), list(compress(records, taken))


def finished(passed: Passed) -> Sequence[Record]:
    """The records that were acked."""
    records = passed.lease.records
    done = records if passed.reached == len(records) else records[: passed.reached]
    if not passed.left and not passed.skipped:
        return done
    rest = {release.lease.records[0].offset() for release in passed.left}
    rest.update(record.offset() for record in passed.skipped)
    if len(rest) > len(done) // MANY:
        return [record for record in done if record.offset() not in rest]
    done = list(done)  # a few are found quicker than all are looked at
    for offset in rest:
        del done[bisect_left(done, offset, key=_offset)]
    return done
