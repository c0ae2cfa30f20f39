"""The partitioner agrees with Kafka's own test vectors."""

from __future__ import annotations

import pytest

from kafka_pubsub.log.partitioner import murmur2, partition_of

#: From the Java client's tests, as signed 32-bit numbers.
JAVA = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}

#: From librdkafka's tests.
LIBRDKAFKA = {
    b"": 0x106E08D9,
    b"4": 0x5A4B5CA1,
    b"34": 0x873930DA,
    b"234": 0xE7C009CA,
    b"1234": 0x9FC97B14,
    b"giberish123456789": 0x8F552B0C,
    b"kafka": 0xD067CF64,
}


@pytest.mark.parametrize(("key", "digest"), JAVA.items())
def test_murmur2_is_the_java_clients(key: bytes, digest: int) -> None:
    assert murmur2(key) == digest % 2**32


@pytest.mark.parametrize(("key", "digest"), LIBRDKAFKA.items())
def test_murmur2_is_librdkafkas(key: bytes, digest: int) -> None:
    assert murmur2(key) == digest


def test_the_sign_bit_is_cleared_not_negated() -> None:
    assert partition_of(b"21", 1000) == (-973932308 & 0x7FFFFFFF) % 1000
    assert partition_of(b"21", 1000) != 973932308 % 1000


@pytest.mark.parametrize("partitions", [1, 2, 8, 12, 10_000])
def test_every_key_has_a_partition(partitions: int) -> None:
    found = {partition_of(b"key-%d" % number, partitions) for number in range(500)}
    assert min(found) >= 0
    assert max(found) < partitions
