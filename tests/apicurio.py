"""A real schema registry for tests: Apicurio, which answers Confluent's REST; all workers of a run share it.

Use: the session fixture `registry` (tests/conftest.py) is its address, `http://127.0.0.1:PORT/apis/ccompat/v7`.

    def test_orders(registry: str) -> None:
        client = SchemaRegistryClient({"url": registry, "timeout": 30})

Rules
1. Nothing is ever deleted: a test registers under a subject that no other test has
   (`fresh("orders")`), and changes the compatibility of its own subjects only. That of all subjects is NONE.
2. Apicurio gives no `guid` of a schema, and its text about a refused schema is its own. What needs these, or counts or
   disturbs requests, uses `tests.registry_server`.
3. Its archive (158 MB) is fetched by `python -m tests.apicurio` only. Without it the tests are skipped, and fail in CI.
4. On a busy machine the registry answers late: give clients time, `PubSub(schemas={"url": registry, "timeout": 30})`;
   those of Confluent wait without an end otherwise.
5. Workers share one process, which a holder runs until its last user is gone, as `kafka_pubsub.local.shared_broker`.
"""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kafka_pubsub.local import paths
from kafka_pubsub.local.artifacts import Lock, LockedJar, ensure_jars
from kafka_pubsub.local.file_lock import exclusive, shared
from kafka_pubsub.local.java import find_java
from kafka_pubsub.local.orphan_guard import Guard
from kafka_pubsub.local.tcp_ports import free_ports
from tests.support import until

__all__ = ["fetch", "fresh", "is_fetched", "shared_registry"]

VERSION = "3.3.3"
ARCHIVE = LockedJar(
    "io.apicurio",
    "apicurio-registry-app",
    VERSION,
    "8bc6751c76d963734224b01d5e7f84ccb3cb61c87d3bd77c36c35f10a5cbed63",
    classifier="all",
    packaging="tar.gz",
)
LOCK = Lock(f"apicurio-{VERSION}", (ARCHIVE,))
#: Confluent's REST among the interfaces of Apicurio.
INTERFACE = "/apis/ccompat/v7"
#: Seconds for the start.
PATIENCE = 180.0


def fresh(name: str) -> str:
    """Returns a name that no other test uses, for a topic or a subject."""
    return f"{name}-{uuid.uuid4().hex[:12]}"


def is_fetched() -> bool:
    """Returns whether the registry is on this machine."""
    return _unpacked().is_dir()


def fetch() -> Path:
    """Returns the folder of the registry, fetched and unpacked first if it is missing."""
    folder = _unpacked()
    with exclusive(paths.cache() / "apicurio.lock"):
        if not folder.is_dir():
            (archive,) = ensure_jars(paths.cache(), print, LOCK)
            with tempfile.TemporaryDirectory(dir=folder.parent, prefix="unpack-") as scratch:
                with tarfile.open(archive) as packed:
                    packed.extractall(scratch, filter="data")
                os.rename(scratch, folder)
                # The block deletes its directory at the end.
                Path(scratch).mkdir()
            archive.unlink()
    return folder


def _unpacked() -> Path:
    return paths.cache() / f"kafka-{LOCK.kafka}" / "unpacked"


@contextmanager
def shared_registry(folder: Path) -> Iterator[str]:
    """Yields the address of the registry that all processes with the same `folder` share."""
    address = folder / "address"
    with shared(folder / "users.lock"):
        with exclusive(folder / "start.lock"):
            if not address.exists():
                _start_holder(folder, address)
        yield address.read_text()


def _start_holder(folder: Path, address: Path) -> None:
    with (folder / "holder.log").open("w") as log:
        holder = subprocess.Popen(
            [sys.executable, "-m", "tests.apicurio", str(folder)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            cwd=Path(__file__).parents[1],
        )

    def is_there() -> bool:
        assert address.exists() or holder.poll() is None, (folder / "holder.log").read_text()
        return address.exists()

    until(is_there, "the registry answers", PATIENCE + 30)
    # The process ends by itself, when the last user is gone.
    threading.Thread(target=holder.wait, daemon=True).start()


def _hold(folder: Path) -> None:
    """Runs the registry until its last user is gone."""
    with _running(folder) as address:
        scratch = folder / "address.tmp"
        scratch.write_text(address)
        scratch.rename(folder / "address")
        with exclusive(folder / "users.lock"):
            (folder / "address").unlink()


@contextmanager
def _running(folder: Path) -> Iterator[str]:
    port, management = free_ports(2)
    command = [str(find_java()), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    # Both listen on all addresses otherwise.
    command += ["-Dquarkus.http.host=127.0.0.1", f"-Dquarkus.http.port={port}"]
    command += ["-Dquarkus.management.host=127.0.0.1", f"-Dquarkus.management.port={management}"]
    command += ["-jar", str(fetch() / "quarkus-run.jar")]
    guard = Guard()
    log_file = folder / "registry.log"
    with log_file.open("w") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=folder)
    guard.watch(process.pid)
    try:

        def is_ready() -> bool:
            assert process.poll() is None, log_file.read_text()[-4000:]
            return _answers(management)

        until(is_ready, "Apicurio is ready", PATIENCE)
        _warm_up(port)
        yield f"http://127.0.0.1:{port}{INTERFACE}"
    finally:
        # Its schemas are not kept.
        process.kill()
        process.wait(20)
        guard.spare(process.pid)
        guard.release()


def _warm_up(port: int) -> None:
    """Asks once for each kind of thing, one after the other.

    The first requests of a busy machine take longer than clients wait; and of several first ones at once, now and then,
    one is never answered.
    """
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)

    def ask(method: str, path: str, content: dict[str, str] | None = None) -> int:
        headers = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
        connection.request(
            method, INTERFACE + path, None if content is None else json.dumps(content), headers
        )
        answer = connection.getresponse()
        answer.read()
        return answer.status

    schema = {"schema": '{"type": "record", "name": "WarmUp", "fields": []}'}
    assert ask("POST", "/subjects/warm-up/versions", schema) == 200
    for method, path, content in (
        ("POST", "/subjects/warm-up", schema),
        ("POST", "/compatibility/subjects/warm-up/versions/latest", schema),
        ("GET", "/subjects", None),
        ("GET", "/subjects/warm-up/versions", None),
        ("GET", "/subjects/warm-up/versions/latest", None),
        ("GET", "/subjects/unknown/versions/latest", None),
        ("GET", "/schemas/ids/1", None),
        ("GET", "/schemas/ids/9999", None),
        ("GET", "/config/warm-up", None),
        ("GET", "/associations/resources/-/unknown", None),
    ):
        ask(method, path, content)
    connection.close()


def _answers(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", "/health/ready")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


if __name__ == "__main__":
    if sys.argv[1:]:
        _hold(Path(sys.argv[1]))
    else:
        print(fetch())
