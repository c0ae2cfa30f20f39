"""Names that topics and subscriptions may have: refused before anything is made, with the reason."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_pubsub import InvalidArgument, PubSub
from kafka_pubsub.topics.names import (
    MAX_KAFKA_NAME,
    MAX_TOPIC_NAME,
    check_new_topic_name,
    check_subscription_name,
    check_topic_name,
    look_alike,
    retry_topic,
)

WRONG = [
    ("", "empty"),
    (".", "Kafka can't hold"),
    ("..", "Kafka can't hold"),
    ("a b", "contains ' '"),
    ("a/b", "contains '/'"),
    ("bücher", "contains 'ü'"),
    ("line\n", r"contains '\\n'"),
    ("__consumer_offsets", "begins with '_'"),
    ("_mine", "begins with '_'"),
    ("ps-orders", "begins with 'ps-'"),
    (None, "not NoneType"),
    (b"orders", "not bytes"),
    (7, "not int"),
]


@pytest.mark.parametrize(("name", "reason"), WRONG)
def test_a_topic_that_kafka_or_we_cannot_hold_is_refused(name: object, reason: str) -> None:
    with pytest.raises(InvalidArgument, match=reason) as caught:
        check_new_topic_name(name)
    assert "topic name" in caught.value.message


@pytest.mark.parametrize(("name", "reason"), WRONG)
def test_a_subscription_that_kafka_or_we_cannot_hold_is_refused(name: object, reason: str) -> None:
    with pytest.raises(InvalidArgument, match=reason) as caught:
        check_subscription_name(name)
    assert "subscription name" in caught.value.message


@pytest.mark.parametrize(
    "name", ["orders.sub.billing.retry", "orders.lane.p7", "orders.lane.t0", "a.lane.x7", "orders.inbox"]
)
def test_a_topic_that_looks_derived_is_refused(name: str) -> None:
    with pytest.raises(InvalidArgument, match="reserved"):
        check_topic_name(name)


@pytest.mark.parametrize("name", ["com.sub.orders", "lane.p7", "inbox", "retry", "orders.retry", "A-1_b.c"])
def test_names_that_only_resemble_derived_ones_are_fine(name: str) -> None:
    assert check_new_topic_name(name) == name


@pytest.mark.parametrize("name", ["a.sub.b", "sub.a"])
def test_a_subscription_may_not_contain_what_separates_it_from_its_topic(name: str) -> None:
    with pytest.raises(InvalidArgument, match="separates topic and subscription"):
        check_subscription_name(name)


def test_the_longest_names_are_the_ones_whose_derived_names_still_fit() -> None:
    assert check_new_topic_name("x" * MAX_TOPIC_NAME)
    with pytest.raises(InvalidArgument, match=f"at most {MAX_TOPIC_NAME}"):
        check_new_topic_name("x" * (MAX_TOPIC_NAME + 1))
    assert check_topic_name("x" * MAX_KAFKA_NAME)
    with pytest.raises(InvalidArgument, match=f"at most {MAX_KAFKA_NAME}"):
        check_topic_name("x" * (MAX_KAFKA_NAME + 1))
    assert len(retry_topic("t" * 138, "s" * 100)) == MAX_KAFKA_NAME
    with pytest.raises(InvalidArgument, match="together have 239 characters, at most 238"):
        retry_topic("t" * 139, "s" * 100)


NAMES = st.text(st.sampled_from("asub.-_retylnpi07"), min_size=1, max_size=12)


def accepted(check: object, name: str) -> bool:
    assert callable(check)
    try:
        check(name)
    except InvalidArgument:
        return False
    return True


def topics() -> st.SearchStrategy[str]:
    parts = st.lists(st.sampled_from(["a", "sub", ".", "sub.", ".sub", ".sub.", "retry", "x"]), min_size=1)
    return parts.map("".join).filter(lambda name: accepted(check_topic_name, name))


def subscriptions() -> st.SearchStrategy[str]:
    parts = st.lists(st.sampled_from(["a", "sub", ".", "sub.", ".sub", "retry", "x"]), min_size=1)
    return parts.map("".join).filter(lambda name: accepted(check_subscription_name, name))


@given(topics(), subscriptions(), topics(), subscriptions())
def test_two_subscriptions_never_share_a_retry_topic(t1: str, s1: str, t2: str, s2: str) -> None:
    if (t1, s1) != (t2, s2):
        assert retry_topic(t1, s1) != retry_topic(t2, s2)


@given(topics(), topics(), subscriptions())
def test_a_topic_is_never_a_retry_topic(topic: str, home: str, subscription: str) -> None:
    assert topic != retry_topic(home, subscription)


@given(NAMES, NAMES)
def test_names_look_alike_when_kafkas_metrics_cannot_tell_them_apart(one: str, other: str) -> None:
    alike = one != other and one.replace(".", "_") == other.replace(".", "_")
    assert (look_alike(one, [other]) is not None) == alike


def test_a_topic_beside_its_look_alike_is_refused(ps: PubSub) -> None:
    ps.create_topic("a_b")
    with pytest.raises(InvalidArgument, match=r"'a\.b' can't be told from 'a_b'"):
        ps.create_topic("a.b")
    assert [topic.name for topic in ps.list_topics()] == ["a_b"]


def test_a_subscription_beside_its_look_alike_is_refused(ps: PubSub) -> None:
    ps.create_topic("orders")
    ps.create_subscription("b_c", "orders")
    with pytest.raises(InvalidArgument, match=r"'b\.c' can't be told from 'b_c'"):
        ps.create_subscription("b.c", "orders")


def test_a_topic_that_looks_like_a_subscriptions_retry_topic_is_refused(ps: PubSub) -> None:
    ps.create_topic("a")
    ps.create_subscription("b", "a")
    with pytest.raises(InvalidArgument, match=r"a\.sub\.b\.retry"):
        ps.create_topic("a_sub_b_retry")


def test_a_subscription_whose_retry_topic_looks_like_a_topic_is_refused(ps: PubSub) -> None:
    ps.create_topic("a_sub_b_retry")
    ps.create_topic("a")
    with pytest.raises(InvalidArgument, match="a_sub_b_retry"):
        ps.create_subscription("b", "a")


def test_a_subscription_whose_retry_topic_would_not_fit_is_refused_and_nothing_is_made(ps: PubSub) -> None:
    ps.create_topic("t" * 200)
    with pytest.raises(InvalidArgument, match="together have 250 characters"):
        ps.create_subscription("s" * 50, "t" * 200)
    assert ps.list_subscriptions() == []
