"""No gap behind a refused message, against a model of a broker and a stopping producer.

The model's broker checks the sequence only of producers that it knows, as Kafka does: in a partition that hasn't
acknowledged anything, messages behind a refused message are stored. Without the warmup that is a gap, which the last
test shows.
"""

from __future__ import annotations

from collections import deque

from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_pubsub.log.kafka.partition_warmup import NOT_SENT, Held, PartitionWarmup, Report
from kafka_pubsub.log.partitioner import partition_of

PARTITIONS = 3
KEYS = [b"a", b"b", b"c", b"d", b"e"]


class Pipeline:
    """A producer that has everything on its way at once, and the broker at its other end."""

    def __init__(self) -> None:
        self.logs: dict[int, list[tuple[bytes, int]]] = {number: [] for number in range(PARTITIONS)}
        self.on_the_way: dict[int, deque[tuple[Held, Report]]] = {n: deque() for n in range(PARTITIONS)}
        self.known = set[int]()
        # Partitions whose sequence is broken: a known producer's message was refused.
        self.broken = set[int]()
        self.stopped = False

    def send(self, message: Held, report: Report) -> None:
        if self.stopped:
            raise BufferError
        self.on_the_way[partition_of(message.key(), PARTITIONS)].append((message, report))

    def answer(self, partition: int, refuse: bool) -> None:
        """The broker's answer to the partition's oldest message on its way."""
        if not self.on_the_way[partition]:
            return
        message, report = self.on_the_way[partition].popleft()
        if refuse or partition in self.broken:
            # A refusal stops the producer, yet messages on their way arrive; a stranger's messages aren't checked.
            self.stopped = True
            if partition in self.known:
                self.broken.add(partition)
            report("refused", message)
        else:
            self.known.add(partition)
            self.logs[partition].append((message.key(), int(message.value() or b"")))
            report(None, _Stored(message, partition))


class _Stored(Held):
    def __init__(self, message: Held, partition: int) -> None:
        super().__init__(message.topic(), message.value(), message.key(), None, message.report)
        self._partition = partition

    def partition(self) -> int | None:
        return self._partition


actions = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.sampled_from(KEYS)),
        st.tuples(st.just("answer"), st.integers(0, PARTITIONS - 1)),
        st.tuples(st.just("refuse"), st.integers(0, PARTITIONS - 1)),
        st.tuples(st.just("expire"), st.none()),
        st.tuples(st.just("learn"), st.none()),
    ),
    max_size=60,
)


class Publisher:
    """The client's answer to reports: after a failure it sends nothing of the key."""

    def __init__(self, warmup: bool, count_known: bool) -> None:
        self.pipeline = Pipeline()
        self.warmup = PartitionWarmup(
            self.pipeline.send, lambda _: PARTITIONS if count_known else None, lambda topic, are: None
        )
        self.use_warmup = warmup
        self.sent: dict[bytes, list[int]] = {key: [] for key in KEYS}
        self.reports: dict[int, object] = {}
        self.failed = set[bytes]()
        self.count = 0

    def publish(self, key: bytes) -> None:
        if key in self.failed:
            return
        number = self.count = self.count + 1

        def report(error: object, _: object) -> None:
            assert number not in self.reports, "reported twice"
            self.reports[number] = error
            if error is not None:
                self.failed.add(key)

        message = Held("t", b"%d" % number, key, None, report)
        known = self.warmup.open.get("t", set())
        try:
            if not self.use_warmup or known is None or key in known:
                self.pipeline.send(message, report)
            else:
                self.warmup.admit(message)
        except BufferError:
            return
        self.sent[key].append(number)

    def act(self, kind: str, what: bytes | int | None) -> None:
        if isinstance(what, bytes):
            self.publish(what)
        elif isinstance(what, int):
            self.pipeline.answer(what, kind == "refuse")
        elif kind == "expire":
            self.warmup.expire()
        else:
            self.warmup.learn()

    def finish(self) -> None:
        """Everything on its way is answered; then the writer would replace a stopped producer."""
        while any(self.pipeline.on_the_way.values()) or self.warmup.held:
            before = (self.count_on_the_way(), self.warmup.held)
            for partition in range(PARTITIONS):
                while self.pipeline.on_the_way[partition]:
                    self.pipeline.answer(partition, refuse=False)
            self.warmup.learn()
            if self.pipeline.stopped and not self.count_on_the_way():
                self.warmup.fail_all()
            assert (self.count_on_the_way(), self.warmup.held) != before, "stuck"

    def count_on_the_way(self) -> int:
        return sum(len(queue) for queue in self.pipeline.on_the_way.values())

    def stored(self, key: bytes) -> list[int]:
        log = self.pipeline.logs[partition_of(key, PARTITIONS)]
        return [number for each, number in log if each == key]


def run(steps: list[tuple[str, bytes | int | None]], *, warmup: bool, count_known: bool = True) -> Publisher:
    publisher = Publisher(warmup, count_known)
    for kind, what in steps:
        publisher.act(kind, what)
    publisher.finish()
    return publisher


def has_gap(publisher: Publisher) -> bool:
    return any(publisher.stored(key) != publisher.sent[key][: len(publisher.stored(key))] for key in KEYS)


@settings(max_examples=500)
@given(actions, st.booleans())
def test_what_is_stored_of_a_key_is_a_prefix_of_what_was_sent(
    steps: list[tuple[str, bytes | int | None]], count_known: bool
) -> None:
    publisher = run(steps, warmup=True, count_known=count_known)
    assert not has_gap(publisher)
    for key in KEYS:
        stored = set(publisher.stored(key))
        for number in publisher.sent[key]:
            assert number in publisher.reports, "a message without a report"
            assert (publisher.reports[number] is None) == (number in stored)


@given(st.lists(st.sampled_from(KEYS), min_size=1, max_size=40))
def test_without_refusals_everything_is_stored_and_nothing_is_held_in_the_end(keys: list[bytes]) -> None:
    publisher = run([("publish", key) for key in keys], warmup=True)
    assert publisher.warmup.held == 0
    assert sum(len(log) for log in publisher.pipeline.logs.values()) == len(keys)
    assert not has_gap(publisher)


def test_what_waits_behind_a_refused_first_message_is_reported_as_not_sent() -> None:
    publisher = run(
        [("publish", b"a"), ("publish", b"a"), ("refuse", partition_of(b"a", PARTITIONS))], warmup=True
    )
    assert publisher.reports == {1: "refused", 2: NOT_SENT}


def test_without_the_primer_a_new_producer_leaves_a_gap() -> None:
    refuse_first: list[tuple[str, bytes | int | None]] = [
        ("publish", b"a"),
        ("publish", b"a"),
        ("refuse", partition_of(b"a", PARTITIONS)),
    ]
    assert has_gap(run(refuse_first, warmup=False))
    assert not has_gap(run(refuse_first, warmup=True))
