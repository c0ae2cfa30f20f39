"""The jars: the lock is complete, other files are refused, and the network is used once."""

from __future__ import annotations

import hashlib
import os
import re
import ssl
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from pathlib import Path
from types import SimpleNamespace

import pytest

from kafka_pubsub.local import artifacts
from kafka_pubsub.local.artifacts import Lock, LockedJar
from kafka_pubsub.local.errors import LocalKafkaError, PartsMissing
from kafka_pubsub.local.tcp_ports import free_ports

CONTENT = {"first": b"one jar", "second": b"another jar"}
LOCK = Lock(
    "0.0",
    tuple(
        LockedJar("org.example", name, "1", hashlib.sha256(data).hexdigest())
        for name, data in CONTENT.items()
    ),
)


def silent(text: str) -> None:
    """No progress wanted."""


def repository(root: Path, content: dict[str, bytes]) -> Path:
    for name, data in content.items():
        folder = root / "org" / "example" / name / "1"
        folder.mkdir(parents=True)
        (folder / f"{name}-1.jar").write_bytes(data)
    return root


class Quiet(SimpleHTTPRequestHandler):
    """A static file server that doesn't log."""

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_PUBSUB_MAVEN_REPOSITORY", f"http://127.0.0.1:{free_ports(1)[0]}")


def test_the_lock_names_every_jar_once_with_its_hash_and_no_address() -> None:
    lock = artifacts.load_lock()
    text = resources.files("kafka_pubsub.local").joinpath("kafka.lock.json").read_text("utf-8")
    assert lock.kafka == "4.4.0"
    assert {"kafka_2.13", "kafka-clients", "log4j-slf4j-impl"} <= {jar.artifact for jar in lock.jars}
    assert len({(jar.group, jar.artifact) for jar in lock.jars}) == len({jar.filename for jar in lock.jars})
    assert all(re.fullmatch("[0-9a-f]{64}", jar.sha256) for jar in lock.jars)
    assert "://" not in text


def test_an_archive_has_its_classifier_and_ending_in_its_name() -> None:
    archive = LockedJar("org.example", "app", "1", "0" * 64, classifier="all", packaging="tar.gz")
    assert archive.filename == "app-1-all.tar.gz"
    assert LockedJar("org.example", "app", "1", "0" * 64).filename == "app-1.jar"


def test_jars_are_fetched_once_and_then_found_without_a_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    with serving(repository(tmp_path / "repository", CONTENT)) as address:
        monkeypatch.setenv("KAFKA_PUBSUB_MAVEN_REPOSITORY", address + "/")
        fetched = artifacts.ensure_jars(tmp_path / "cache", said.append, LOCK)
    assert [path.read_bytes() for path in fetched] == list(CONTENT.values())
    assert said == ["Fetching Kafka (2 jars, once)", "Fetched 2 of 2 jars"]
    said.clear()
    assert artifacts.ensure_jars(tmp_path / "cache", said.append, LOCK) == fetched
    assert said == []


def test_only_what_is_missing_is_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "cache" / "kafka-0.0"
    folder.mkdir(parents=True)
    (folder / "first-1.jar").write_bytes(CONTENT["first"])
    with serving(repository(tmp_path / "repository", {"second": CONTENT["second"]})) as address:
        monkeypatch.setenv("KAFKA_PUBSUB_MAVEN_REPOSITORY", address)
        assert len(artifacts.ensure_jars(tmp_path / "cache", silent, LOCK)) == 2


def test_a_repository_that_delivers_something_else_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(repository(tmp_path / "repository", CONTENT | {"second": b"evil"})) as address:
        monkeypatch.setenv("KAFKA_PUBSUB_MAVEN_REPOSITORY", address)
        with pytest.raises(LocalKafkaError, match=r"another org\.example:second:1 than the locked one"):
            artifacts.ensure_jars(tmp_path / "cache", silent, LOCK)
    folder = tmp_path / "cache" / "kafka-0.0"
    assert [file.name for file in folder.iterdir()] == ["first-1.jar"]


def test_a_damaged_jar_is_named_and_not_used(tmp_path: Path, no_network: None) -> None:
    folder = tmp_path / "kafka-0.0"
    folder.mkdir()
    for name, data in CONTENT.items():
        (folder / f"{name}-1.jar").write_bytes(data)
    artifacts.ensure_jars(tmp_path, silent, LOCK)
    (folder / "second-1.jar").write_bytes(b"another jaR")
    os.utime(folder / "second-1.jar", (1, 1))
    with pytest.raises(
        LocalKafkaError, match=r"second-1\.jar isn't the file that was locked.*Delete it"
    ) as caught:
        artifacts.ensure_jars(tmp_path, silent, LOCK)
    assert caught.value.code == 9


def test_a_jar_verified_before_is_read_again_only_when_it_changed(
    tmp_path: Path, no_network: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "kafka-0.0"
    folder.mkdir()
    for name, data in CONTENT.items():
        (folder / f"{name}-1.jar").write_bytes(data)
    read: list[str] = []

    def counting(path: Path) -> str:
        read.append(path.name)
        return hashlib.sha256(path.read_bytes()).hexdigest()

    monkeypatch.setattr(artifacts, "sha256_of", counting)
    artifacts.ensure_jars(tmp_path, silent, LOCK)
    artifacts.ensure_jars(tmp_path, silent, LOCK)
    assert read == ["first-1.jar", "second-1.jar"]
    os.utime(folder / "first-1.jar", (1, 1))
    artifacts.ensure_jars(tmp_path, silent, LOCK)
    assert read == ["first-1.jar", "second-1.jar", "first-1.jar"]


def test_without_jgo_the_error_gives_the_command_that_gets_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jgo.maven", None)
    with pytest.raises(
        PartsMissing, match=r"jgo.*isn't installed: pip install 'kafka-pubsub-orderly\[local\]'"
    ):
        artifacts.ensure_jars(tmp_path, silent, LOCK)


def test_a_cache_that_cant_be_written_is_named(tmp_path: Path, no_network: None) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(LocalKafkaError, match=r"Can't keep Kafka's jars in .*file.*KAFKA_PUBSUB_CACHE"):
        artifacts.ensure_jars(tmp_path / "file", silent, LOCK)


def test_a_missing_network_says_what_to_do(tmp_path: Path, no_network: None) -> None:
    with pytest.raises(
        PartsMissing, match=r"org\.example:first:1.*HTTPS_PROXY.*SSL_CERT_FILE.*KAFKA_HOME"
    ) as caught:
        artifacts.ensure_jars(tmp_path, silent, LOCK)
    assert caught.value.code == 14


@pytest.fixture
def trusted_while_fetching(
    tmp_path: Path, no_network: None, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], str | None]:
    """Fetches in vain, and tells what requests was told to trust meanwhile."""
    for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    seen: list[str | None] = []

    def look(jar: LockedJar) -> Path:
        path = os.environ.get("REQUESTS_CA_BUNDLE")
        seen.append(path and Path(path).read_text("utf-8"))
        raise PartsMissing("looked")

    monkeypatch.setattr(artifacts, "_downloader", lambda scratch: look)

    def fetch() -> str | None:
        with pytest.raises(PartsMissing, match="looked"):
            artifacts.ensure_jars(tmp_path / "cache", silent, LOCK)
        assert "REQUESTS_CA_BUNDLE" not in os.environ or seen[0] == "named"
        return seen[0]

    return fetch


def test_what_the_machine_trusts_is_trusted_beside_the_public_list(
    tmp_path: Path, trusted_while_fetching: Callable[[], str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "machine.pem").write_text("the company's proxy")
    paths = SimpleNamespace(cafile=str(tmp_path / "machine.pem"))
    monkeypatch.setattr(ssl, "get_default_verify_paths", lambda: paths)
    trusted = trusted_while_fetching()
    assert trusted is not None
    assert trusted.endswith("the company's proxy")
    assert "BEGIN CERTIFICATE" in trusted


def test_an_ssl_cert_file_is_trusted_alone(
    tmp_path: Path, trusted_while_fetching: Callable[[], str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own.pem").write_text("my own")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "own.pem"))
    assert trusted_while_fetching() == "my own"


def test_what_requests_was_told_to_trust_stays(
    tmp_path: Path, trusted_while_fetching: Callable[[], str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "named.pem").write_text("named")
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "named.pem"))
    assert trusted_while_fetching() == "named"


def test_a_machine_without_a_list_leaves_requests_alone(
    trusted_while_fetching: Callable[[], str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ssl, "get_default_verify_paths", lambda: SimpleNamespace(cafile=None))
    assert trusted_while_fetching() is None
