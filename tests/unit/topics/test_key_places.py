"""Keys that lie elsewhere than murmur2 puts them: counted once, explained by a smaller topic where that is certain."""

from __future__ import annotations

import zlib

import pytest

from kafka_pubsub.log.partitioner import partition_of
from kafka_pubsub.topics.key_places import judge

KEYS = [b"key-%d" % number for number in range(100)]


def test_keys_where_they_belong_need_no_advice() -> None:
    found = judge(8, [(key, partition_of(key, 8)) for key in KEYS * 2])
    assert (found.keys, found.misplaced, found.examples, found.advice) == (100, 0, (), None)


def test_another_rule_is_reported_with_an_example_and_the_setting_that_mends_it() -> None:
    found = judge(8, [(key, zlib.crc32(key) % 8) for key in KEYS * 2])
    wrong = [key for key in KEYS if zlib.crc32(key) % 8 != partition_of(key, 8)]
    assert (found.keys, found.misplaced, found.former_partitions) == (100, len(wrong), None)
    first = found.examples[0]
    assert first == (wrong[0], zlib.crc32(wrong[0]) % 8, partition_of(wrong[0], 8))
    assert found.advice is not None
    assert f"{len(wrong)} of 100 sampled keys" in found.advice
    assert f"(key {wrong[0].decode()!r} in {first.partition}, not in {first.expected})" in found.advice
    assert "partitioner=murmur2_random" in found.advice


@pytest.mark.parametrize("former", [1, 3, 4])
def test_a_topic_that_was_given_partitions_is_recognised(former: int) -> None:
    before = [(key, partition_of(key, former)) for key in KEYS]
    since = [(key, partition_of(key, 8)) for key in KEYS[::2]]
    found = judge(8, before + since)
    assert (found.former_partitions, found.misplaced >= 40) == (former, True)
    assert f"the topic had {former} partition" in str(found.advice)


def test_a_few_keys_are_no_evidence_of_a_smaller_topic() -> None:
    key = next(each for each in KEYS if partition_of(each, 8) != partition_of(each, 4))
    found = judge(8, [(key, partition_of(key, 4))])
    assert (found.misplaced, found.former_partitions) == (1, None)


def test_a_key_that_is_no_text_is_shown_all_the_same() -> None:
    key = b"\xff\x00"
    found = judge(8, [(key, (partition_of(key, 8) + 1) % 8)])
    assert "xff" in str(found.advice)
