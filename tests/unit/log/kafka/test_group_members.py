"""Whether a group has members is never asked of its coordinator: such a request may end the process (decision 065)."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import ConsumerGroupState, KafkaError

from kafka_pubsub.errors import PermissionDenied
from kafka_pubsub.log.kafka import group_members
from kafka_pubsub.log.kafka.admin import KafkaAdmin
from kafka_pubsub.log.kafka.client_factory import ClientFactory

LOADING = KafkaError(KafkaError.COORDINATOR_LOAD_IN_PROGRESS)


class Client:
    """An admin client that lists `lists` in turn, the last list for ever: states of the group, or errors."""

    def __init__(self, *lists: ConsumerGroupState | KafkaError | None) -> None:
        self._lists = list(lists)
        self.described = 0

    def list_consumer_groups(self, **_: object) -> Future[Any]:
        told = self._lists.pop(0) if len(self._lists) > 1 else self._lists[0]
        errors = [told] if isinstance(told, KafkaError) else []
        states = [] if errors or told is None else [SimpleNamespace(group_id="g", state=told)]
        return _answer(SimpleNamespace(valid=states, errors=errors))

    def describe_consumer_groups(self, groups: Sequence[str], **_: object) -> dict[str, Future[Any]]:
        self.described += 1
        return {
            each: _answer(SimpleNamespace(members=[SimpleNamespace(host="/10.0.0.1")] * 2)) for each in groups
        }

    def poll(self, _: float) -> None: ...


def _answer(found: object) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(found)
    return future


def over(client: Client) -> KafkaAdmin:
    handles = SimpleNamespace(
        check=lambda: None, check_version=lambda _: None, admin=lambda _: client, address="nowhere"
    )
    return KafkaAdmin(cast("ClientFactory", handles))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The groups about which a consumer has asked their coordinator."""
    groups: list[str] = []
    monkeypatch.setattr(group_members, "ask_coordinator", lambda _handles, _s, group: groups.append(group))
    return groups


@pytest.mark.parametrize("state", [ConsumerGroupState.STABLE, ConsumerGroupState.UNKNOWN])
def test_a_listed_group_with_members_has_some(state: ConsumerGroupState, asked: list[str]) -> None:
    """A state that librdkafka doesn't know is a state of the newer protocol's, between two assignments."""
    client = Client(state)
    assert over(client).has_members("g")
    assert (client.described, asked) == (0, [])
    assert over(client).group_members("g") == 2
    assert over(client).member_hosts("g") == ["10.0.0.1", "10.0.0.1"]


@pytest.mark.parametrize("state", [ConsumerGroupState.EMPTY, ConsumerGroupState.DEAD])
def test_of_a_listed_group_without_members_nothing_more_is_asked(
    state: ConsumerGroupState, asked: list[str]
) -> None:
    client = Client(state)
    assert not over(client).has_members("g")
    assert over(client).group_members("g") == 0
    assert (client.described, asked) == (0, [])


def test_a_group_that_is_not_listed_is_looked_for_once_more_when_its_coordinator_answers(
    asked: list[str],
) -> None:
    client = Client(None, ConsumerGroupState.STABLE)
    assert over(client).has_members("g")
    assert asked == ["g"]
    assert not over(Client(None)).has_members("g")
    assert client.described == 0


def test_a_group_that_this_client_may_not_see_is_not_taken_for_one_without_members(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_handles: object, _deadline: float, group: str) -> None:
        raise PermissionDenied(group)

    monkeypatch.setattr(group_members, "ask_coordinator", refuse)
    with pytest.raises(PermissionDenied):
        over(Client(None)).has_members("g")


def test_a_broker_that_does_not_know_its_groups_yet_is_asked_again(asked: list[str]) -> None:
    assert over(Client(LOADING, LOADING, ConsumerGroupState.STABLE)).has_members("g")
    assert asked == []


def test_a_client_that_gets_no_answer_about_members_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    class Silent(Client):
        def describe_consumer_groups(self, groups: Sequence[str], **_: object) -> dict[str, Future[Any]]:
            return {each: Future() for each in groups}

    monkeypatch.setattr(group_members, "FIRST", 0.1)
    silent, made = Silent(ConsumerGroupState.STABLE), Client(ConsumerGroupState.STABLE)
    clients: list[Client] = [silent, made]
    closed: list[Client] = []
    handles = SimpleNamespace(
        check=lambda: None,
        check_version=lambda _: None,
        admin=lambda _: clients.pop(0),
        close_admin=closed.append,
        address="nowhere",
    )
    admin = KafkaAdmin(cast("ClientFactory", handles))
    assert len(admin.member_hosts("g")) == 2
    assert closed == [silent], "no call used it any more"
    assert len(admin.member_hosts("g")) == 2
    assert made.described == 2
    admin.close()
    assert closed == [silent, made]
