"""I1 in the queues: a single partition's waiting records against a naive model that keeps plain sets.

The model knows which records wait and why each key may not be taken, and computes anew at every step which
queues must hand out: a run from the front of the free key whose first record is the oldest, or the oldest record
without a key if that is older still.
"""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kafka_pubsub.log.records import Record
from kafka_pubsub.subscribe.partition.key_queues import KeyQueues
from tests.support import FakeBody

KEYS = [b"a", b"b", b"c", b"", None]


class KeyQueuesMachine(RuleBasedStateMachine):
    """Adds, takes, finishes, puts back, blocks and unblocks, in every order."""

    ordered = True

    def __init__(self) -> None:
        super().__init__()
        self.queues = KeyQueues(ordered=self.ordered)
        self.next = 0
        #: Waiting records, by offset.
        self.waiting: dict[int, bytes | None] = {}
        #: Runs that were taken and neither finished nor put back.
        self.held: list[list[Record]] = []
        #: Reasons not to take a key.
        self.reasons: dict[bytes, int] = {}
        #: How many of them are old handlers.
        self.old_callbacks: dict[bytes, int] = {}
        #: Keys that wait in the retry partition.
        self.parked: set[bytes] = set()
        self.queues.parked = self.parked

    def lane(self, key: bytes | None) -> bytes | None:
        return key if self.ordered else None

    def expected(self, limit: int) -> list[int]:
        heads: dict[bytes | None, int] = {}
        for offset in sorted(self.waiting):
            heads.setdefault(self.lane(self.waiting[offset]), offset)
        free = {
            key: offset
            for key, offset in heads.items()
            if key is None or not (self.reasons.get(key) or key in self.parked)
        }
        if not free:
            return []
        key = min(free, key=lambda each: free[each])
        mine = [offset for offset in sorted(self.waiting) if self.lane(self.waiting[offset]) == key]
        return mine[:1] if key is None else mine[:limit]

    @rule(keys=st.lists(st.sampled_from(KEYS), max_size=8), hole=st.integers(0, 2))
    def add(self, keys: list[bytes | None], hole: int) -> None:
        self.next += hole
        records = [FakeBody(offset=self.next + at, key=key) for at, key in enumerate(keys)]
        self.next += len(keys)
        self.queues.add(records)
        self.waiting.update({record.offset(): record.key() for record in records})

    @rule(limit=st.integers(1, 4))
    def take(self, limit: int) -> None:
        expected = self.expected(limit)
        assert self.queues.oldest() == (expected[0] if expected else None)
        run = self.queues.take(limit)
        assert [record.offset() for record in run] == expected
        if not run:
            return
        for record in run:
            del self.waiting[record.offset()]
        key = self.lane(run[0].key())
        if key is not None:
            assert not self.reasons.get(key), "I1: two holders"
            assert key not in self.parked, "I1: it is parked"
            self.reasons[key] = 1
        self.held.append(run)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        """The first records of a run are finished; the rest comes back."""
        run = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
        done = data.draw(st.integers(0, len(run)))
        key = self.lane(run[0].key())
        self.queues.put_back(key, run[done:])
        self.waiting.update({record.offset(): record.key() for record in run[done:]})
        if key is not None:
            self.unblock(key)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def back_off(self, data: st.DataObject) -> None:
        """A run's first record stays out while the records behind it come back; the key stays blocked."""
        at = data.draw(st.integers(0, len(self.held) - 1))
        run = self.held[at]
        self.queues.put_back(self.lane(run[0].key()), run[1:])
        self.waiting.update({record.offset(): record.key() for record in run[1:]})
        self.held[at] = run[:1]

    @rule(key=st.sampled_from([b"a", b"b", b"d"]))
    def block(self, key: bytes) -> None:
        """An old handler holds the key back; only ever said of keys that aren't ready."""
        if self.ordered and (self.reasons.get(key) or key not in self.waiting.values()):
            self.queues.block(key)
            self.reasons[key] = self.reasons.get(key, 0) + 1
            self.old_callbacks[key] = self.old_callbacks.get(key, 0) + 1

    @rule(key=st.sampled_from([b"a", b"b", b"c", b"d"]))
    def park(self, key: bytes) -> None:
        """A key is parked while it may be ready, blocked or neither."""
        if self.ordered and key not in self.parked:
            self.queues.park(key)
            self.parked.add(key)

    @precondition(lambda self: self.parked)
    @rule(data=st.data())
    def unpark(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.parked)))
        self.parked.discard(key)
        self.queues.unpark(key)

    @precondition(lambda self: self.parked)
    @rule(data=st.data(), limit=st.integers(1, 4), below=st.integers(0, 40))
    def take_from_parked(self, data: st.DataObject, limit: int, below: int) -> None:
        """Messages that wait behind parked messages move behind them."""
        key = data.draw(st.sampled_from(sorted(self.parked)))
        mine = [offset for offset in sorted(self.waiting) if self.waiting[offset] == key]
        expected = [offset for offset in mine if offset < below][:limit]
        assert [record.offset() for record in self.queues.take_from(key, limit, below)] == expected
        for offset in expected:
            del self.waiting[offset]

    @precondition(lambda self: any(self.old_callbacks.values()))
    @rule(data=st.data())
    def old_handler_ends(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from([key for key, count in self.old_callbacks.items() if count]))
        self.old_callbacks[key] -= 1
        self.unblock(key)

    def unblock(self, key: bytes) -> None:
        self.queues.unblock(key)
        self.reasons[key] -= 1

    @invariant()
    def same_as_the_model(self) -> None:
        self.queues.check()
        assert sorted(record.offset() for record in self.queues.waiting()) == sorted(self.waiting)
        assert len(self.queues) == len(self.waiting)
        assert self.queues.blocked == {key: count for key, count in self.reasons.items() if count}

    def teardown(self) -> None:
        """When every holder lets go, all that waits comes out, each key in its order."""
        for run in self.held:
            key = self.lane(run[0].key())
            self.queues.put_back(key, run)
            if key is not None:
                self.queues.unblock(key)
        for key, count in self.old_callbacks.items():
            for _ in range(count):
                self.queues.unblock(key)
        for key in sorted(self.parked):
            self.parked.discard(key)
            self.queues.unpark(key)
        seen: dict[bytes | None, list[int]] = {}
        while run := self.queues.take(3):
            key = self.lane(run[0].key())
            seen.setdefault(key, []).extend(record.offset() for record in run)
            if key is not None:
                self.queues.unblock(key)
        assert not len(self.queues)
        assert not self.queues.queues
        assert all(offsets == sorted(offsets) for offsets in seen.values())


class LooseMachine(KeyQueuesMachine):
    """Without ordering: keys mean nothing, the oldest record goes first."""

    ordered = False


TestKeyQueues = KeyQueuesMachine.TestCase
TestLoose = LooseMachine.TestCase


def test_two_that_come_back_at_the_same_moment_are_in_their_places() -> None:
    queues = KeyQueues(ordered=True)
    queues.add([FakeBody(offset=offset) for offset in range(10)])
    taken = [queues.take(1)[0] for _ in range(10)]
    queues.put_back(None, [taken[5]])
    queues.put_back(None, [taken[9]])
    queues.put_back(None, [taken[2]])
    assert queues.oldest() == 2
    assert [queues.take(1)[0].offset() for _ in range(3)] == [2, 5, 9]


def test_keys_go_forward_together() -> None:
    queues = KeyQueues(ordered=True)
    queues.add([FakeBody(offset=offset, key=b"ab"[offset % 2 :][:1]) for offset in range(8)])
    order = []
    for _ in range(4):
        run = queues.take(2)
        order.append([record.offset() for record in run])
        queues.unblock(run[0].key() or b"")
    assert order == [[0, 2], [1, 3], [4, 6], [5, 7]]


def test_an_empty_key_is_a_key() -> None:
    queues = KeyQueues(ordered=True)
    queues.add([FakeBody(offset=0, key=b""), FakeBody(offset=1, key=b"")])
    assert [record.offset() for record in queues.take(1)] == [0]
    assert not queues.take(1)
    queues.unblock(b"")
    assert [record.offset() for record in queues.take(1)] == [1]
