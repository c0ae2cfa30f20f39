"""Finds keys that lie in other partitions than murmur2 puts them into, and advises what to do about them.

Theory: an ordering key keeps its order only while all its messages go into one partition. Other programs may choose by
another rule (librdkafka's default is CRC32), and a topic that was given partitions has its older messages where the
smaller number put them.

Rules
1. A key counts once, however many records it has; it is misplaced if any of them is.
2. A smaller number of partitions is the explanation only if it explains every misplaced key, and there are enough of
   them that this can't be chance.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kafka_pubsub.log.partitioner import murmur2, partition_of

__all__ = ["KeyPlaces", "MisplacedKey", "former_partitions", "judge", "remedy"]

#: Misplaced keys that are kept as examples.
_EXAMPLES = 5

#: The number of misplaced keys from which on a smaller number of partitions that explains all of them is believed.
_ENOUGH = 8


class MisplacedKey(NamedTuple):
    """A key with a record in `partition`, although murmur2 puts it into `expected`."""

    key: bytes
    partition: int
    expected: int


class KeyPlaces(NamedTuple):
    """The result of a look at the keys of a sample of a topic's records.

    `keys`: different keys in the sample; `misplaced`: how many of them lie elsewhere than murmur2 puts them, with some
    `examples`. `former_partitions`: the number of partitions that explains these; None: no number does.
    """

    partitions: int
    keys: int
    misplaced: int
    examples: tuple[MisplacedKey, ...]
    former_partitions: int | None

    @property
    def advice(self) -> str | None:
        """What was found, and what to do; None: every key lies where it belongs."""
        if not self.examples:
            return None
        key, partition, expected = self.examples[0]
        return (
            f"{self.misplaced:,} of {self.keys:,} sampled keys lie in another partition than murmur2 puts them into "
            f"(key {key.decode('utf-8', 'backslashreplace')!r:.100} in {partition}, not in {expected}): "
            f"{remedy(self.former_partitions)}"
        )


def judge(partitions: int, records: Iterable[tuple[bytes, int]]) -> KeyPlaces:
    """Returns the places of these keys, each with the partition of its record, in a topic of so many `partitions`."""
    keys: set[bytes] = set()
    misplaced: dict[bytes, int] = {}
    for key, partition in records:
        keys.add(key)
        if partition_of(key, partitions) != partition:
            misplaced.setdefault(key, partition)
    examples = [
        MisplacedKey(key, partition, partition_of(key, partitions)) for key, partition in misplaced.items()
    ]
    former = former_partitions(partitions, misplaced)
    return KeyPlaces(partitions, len(keys), len(misplaced), tuple(examples[:_EXAMPLES]), former)


def former_partitions(partitions: int, misplaced: Mapping[bytes, int]) -> int | None:
    """Returns the largest number below `partitions` by which all these keys lie where they belong, or None."""
    if len(misplaced) < _ENOUGH:
        return None
    hashes = [(murmur2(key) & 0x7FFFFFFF, partition) for key, partition in misplaced.items()]
    for former in range(partitions - 1, 0, -1):
        if all(digest % former == partition for digest, partition in hashes):
            return former
    return None


def remedy(former: int | None) -> str:
    """Returns why keys lie elsewhere, what that costs, and what to do about it."""
    if former is not None:
        had = f"{former} partitions" if former > 1 else "1 partition"
        return (
            f"the topic had {had} when these messages were written. Later messages of such a key go to another "
            "partition, so the order between the older and the later ones isn't kept: have the older ones received "
            "first, or copy them into a new topic"
        )
    return (
        "another program chooses partitions by another rule, as librdkafka does by default (CRC32), or the topic was "
        "given partitions. Messages of such a key that are published by kafka_pubsub go to another partition, so the "
        "order between them and the others isn't kept. Set partitioner=murmur2_random in that program (the default of "
        "Kafka's Java producer does the same), and have what it wrote received before you publish such keys, or copy "
        "it into a new topic"
    )
