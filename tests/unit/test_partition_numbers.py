"""The numbers of lanes' partitions, and how logs and errors name them."""

from __future__ import annotations

import pytest

from kafka_pubsub.lane_names import Lane
from kafka_pubsub.partition_numbers import index_of, lane_index, number_of, partition_of, shown


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("priority", range(10))
def test_a_number_says_lane_and_partition(priority: int, durable: bool) -> None:
    lane = Lane(priority, durable)
    number = number_of(lane_index(lane), 1234)
    assert (index_of(number), partition_of(number)) == (lane_index(lane), 1234)
    assert shown(number) == f"1234 of {lane.suffix}"


def test_partitions_of_the_topic_itself_keep_their_numbers() -> None:
    assert number_of(0, 7) == index_of(7) + 7 == partition_of(7) == 7
    assert shown(7) == "7"
