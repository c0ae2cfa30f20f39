"""The ids of lanes' partitions, and how logs and errors name them."""

from __future__ import annotations

import pytest

from kafka_pubsub.lane_names import Lane
from kafka_pubsub.partition_id import PartitionId


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("priority", range(10))
def test_an_id_of_a_lane_names_it(priority: int, durable: bool) -> None:
    lane = Lane(priority, durable)
    assert Lane.at(lane.number) == lane
    assert str(PartitionId(lane.number, 1234)) == f"1234 of {lane.suffix}"


def test_every_lane_has_a_number_of_its_own() -> None:
    lanes = [Lane(priority, durable) for priority in range(10) for durable in (True, False)]
    assert sorted(lane.number for lane in lanes) == list(range(1, 21))


def test_a_partition_of_the_topic_itself_is_named_by_its_number() -> None:
    assert f"{PartitionId(0, 7)}" == "7"
