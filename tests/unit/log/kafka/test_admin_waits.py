"""Answers of a cluster that loses brokers: what isn't known yet is asked again, who has taken over is looked for."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import NewTopic

from kafka_pubsub.errors import (
    AlreadyExists,
    BrokerUnavailable,
    DeadlineExceeded,
    InvalidArgument,
    NotFound,
    PermissionDenied,
)
from kafka_pubsub.log.kafka import admin, bounded_calls
from kafka_pubsub.log.kafka.admin import KafkaAdmin
from kafka_pubsub.log.kafka.client_factory import ClientFactory
from kafka_pubsub.model import TopicInfo, TopicPartition

PLACE = TopicPartition("t", 0)
#: Where nothing takes connections.
NOWHERE = "127.0.0.1:1"


class Client:
    """An admin client that tells `answers`, an answer a request; None: nothing, until somebody looks around."""

    def __init__(self, *answers: int | KafkaError | None) -> None:
        self._answers = list(answers)
        self._waiting: list[Future[Any]] = []
        self.looks = 0

    def list_offsets(self, wanted: Mapping[KafkaPartition, object], **_: object) -> dict[KafkaPartition, Any]:
        future: Future[Any] = Future()
        answer = self._answers.pop(0)
        if answer is None:
            self._waiting.append(future)
        elif isinstance(answer, KafkaError):
            future.set_exception(KafkaException(answer))
        else:
            future.set_result(SimpleNamespace(offset=answer, leader_epoch=None))
        return dict.fromkeys(wanted, future)

    def list_topics(self, *_: object, **__: object) -> None:
        self.looks += 1
        while self._waiting:
            self._waiting.pop().set_result(SimpleNamespace(offset=9, leader_epoch=None))

    def poll(self, _: float) -> None: ...


class Admin(KafkaAdmin):
    """A client for which every topic is there, with a single partition."""

    def __init__(self, client: Client, address: str = NOWHERE) -> None:
        handles = SimpleNamespace(
            check=lambda: None, check_version=lambda _: None, admin=lambda _: client, address=address
        )
        super().__init__(cast("ClientFactory", handles))

    def topic(self, name: str, *, deadline: float | None = None) -> TopicInfo:
        return TopicInfo(name, "id", 1, 3, 1000, {})


def test_a_leader_that_has_moved_is_looked_for() -> None:
    moved = KafkaError(KafkaError.NOT_LEADER_FOR_PARTITION)
    client = Client(moved, 7)
    assert asked(client) == 7
    assert client.looks == 1


def asked(client: Client) -> int:
    return Admin(client).high_watermarks([PLACE])[PLACE]


def test_an_end_that_is_not_known_yet_is_asked_for_again() -> None:
    """Told without an error while a leader is away; as an end it would say that the log was truncated."""
    assert asked(Client(OFFSET_INVALID, OFFSET_INVALID, 7)) == 7


def test_who_hears_nothing_looks_for_the_broker_that_has_taken_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_calls, "_SILENT", 0.0)
    client = Client(None)
    assert asked(client) == 9
    assert client.looks > 0


DENIED = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)


def test_a_new_topic_may_be_denied_by_a_broker_that_has_not_heard_of_it_yet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(admin, "_POLL", 0.0)
    assert Admin(Client(DENIED, DENIED, 4)).last_stable_offsets("t") == {0: 4}
    monkeypatch.setattr(admin, "_SPREADS", -1.0)
    with pytest.raises(NotFound):
        Admin(Client(DENIED, 4)).last_stable_offsets("t")


class Forgetful:
    """An admin client whose brokers deny the topic to the first `denials` questions after it was made."""

    def __init__(self, denials: int, *, made: Sequence[KafkaError] = ()) -> None:
        self._denials = denials
        # Refusals of requests to make the topic, in turn; the request after the last refusal succeeds.
        self._made = list(made)
        # The wait for the topic, when it is made, isn't tried here.
        self.known = False
        self.looks = 0

    def create_topics(self, wanted: list[NewTopic], **_: object) -> dict[str, Any]:
        answer = KafkaException(self._made.pop(0)) if self._made else None
        return {each.topic: _answer(answer) for each in wanted}

    def delete_topics(self, names: list[str], **_: object) -> dict[str, Any]:
        return dict.fromkeys(names, _answer(None))

    def describe_topics(self, _: object, **__: object) -> dict[str, Any]:
        if self.known and self._denials:
            self._denials -= 1
            return {"t": _answer(KafkaException(DENIED))}
        part = SimpleNamespace(leader=1, replicas=[1])
        return {"t": _answer(SimpleNamespace(topic_id="id", partitions=[part, part]))}

    def describe_configs(self, wanted: list[object], **_: object) -> dict[object, Any]:
        return dict.fromkeys(wanted, _answer({}))

    def list_topics(self, *_: object, **__: object) -> None:
        self.looks += 1

    def poll(self, _: float) -> None: ...


def _answer(found: object) -> Future[Any]:
    future: Future[Any] = Future()
    if isinstance(found, Exception):
        future.set_exception(found)
    else:
        future.set_result(found)
    return future


def over(client: Forgetful) -> KafkaAdmin:
    handles = SimpleNamespace(
        check=lambda: None, check_version=lambda _: None, admin=lambda _: client, address="nowhere"
    )
    return KafkaAdmin(cast("ClientFactory", handles))


def test_a_topic_that_we_have_made_is_asked_for_again_when_a_broker_denies_it() -> None:
    """Another broker than the broker that said "made" may be asked next, and be cut off from the controller."""
    client = Forgetful(3)
    new = over(client)
    new.create_topic("t", 2, None, {})
    client.known = True
    assert new.topic("t").partitions == 2
    assert client.looks == 3


def test_a_topic_that_was_there_already_is_asked_for_again_too() -> None:
    client = Forgetful(1, made=[KafkaError(KafkaError.TOPIC_ALREADY_EXISTS)])
    new = over(client)
    with pytest.raises(AlreadyExists):
        new.create_topic("t", 2, None, {})
    client.known = True
    assert new.topic("t").partitions == 2


def test_a_topic_is_made_when_the_brokers_are_let_in_again() -> None:
    """A broker without processor time misses its heartbeats: the controller fences it until the next heartbeat."""
    fenced = KafkaError(
        KafkaError.INVALID_REPLICATION_FACTOR,
        "Unable to replicate the partition 1 time(s): All brokers are currently fenced.",
    )
    assert over(Forgetful(0, made=[fenced, fenced])).create_topic("t", 2, None, {}).partitions == 2


def test_a_topic_that_wants_more_replicas_than_there_are_brokers_is_refused_at_once() -> None:
    too_many = KafkaError(KafkaError.INVALID_REPLICATION_FACTOR, "only 1 broker(s) are registered")
    with pytest.raises(InvalidArgument, match="larger than the number of brokers"):
        over(Forgetful(0, made=[too_many])).create_topic("t", 2, 3, {})


def test_a_topic_is_denied_at_once_if_it_is_not_new_and_for_good_if_it_stays_denied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = Forgetful(1000)
    client.known = True
    with pytest.raises(NotFound):
        over(client).topic("t")
    assert client.looks == 0
    client.known = False
    new = over(client)
    new.create_topic("t", 2, None, {})
    client.known = True
    monkeypatch.setattr(admin, "_DOUBT", 0.05)
    with pytest.raises(NotFound):
        new.topic("t")
    new.delete_topic("t")
    looks = client.looks
    with pytest.raises(NotFound):
        new.topic("t")
    assert client.looks == looks


class Mute(Client):
    """An admin client that never tells anything; a look around is answered if `looks_work`."""

    def __init__(self, *, looks_work: bool = False) -> None:
        super().__init__(*[None] * 100)
        self._looks_work = looks_work
        self.asked = threading.Event()

    def list_offsets(self, wanted: Mapping[KafkaPartition, object], **_: object) -> dict[KafkaPartition, Any]:
        self.asked.set()
        return super().list_offsets(wanted)

    def answer(self, offset: int) -> None:
        while self._waiting:
            self._waiting.pop().set_result(SimpleNamespace(offset=offset, leader_epoch=None))

    def list_topics(self, *_: object, **__: object) -> None:
        if not self._looks_work:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))


def test_where_no_broker_has_ever_answered_a_call_fails_long_before_its_time_is_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bounded_calls, "FIRST", 0.01)
    with pytest.raises(BrokerUnavailable, match=r"no broker answers at 127.0.0.1:1 \(no answer\)"):
        asked(Mute())


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of something that takes connections, and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize("several", [False, True])
def test_a_first_answer_that_takes_long_is_waited_for_where_something_takes_connections(
    several: bool, silent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TLS and a login over a long way take seconds, and so does a broker that is starved of processor time."""
    monkeypatch.setattr(bounded_calls, "FIRST", 0.01)
    client = Mute()
    if several:  # another broker being down says nothing about this broker
        silent = f"{NOWHERE},{silent}"
    slow = Admin(client, silent)
    if several:
        slow._trouble.note(KafkaError(KafkaError._TRANSPORT, "Connection refused"))
    answer = threading.Timer(0.3, lambda: client.answer(9))
    answer.start()
    assert slow.high_watermarks([PLACE])[PLACE] == 9


def test_what_takes_connections_and_never_answers_fails_when_the_time_is_up(
    silent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded_calls, "FIRST", 0.01)
    slow = Admin(Mute(), silent)
    monkeypatch.setattr(slow, "_deadline", 0.1)
    with pytest.raises(BrokerUnavailable, match=rf"no broker answers at {silent} \(no answer\)"):
        slow.high_watermarks([PLACE])


def test_a_reason_that_is_known_is_told_at_once(silent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a client without TLS speaks to a broker with TLS: connected, and hung up at once."""
    monkeypatch.setattr(bounded_calls, "FIRST", 0.01)
    wrong = Admin(Mute(), silent)
    wrong._trouble.note(KafkaError(KafkaError._TRANSPORT, "Disconnected while requesting ApiVersion"))
    with pytest.raises(BrokerUnavailable, match="disconnected while requesting"):
        wrong.high_watermarks([PLACE])


@pytest.mark.parametrize("how", ["a look", "an answer", "a refusal"])
def test_a_cluster_that_has_answered_once_is_waited_for(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_calls, "FIRST", 0.01)
    monkeypatch.setattr(bounded_calls, "_SILENT", 0.0)
    client = Mute(looks_work=how == "a look")
    if how == "an answer":
        client._answers.insert(0, 7)
    elif how == "a refusal":
        client._answers.insert(0, KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
    known = Admin(client)
    if how != "a look":
        with contextlib.suppress(PermissionDenied):
            known.high_watermarks([PLACE])
    monkeypatch.setattr(known, "_deadline", 0.1)
    with pytest.raises(DeadlineExceeded):
        known.high_watermarks([PLACE])


def test_a_call_that_runs_while_the_admin_closes_ends_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its destructor would run wherever the collector does, perhaps on a thread of librdkafka's: that aborts."""
    monkeypatch.setattr(bounded_calls, "FIRST", 0.2)
    client = Mute()
    used = Admin(client)
    closed: list[object] = []
    monkeypatch.setattr(used._handles, "close_admin", closed.append, raising=False)

    def ask() -> None:
        with pytest.raises(BrokerUnavailable):
            used.high_watermarks([PLACE])

    call = threading.Thread(target=ask)
    call.start()
    client.asked.wait()
    used.close()
    assert closed == []
    call.join()
    assert closed == [client]
