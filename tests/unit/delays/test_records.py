"""Headers of delayed messages: they come back as they were written, or say nothing."""

from __future__ import annotations

import pytest

from kafka_pubsub.delays import records
from kafka_pubsub.delays.records import DelayCancel, Delayed, DelayRequest

WRITTEN = Delayed("orders#id", 1_700_000_000_123, 1_700_000_000_000, 5, 42)


def test_the_header_of_a_tier_comes_back() -> None:
    assert records.decode_delayed(records.encode_delayed(WRITTEN)) == WRITTEN


@pytest.mark.parametrize("request_", [DelayRequest("orders", None, 500), DelayRequest("orders", 7, None)])
def test_a_request_comes_back(request_: DelayRequest) -> None:
    assert records.decode_request(records.encode_request(request_)) == request_


@pytest.mark.parametrize(
    "wrong", [DelayRequest("orders", 7, 500), DelayRequest("orders", None, None), DelayRequest("", 7, None)]
)
def test_a_request_without_one_time_and_a_home_says_nothing(wrong: DelayRequest) -> None:
    assert records.decode_request(records.encode_request(wrong)) is None


def test_a_request_to_cancel_comes_back_unless_its_target_is_none() -> None:
    cancel = DelayCancel(due=7, target=3, offset=9, leaves=6, left=1)
    assert records.decode_cancel(records.encode_cancel(cancel)) == cancel
    assert records.decode_cancel(records.encode_cancel(cancel._replace(target=-1))) is None


@pytest.mark.parametrize("at", [0, 1, 20, -1])
def test_a_changed_byte_is_noticed(at: int) -> None:
    damaged = bytearray(records.encode_delayed(WRITTEN))
    damaged[at] ^= 1
    assert records.decode_delayed(bytes(damaged)) is None


def test_a_home_is_a_name_and_the_id_of_the_topic() -> None:
    assert records.parts_of(records.address("orders", "id")) == ("orders", "id")
    assert records.parts_of(records.address("orders", "")) == ("orders", "")
