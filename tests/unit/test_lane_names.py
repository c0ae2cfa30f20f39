"""The names of lanes, and which lane a message takes."""

from __future__ import annotations

import pytest

from kafka_pubsub.errors import InvalidArgument
from kafka_pubsub.lane_names import Lane, LaneRules, every_name, lane_of, middle_priority

TEN = LaneRules("orders", 10, transient=True, default=4)


@pytest.mark.parametrize("lane", TEN.lanes)
def test_a_name_says_topic_and_lane(lane: Lane) -> None:
    name = TEN.name(lane)
    if lane == Lane(4, True):
        assert (name, lane_of(name)) == ("orders", None), "the default lane is the topic itself"
    else:
        assert lane_of(name) == ("orders", lane)


def test_every_lane_has_one_of_the_names_that_a_topic_may_have() -> None:
    names = every_name("orders")
    assert names[0] == "orders"
    assert {TEN.name(lane) for lane in TEN.lanes} <= set(names)
    assert len(set(names)) == len(names) == 21


def test_the_class_is_in_the_name() -> None:
    assert TEN.name(Lane(7, True)) == "orders.lane.p7"
    assert TEN.name(Lane(4, False)) == "orders.lane.t4"


def test_the_highest_priority_comes_first_and_the_durable_lane_before_the_transient_one() -> None:
    assert LaneRules("orders", 2, transient=True, default=0).lanes == [
        Lane(1, True),
        Lane(1, False),
        Lane(0, True),
        Lane(0, False),
    ]
    assert LaneRules("orders", 3, transient=False, default=1).lanes == [
        Lane(2, True),
        Lane(1, True),
        Lane(0, True),
    ]
    assert len(set(TEN.lanes)) == 20


@pytest.mark.parametrize("name", ["orders", "orders.lane.p", "orders.lane.x1", "orders.lane.p10", ".lane.p1"])
def test_other_names_are_no_lanes(name: str) -> None:
    assert lane_of(name) is None


def test_the_default_priority_is_the_middle_one() -> None:
    assert [middle_priority(each) for each in range(1, 11)] == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]


def test_a_message_takes_the_default_of_what_it_leaves_out() -> None:
    assert TEN.choose(None, None) == Lane(4, True)
    assert TEN.choose(9, None) == Lane(9, True)
    assert TEN.choose(None, False) == Lane(4, False)
    assert TEN.choose(0, True) == Lane(0, True)


@pytest.mark.parametrize(
    ("priority", "durable", "named"),
    [
        (10, None, "priority 10"),
        (-1, None, "priority -1"),
        (1.0, None, "priority must be a whole number, not 1.0"),
        (True, None, "priority must be a whole number, not True"),
        ("9", None, "priority must be a whole number, not '9'"),
        (None, 0, "durable must be True or False, not 0"),
    ],
)
def test_a_wrong_value_is_named(priority: object, durable: object, named: str) -> None:
    with pytest.raises(InvalidArgument, match=named):
        TEN.choose(priority, durable)


def test_what_the_topic_does_not_have_is_named() -> None:
    plain = LaneRules("orders", 1, transient=False, default=0)
    assert not plain.any
    assert plain.choose(0, True) == Lane(0, True)
    with pytest.raises(InvalidArgument, match="priority 3: topic 'orders' has one priority"):
        plain.choose(3, None)
    with pytest.raises(InvalidArgument, match="durable=False: topic 'orders' has no transient class"):
        plain.choose(None, False)
