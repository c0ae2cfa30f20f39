"""Inline leases: records of many keys, taken in the order of the log by the thread that reads it.

Theory. Where callbacks only compute, handing each key's records to another thread costs more than the callbacks. An
inline lease holds records of many keys for a lease runner, which takes them in turn. So each of those
keys is with a single lease runner (I1), and nothing has to be sorted by key. There are two kinds. The first holds new
records: it has no key and blocks nothing. That is safe, because its keys have nothing in the queues, and nothing
more is received while it is open. The second holds the due messages of parked keys, with the records of home that
wait behind them: it holds and blocks these keys (`Lease.keys`), as a lease of each key would.

Rules
1. Records of a key that has records in the queues, is blocked or is parked don't enter a lease of new records:
   they queue up.
2. A kept record gets a lease of its own, which blocks its key. A nacked record moves at once. Later records of such a
   key are passed over.
3. When a lease ends, or ends early because its callback takes long, the records that it hasn't reached go to the
   queues, or back to where they waited.
4. The records of a lease are in the order of their origins, so each key's records are in order.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Container, Sequence
from operator import methodcaller

from kafka_pubsub.log.records import Record
from kafka_pubsub.subscribe.partition.events import Passed

__all__ = ["apart", "finished"]

#: From a record in so many on, the records to leave out count as many.
MANY = 32

_offset = methodcaller("offset")


def apart(
    records: Sequence[Record], busy: Container[bytes | None], parked: Collection[bytes | None] = ()
) -> tuple[Sequence[Record], Sequence[Record]]:
    """Returns the records that may be taken inline, and those whose key is busy or parked (rule 1)."""
    free: list[Record] = []
    taken: list[Record] = []
    for record in records:  # a call in this loop costs a quarter of a mapped `methodcaller`
        key = record.key()
        (taken if key in parked or key in busy else free).append(record)
    return free, taken


def finished(passed: Passed) -> Sequence[Record]:
    """Returns the records that were acked."""
    records = passed.lease.records
    done = records if passed.reached == len(records) else records[: passed.reached]
    if not passed.left and not passed.skipped and not passed.nacked:
        return done
    rest = [record for record, _, _ in passed.nacked]
    rest += [release.lease.records[0] for release in passed.left]
    rest += passed.skipped
    if len(rest) > len(done) // MANY:
        gone = set(map(id, rest))
        return [record for record in done if id(record) not in gone]
    done = list(done)  # finding a few is quicker than looking at all
    for record in rest:
        at = bisect_left(done, record.offset(), key=_offset)
        while done[at] is not record:  # a message that was moved twice may wait twice (`copies`)
            at += 1
        del done[at]
    return done
