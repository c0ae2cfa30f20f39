"""The page's questions and orders over the in-memory Kafka: release, replay, purge, and why something is stuck."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from kafka_pubsub import DeadLetterPolicy, Message, PubSub, Subscription
from kafka_pubsub.log.memory import MemoryBackend
from kafka_pubsub.worker.control import Control
from kafka_pubsub.worker.follower import Follower
from kafka_pubsub.worker.rest import operate
from kafka_pubsub.worker.rest.access import Access
from kafka_pubsub.worker.rest.app import make_app
from kafka_pubsub.worker.worker import Worker
from tests.multicasts import stage
from tests.support import until
from tests.unit.delays.test_dead_letters import let_die
from tests.unit.dying import POLICY, QUICK, Handler, kill, publish
from tests.unit.subscribe.retry_topic.test_key_states import park
from tests.unit.worker.rest.workers import Workers

ACCESS = Access(token="write-it", read_token="read-it", user="ann", password="secret")
LETTERS = "/ui/api/subscriptions/billing/deadletters"
PARKING = DeadLetterPolicy(topic="dead", max_attempts=5, on_exhausted="park")


def app_of(ps: PubSub, access: Access | None = None) -> FastAPI:
    """The interface of a worker without units."""
    worker = Worker(lambda name, settings: pytest.fail("it has no units"), grace=1)
    control = Control(Follower(worker, dict), worker, lambda: ps._cluster.backend, "127.0.0.1:1")
    return make_app(control, "1", lambda: "c", access or Access(), pubsub=ps)


@pytest.fixture
def backend() -> MemoryBackend:
    return MemoryBackend()


@pytest.fixture
def ps(backend: MemoryBackend) -> Iterator[PubSub]:
    with PubSub.in_memory(backend, services=False) as pubsub:
        pubsub.create_topic("orders", partitions=2)
        pubsub.create_topic("dead", partitions=2)
        yield pubsub


@pytest.fixture
def client(ps: PubSub) -> TestClient:
    return TestClient(app_of(ps), "http://127.0.0.1:8083", raise_server_exceptions=False)


def subscribe(ps: PubSub, policy: DeadLetterPolicy | None = POLICY) -> Subscription:
    return ps.create_subscription(
        "billing", "orders", message_ordering=True, retry=QUICK, dead_letter=policy, ack_deadline=60
    )


def needs(row: dict[str, Any]) -> list[tuple[str, str]]:
    return [(each["text"], each["see"]) for each in row["stuck"]]


def count(answer: Any) -> int:
    assert answer.status_code == 200, answer.text
    found: int = answer.json()["count"]
    return found


def test_nothing_is_stuck_on_an_idle_cluster(ps: PubSub, client: TestClient) -> None:
    subscribe(ps)
    assert client.get("/ui/api/units").json() == []
    (row,) = client.get("/ui/api/subscriptions").json()
    assert (row["name"], row["topic"], row["backlog"], row["members"]) == ("billing", "orders", 0, [])
    assert row["stuck"] == []
    assert client.get("/ui/api/subscriptions/billing/keys").json() == {"rows": [], "count": 0}
    assert client.get(LETTERS).json() == {"rows": [], "more": False}
    assert client.get("/ui/api/delays").json() == {"routers": 0, "rows": [], "more": False, "messages": []}
    assert client.get("/ui/api/causal").json() == {"sequencers": 0, "rows": []}


def test_messages_that_no_process_receives_are_said(ps: PubSub, client: TestClient) -> None:
    sub = subscribe(ps)
    publish(ps, ("a", b"1"), ("a", b"2"))
    (row,) = client.get("/ui/api/subscriptions").json()
    assert needs(row) == [("no process receives, unfinished messages: 2", "")]
    assert row["oldest"] is not None
    with sub.pull(Handler()):
        until(lambda: client.get("/ui/api/subscriptions").json()[0]["backlog"] == 0)
        (row,) = client.get("/ui/api/subscriptions").json()
        assert (len(row["members"]), row["stuck"]) == (1, [])


def test_a_parked_key_is_shown_first_and_released(ps: PubSub, client: TestClient) -> None:
    sub = subscribe(ps, PARKING)
    publish(ps, ("bad", b"1"), ("bad", b"2"), ("slow", b"3"))

    def fail(message: Message) -> None:
        if message.data == b"3":
            message.nack(delay=86_400)
        else:
            raise ValueError("no")

    with sub.pull(fail):
        until(lambda: sorted(each.state for each in sub.keys()) == ["parked", "waiting"])  # noqa: SIM118
    (row,) = client.get("/ui/api/subscriptions").json()
    assert ("messages parked until they are released: 1", "keys") in needs(row)
    assert (row["parked"], row["blocked_keys"]) == (1, 2)

    parked, slow = client.get("/ui/api/subscriptions/billing/keys").json()["rows"]
    assert (parked["key"], parked["state"], parked["attempt"]) == ("bad", "parked", 5)
    assert parked["why"].startswith("its attempts are used up")
    assert "ValueError" in parked["why"]
    assert slow["state"] == "waiting"

    release = "/ui/api/subscriptions/billing/release"
    assert count(client.post(f"{release}?id={parked['message_id']}&dry_run=true")) == 1
    assert client.get("/ui/api/subscriptions/billing/keys").json()["count"] == 2
    done = client.post(f"{release}?id={parked['message_id']}")
    assert count(done) == 1
    assert done.json()["waits"], "no process receives"
    callback = Handler()
    with sub.pull(callback):
        assert [each.data for each in callback.wait_for(2)] == [b"1", b"2"], "the slow one still waits"


def test_a_dropped_message_becomes_a_dead_letter_and_its_key_goes_on(ps: PubSub, client: TestClient) -> None:
    sub = subscribe(ps, PARKING)
    publish(ps, ("bad", b"1"), ("bad", b"2"))
    (state,) = park(sub, b"1")
    dropped = client.post(f"/ui/api/subscriptions/billing/release?id={state.message_id}&drop=true")
    assert count(dropped) == 1
    callback = Handler()
    with sub.pull(callback):
        assert [each.data for each in callback.wait_for(1)] == [b"2"]
        until(lambda: len(client.get(LETTERS).json()["rows"]) == 1)


def test_dead_letters_are_filtered_viewed_and_replayed(ps: PubSub, client: TestClient) -> None:
    sub = subscribe(ps)
    publish(ps, ("a", b"1"), ("b", b"2"))
    kill(sub, 2)
    assert len(client.get(LETTERS).json()["rows"]) == 2
    (row,) = client.get(f"{LETTERS}?key=a").json()["rows"]
    assert (row["key"], row["attempts"], row["replays"], row["problem"]) == ("a", 5, 0, None)
    assert client.get(f"{LETTERS}?error=no-such-error").json()["rows"] == []
    assert client.get(f"{LETTERS}?until=2020-01-01T00:00:00Z").json()["rows"] == []
    (listed,) = client.get("/ui/api/subscriptions").json()
    assert needs(listed) == [("dead letters: 2", "letters")]

    full = client.get(f"{LETTERS}/{row['id']}").json()
    assert (full["data"], full["attributes"]) == ("1", {"n": "1"})
    assert count(client.post(f"{LETTERS}/replay?key=a&dry_run=true")) == 1
    assert count(client.post(f"{LETTERS}/replay?key=a")) == 1
    assert [each["key"] for each in client.get(LETTERS).json()["rows"]] == ["b"]
    assert client.get(f"{LETTERS}/{row['id']}").status_code == 404
    callback = Handler()
    with sub.pull(callback):
        assert [each.data for each in callback.wait_for(1)] == [b"1"]


def test_purged_dead_letters_are_given_up(ps: PubSub, client: TestClient) -> None:
    sub = subscribe(ps)
    publish(ps, ("a", b"1"), ("b", b"2"), (None, b"3"))
    kill(sub, 3)
    place = client.get(f"{LETTERS}?key=b").json()["rows"][0]["id"]
    assert count(client.post(f"{LETTERS}/purge?id={place}")) == 1
    assert [each["key"] for each in client.get(LETTERS).json()["rows"]] != ["b"]
    assert count(client.post(f"{LETTERS}/purge")) == 2
    assert client.get(LETTERS).json() == {"rows": [], "more": False}


def test_a_long_list_ends_and_says_that_there_are_more(
    ps: PubSub, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operate, "LISTED", 2)
    sub = subscribe(ps)
    publish(ps, *((None, b"%d" % each) for each in range(3)))
    kill(sub, 3)
    found = client.get(LETTERS).json()
    assert (len(found["rows"]), found["more"]) == (2, True)


def test_bytes_that_are_no_text_are_shown_in_base64(
    ps: PubSub, backend: MemoryBackend, client: TestClient
) -> None:
    sub = subscribe(ps)
    backend.cluster.append("orders", 0, b"\xff\x00", b"\xff", [("a", b"\xfe")])
    kill(sub, 1)
    (row,) = client.get(LETTERS).json()["rows"]
    assert (row["key"], row["key_encoding"]) == (base64.b64encode(b"\xff").decode(), "base64")
    full = client.get(f"{LETTERS}/{row['id']}").json()
    assert (full["data"], full["data_encoding"]) == (base64.b64encode(b"\xff\x00").decode(), "base64")


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("?kye=a", "kye"),
        ("?since=yesterday", "since"),
        ("?since=2026-01-01T00:00:00", "time zone"),
        ("?since=2026-01-02T00:00:00Z&until=2026-01-01T00:00:00Z", "nothing lies between"),
        ("?error=", "error is empty"),
        ("?key=", "isn't an ordering key"),
        ("?id=17", "neither a message id"),
    ],
)
def test_a_wrong_condition_is_refused_and_changes_nothing(
    ps: PubSub, client: TestClient, query: str, text: str
) -> None:
    sub = subscribe(ps)
    publish(ps, ("a", b"1"))
    kill(sub, 1)
    for answer in (client.get(LETTERS + query), client.post(f"{LETTERS}/purge{query}")):
        assert answer.status_code == 400
        assert text in answer.json()["message"]
    assert len(list(sub.dead_letters())) == 1


@pytest.mark.parametrize("path", ["keys", "deadletters", "deadletters/0:0"])
def test_a_subscription_that_is_gone_is_not_found(client: TestClient, path: str) -> None:
    assert client.get(f"/ui/api/subscriptions/none/{path}").status_code == 404


def test_delayed_messages_wait_for_a_router(ps: PubSub, client: TestClient) -> None:
    message_id = ps.topic("orders").publish(b"1", ordering_key="k", delay=3600).result(30)
    found = client.get("/ui/api/delays").json()
    (row,) = found["rows"]
    assert (row["topic"], row["waiting"], row["overdue"], found["routers"]) == ("orders", 1, 0, 0)
    assert needs(row) == [("messages wait, and no delay router runs", "delays")]
    (message,) = found["messages"]
    assert (message["message_id"], message["key"], message["size"]) == (message_id, "k", 1)


def test_what_routers_could_not_deliver_is_listed_replayed_and_purged(ps: PubSub, client: TestClient) -> None:
    ps.delete_topic("orders")
    let_die(ps, 2)
    letters = "/ui/api/delays/deadletters"
    rows = client.get(letters).json()["rows"]
    assert [each["topic"] for each in rows] == ["orders", "orders"]
    assert "doesn't exist any more" in rows[0]["why"]
    assert client.get(f"{letters}/{rows[0]['id']}").json()["data"] in ("0", "1")
    assert client.get(f"{letters}?topic=other").json()["rows"] == []
    assert count(client.post(f"{letters}/replay")) == 0, "their topic isn't there"
    ps.create_topic("orders", partitions=3)
    assert count(client.post(f"{letters}/replay?id={rows[0]['id']}")) == 1
    assert count(client.post(f"{letters}/purge?topic=orders&dry_run=true")) == 1
    assert count(client.post(f"{letters}/purge?topic=orders")) == 1
    assert client.get(letters).json()["rows"] == []
    assert client.post(f"{letters}/purge?topci=orders").status_code == 400


def test_messages_to_causal_topics_wait_for_a_sequencer(
    ps: PubSub, backend: MemoryBackend, client: TestClient
) -> None:
    for name in "ab":
        ps.create_topic(name, causal=True)
    stage(backend, "a", "b", message="m1")
    found = client.get("/ui/api/causal").json()
    assert found["sequencers"] == 0
    first = found["rows"][0]
    assert (first["topic"], first["pending"], first["oldest"]) == ("a", 1, "m1.0")
    assert needs(first) == [("messages wait, and no sequencer runs", "causal")]
    assert client.get("/ui/api/causal/deadletters").json() == {"rows": [], "more": False}


def test_units_say_their_state_and_what_an_operator_did() -> None:
    with PubSub.in_memory() as ps:
        ps.create_topic("orders", partitions=2)
        workers = Workers(ps, 1)
        client = workers.clients[0]

        def unit() -> dict[str, Any]:
            (found,) = client.get("/ui/api/units").json()
            return dict(found)

        until(lambda: unit()["state"] == "RUNNING")
        assert (unit()["name"], unit()["kind"], unit()["in_file"]) == ("declared", "push", True)
        assert (unit()["stuck"], len(unit()["members"])) == ([], 1)
        client.put("/connectors/declared/pause")
        assert needs(unit()) == [("paused by an operator; it runs again when it is resumed", "units")]
        workers.stop()


def basic(text: str) -> str:
    return "Basic " + base64.b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    ("key", "may_write"), [("Bearer write-it", True), ("Bearer read-it", False), (basic("ann:secret"), True)]
)
def test_a_token_that_may_only_read_is_told_and_refused(ps: PubSub, key: str, may_write: bool) -> None:
    sub = subscribe(ps)
    publish(ps, ("a", b"1"))
    kill(sub, 1)
    client = TestClient(app_of(ps, ACCESS), "http://127.0.0.1:8083", headers={"authorization": key})
    assert client.get("/ui/api/worker").json()["may_write"] is may_write
    assert len(client.get(LETTERS).json()["rows"]) == 1
    purged = client.post(f"{LETTERS}/purge")
    assert purged.status_code == (200 if may_write else 403)
    assert len(list(sub.dead_letters())) == (0 if may_write else 1)


def test_without_a_token_or_from_another_page_nothing_is_told_or_done(ps: PubSub) -> None:
    sub = subscribe(ps)
    publish(ps, ("a", b"1"))
    kill(sub, 1)
    client = TestClient(app_of(ps, ACCESS), "http://127.0.0.1:8083")
    ask: list[Callable[[], Any]] = [lambda: client.get(LETTERS), lambda: client.post(f"{LETTERS}/purge")]
    for each in ask:
        answer = each()
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"] == "Bearer", "a browser asks for no password by itself"
    foreign = {"origin": "https://evil.example"}
    assert (
        TestClient(app_of(ps), "http://127.0.0.1:8083").post(f"{LETTERS}/purge", headers=foreign).status_code
        == 403
    )
    assert len(list(sub.dead_letters())) == 1
