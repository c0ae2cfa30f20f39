"""A registry: what is asked, how often, and how its errors are told."""

from __future__ import annotations

import json
import logging
import socket
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Iterator

import pytest

from kafka_pubsub import (
    BadRecord,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    PermissionDenied,
    PubSubError,
    RegistryUnavailable,
    SchemaError,
)
from kafka_pubsub.records import registry as registry_module
from kafka_pubsub.records.frames import SchemaId
from kafka_pubsub.records.parsing import parse_schema
from kafka_pubsub.records.registry import Registry
from tests.registry_server import RegistryServer

ORDER = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}]})
OTHER = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "no", "type": "long"}]})


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with RegistryServer() as running:
        yield running


@pytest.fixture
def registry(server: RegistryServer) -> Iterator[Registry]:
    made = Registry({"url": server.address})
    yield made
    made.close()


def test_a_number_is_asked_for_once(server: RegistryServer, registry: Registry) -> None:
    number = server.add("orders-value", "AVRO", ORDER)
    assert {registry.find(SchemaId(number)).text for _ in range(5)} == {ORDER}
    assert server.requests == [f"GET /schemas/ids/{number}"]


def test_threads_that_meet_a_number_ask_once(server: RegistryServer, registry: Registry) -> None:
    number = server.add("orders-value", "AVRO", ORDER)
    threads = [threading.Thread(target=registry.find, args=(SchemaId(number),)) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(server.requests) == 1


class HoldingServer(RegistryServer):
    """Keeps back the answer about the number 1 until `go` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.go = threading.Event(), threading.Event()

    def answer(self, method: str, path: str, body: object) -> object:
        if path == "/schemas/ids/1":
            self.asked.set()
            self.go.wait(10)
        return super().answer(method, path, body)


def test_a_number_that_is_asked_for_holds_up_no_other_number() -> None:
    with HoldingServer() as server:
        registry = Registry({"url": server.address, "timeout": 10})
        for text in (ORDER, OTHER):
            server.add("orders-value", "AVRO", text)
        first = threading.Thread(target=registry.find, args=(SchemaId(1),))
        first.start()
        assert server.asked.wait(5)
        assert registry.find(SchemaId(2)).text == OTHER
        assert not registry.knows(SchemaId(1))
        server.go.set()
        first.join()
        assert registry.knows(SchemaId(1))
        registry.close()


def test_a_silent_token_server_is_waited_for_no_longer_than_a_question_may_take(
    server: RegistryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry_module, "_QUESTION_S", 0.2, raising=False)
    server.add("orders-value", "AVRO", ORDER)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        login = {
            "credentials.source": "OAUTHBEARER",
            "client.id": "ada",
            "client.secret": "secret",
            "scope": "schemas",
            "logical.cluster": "lsrc-1",
            "issuer.endpoint.url": f"http://127.0.0.1:{silent.getsockname()[1]}/token",
        }
        bearer = {f"bearer.auth.{name}": value for name, value in login.items()}
        registry = Registry({"url": server.address, "timeout": 0.1, "max.retries": 0, **bearer})
        began = time.monotonic()
        with pytest.raises(RegistryUnavailable, match="no whole answer within"):
            registry.find(SchemaId(1))
        assert time.monotonic() - began < 3
        registry.close()


def test_the_schemas_of_a_schema_have_one_limit_and_are_known_once_they_came(
    server: RegistryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry_module, "_QUESTION_S", 0.3, raising=False)
    now = [0.0]
    registry = Registry({"url": server.address}, now=lambda: now[0])
    references = []
    for at in range(8):
        field = {"name": "sku", "type": "string"}
        server.add(f"s{at}", "AVRO", json.dumps({"type": "record", "name": f"R{at}", "fields": [field]}))
        references.append({"name": f"R{at}", "subject": f"s{at}", "version": 1})
    number = server.add("orders-value", "AVRO", ORDER, references)
    with server.slow(0.1):
        with pytest.raises(RegistryUnavailable, match="no whole answer"):
            registry.find(SchemaId(number))
        assert len(server.requests) < 8
    until = time.monotonic() + 5
    while not registry.knows(SchemaId(number)) and time.monotonic() < until:
        time.sleep(0.01)
    assert registry.find(SchemaId(number)).text == ORDER
    registry.close()


def test_a_schema_is_registered_and_looked_up(server: RegistryServer, registry: Registry) -> None:
    codec = parse_schema("avro", ORDER)
    with pytest.raises(NotFound, match=r"registry http.*subject 'orders-value': it isn't there"):
        registry.latest("orders-value")
    with pytest.raises(NotFound):
        registry.look_up("orders-value", codec)
    found = registry.register("orders-value", codec)
    assert registry.look_up("orders-value", codec).id == found.id == registry.latest("orders-value").id
    before = len(server.requests)
    assert registry.find(found.id).text == ORDER
    assert len(server.requests) == before


def test_a_guid_names_a_schema(server: RegistryServer, registry: Registry) -> None:
    number = server.add("orders-value", "AVRO", ORDER)
    guid = server.schemas[number].guid
    assert registry.find(SchemaId(0, guid=guid)).text == ORDER


def test_schemas_that_refer_to_others_are_read_with_them(server: RegistryServer, registry: Registry) -> None:
    item = json.dumps({"type": "record", "name": "shop.Item", "fields": [{"name": "sku", "type": "string"}]})
    server.add("item", "AVRO", item)
    order = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "item", "type": "shop.Item"}]})
    reference = {"name": "shop.Item", "subject": "item", "version": 1}
    number = server.add("orders-value", "AVRO", order, [reference])
    assert registry.find(SchemaId(number)).decode(b"\x02a") == {"item": {"sku": "a"}}


def test_an_unknown_number_is_remembered_for_a_while(server: RegistryServer) -> None:
    now = [0.0]
    registry = Registry({"url": server.address}, now=lambda: now[0])
    for _ in range(3):
        with pytest.raises(BadRecord, match="schema 7: it isn't there"):
            registry.find(SchemaId(7))
    assert len(server.requests) == 1
    for _ in range(7):
        number = server.add("orders-value", "AVRO", OTHER.replace("no", f"f{_}"))
    now[0] = 31.0
    assert number == 7
    assert registry.find(SchemaId(7)).format == "avro"


class GatewayServer(RegistryServer):
    """Answers with a gateway's page of its own, in JSON, while `closed`."""

    closed = True

    def answer(self, method: str, path: str, body: object) -> object:
        found = super().answer(method, path, body)
        return {"status": "maintenance"} if self.closed else found


def test_an_answer_that_is_no_schema_is_an_outage_and_is_not_remembered() -> None:
    now, codec = [0.0], parse_schema("avro", ORDER)
    with GatewayServer() as server:
        registry = Registry({"url": server.address}, now=lambda: now[0])
        number = server.add("orders-value", "AVRO", ORDER)
        questions: list[Callable[[], object]] = [
            lambda: registry.find(SchemaId(number)),
            lambda: registry.latest("orders-value"),
            lambda: registry.look_up("orders-value", codec),
            lambda: registry.register("orders-value", codec),
        ]
        for each in questions:
            now[0] += 2.0
            with pytest.raises(RegistryUnavailable, match=f"{server.address}.*the answer has no"):
                each()
        server.closed = False
        now[0] += 2.0
        for each in questions:
            each()
        registry.close()


def test_a_schema_that_is_not_safe_is_a_bad_record(server: RegistryServer, registry: Registry) -> None:
    text = {"type": "record", "name": "Tree", "fields": [{"name": "child", "type": ["null", "Tree"]}]}
    number = server.add("trees-value", "AVRO", json.dumps(text))
    for _ in range(2):
        with pytest.raises(BadRecord, match="contains itself"):
            registry.find(SchemaId(number))
    assert len(server.requests) == 1


def test_a_folders_schema_is_not_asked_for(server: RegistryServer, registry: Registry) -> None:
    with pytest.raises(FailedPrecondition, match="orders/3 lies in a folder"):
        registry.find(SchemaId(3, "orders"))
    assert server.requests == []


@pytest.mark.parametrize(
    ("status", "kind", "said"),
    [
        (401, PermissionDenied, "the registry refuses it"),
        (403, PermissionDenied, "basic.auth.user.info"),
        (409, SchemaError, "isn't compatible"),
        (422, SchemaError, "takes it for no schema"),
        (400, FailedPrecondition, "it answers 400"),
        (429, RegistryUnavailable, "doesn't answer"),
        (500, RegistryUnavailable, "check the address"),
        (503, RegistryUnavailable, "What needs only schemas that are known goes on"),
    ],
)
def test_an_answer_of_the_registry_becomes_an_error_of_ours(
    server: RegistryServer, registry: Registry, status: int, kind: type[PubSubError], said: str
) -> None:
    with server.failing(status), pytest.raises(kind, match=said) as refused:
        registry.register("orders-value", parse_schema("avro", ORDER))
    assert server.address in refused.value.message
    assert "orders-value" in refused.value.message


def test_a_registry_that_is_away_is_asked_once_a_second(server: RegistryServer) -> None:
    now = [0.0]
    registry = Registry({"url": server.address, "max.retries": 0}, now=lambda: now[0])
    known = server.add("orders-value", "AVRO", ORDER)
    registry.find(SchemaId(known))
    asked = len(server.requests)
    with server.failing(500):
        for _ in range(5):
            with pytest.raises(RegistryUnavailable):
                registry.find(SchemaId(7))
            assert registry.find(SchemaId(known)).text == ORDER
        assert len(server.requests) == asked + 1
    now[0] = 1.5
    with pytest.raises(BadRecord):
        registry.find(SchemaId(7))


def test_a_refused_connection_names_the_address_without_its_password(server: RegistryServer) -> None:
    address = server.address.replace("//", "//ada:secret@")
    with server.away():
        began = time.monotonic()
        with pytest.raises(RegistryUnavailable, match=f"registry {server.address}") as refused:
            Registry({"url": address}).latest("orders-value")
        assert time.monotonic() - began < 30  # 5 s on an idle machine, measured in the acceptance test
    assert "secret" not in str(refused.value)


def test_the_same_outage_and_unknown_number_are_new_errors_each_time(server: RegistryServer) -> None:
    registry = Registry({"url": server.address, "max.retries": 0})
    unknown, away = set[int](), set[int]()
    kept: list[PubSubError] = []
    for _ in range(3):
        with pytest.raises(BadRecord) as bad:
            registry.find(SchemaId(7))
        kept.append(bad.value)
        unknown.add(id(bad.value))
    with server.failing(500):
        for _ in range(3):
            with pytest.raises(RegistryUnavailable) as refused:
                registry.latest("x")
            kept.append(refused.value)
            away.add(id(refused.value))
    assert (len(unknown), len(away)) == (3, 3)


def test_a_404_of_something_else_is_no_unknown_number(server: RegistryServer, registry: Registry) -> None:
    with server.failing(404), pytest.raises(RegistryUnavailable, match="check the address and its path"):
        registry.find(SchemaId(7))


def test_a_login_in_the_address_is_shown_nowhere(
    server: RegistryServer, caplog: pytest.LogCaptureFixture
) -> None:
    server.add("orders-value", "AVRO", ORDER)
    registry = Registry({"url": server.address.replace("//", "//ada:p@s%20s@")})
    with caplog.at_level(logging.DEBUG):
        registry.latest("orders-value")
    assert server.headers["Authorization"] == "Basic " + b64encode(b"ada:p@s s").decode()
    for text in (str(registry), caplog.text):
        assert "p@s" not in text
        assert "ada" not in text
    for url in ("ftp://ada:secret@h", "ada:secret@registry:8081", "http://a:secret@x,http://b:secret@y"):
        with pytest.raises(InvalidArgument) as refused:
            Registry({"url": url})
        assert "secret" not in refused.value.message


@pytest.mark.parametrize(
    "config",
    [
        {"url": "https://registry:8081,ada:secret@other:8081"},
        {"url": "https://ada:secret,more@registry:8081"},
        {"url": "ftp://ada:secret/more@registry"},
        {"url": "http://registry:8081", "proxy": "ada:secret@proxy:8080"},
    ],
)
def test_a_wrong_login_is_shown_by_no_error_and_no_traceback(
    config: dict[str, str | int | float | bool],
) -> None:
    def use() -> None:
        registry = Registry(config)
        assert "secret" not in str(registry)
        registry.latest("orders-value")

    with pytest.raises(InvalidArgument) as refused:
        use()
    for each in (refused.value, refused.value.__cause__):
        assert "secret" not in str(each)
    assert refused.value.__suppress_context__ or refused.value.__context__ is None


def test_registries_in_memory_of_one_address_are_one() -> None:
    first, second = Registry({"url": "mock://shared"}), Registry({"url": "mock://shared"})
    found = first.register("orders-value", parse_schema("avro", ORDER))
    first.close()
    assert second.find(found.id).text == ORDER


def test_credentials_are_sent(server: RegistryServer) -> None:
    server.add("orders-value", "AVRO", ORDER)
    Registry({"url": server.address, "basic.auth.user.info": "ada:secret"}).latest("orders-value")
    assert server.headers["Authorization"].startswith("Basic ")


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"url": "registry:8081"}, "isn't a registry's address"),
        ({}, "isn't a registry's address"),
        ({"url": "http://x", "nonsense": 1}, "Unrecognized properties: nonsense"),
        ({"url": "http://x", "ssl.ca.location": "/nowhere/ca.pem"}, "No such file"),
    ],
)
def test_wrong_settings_are_named(config: dict[str, str | int | float | bool], said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        Registry(config).latest("orders-value")


def test_a_new_connection_is_opened_after_a_close(server: RegistryServer, registry: Registry) -> None:
    server.add("orders-value", "AVRO", ORDER)
    registry.latest("orders-value")
    registry.close()
    assert registry.latest("orders-value").codec.text == ORDER
