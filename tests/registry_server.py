"""A small schema registry of Confluent's REST in this process, which counts requests and can be disturbed.

    with RegistryServer() as server:
        number = server.add("orders-value", "AVRO", TEXT)       # without a request
        client = SchemaRegistryClient({"url": server.address})
        ...
        assert server.requests == [f"GET /schemas/ids/{number}"]
        with server.failing(500): ...                           # each answer is this error
        with server.slow(3.0): ...                              # each answer takes that many seconds
        with server.away(): ...                                 # connections are refused, open ones are cut

The server keeps subjects, versions, numbers, guids and references, looks schemas up by their text (as JSON, if they are
JSON), and refuses a new version of a subject in `server.incompatible` with 409. No schemas are compared: for that
there is a real registry (the fixture `registry`).
"""

from __future__ import annotations

import json
import re
import socket
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import unquote

from kafka_pubsub.local.tcp_ports import free_ports

__all__ = ["RegistryServer", "Stored"]


@dataclass(frozen=True)
class Stored:
    """A schema, and its place in the registry."""

    number: int
    format: str
    text: str
    references: Sequence[Mapping[str, Any]] = ()
    guid: str = field(default_factory=lambda: str(uuid.uuid4()))

    def shown(self) -> dict[str, Any]:
        """Returns the schema as answers hold it; Avro is the format that they leave out."""
        found: dict[str, Any] = {"id": self.number, "guid": self.guid, "schema": self.text}
        if self.format != "AVRO":
            found["schemaType"] = self.format
        if self.references:
            found["references"] = list(self.references)
        return found


class Refused(Exception):
    """An answer that isn't 200."""

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


class RegistryServer:
    """The server, which runs inside a `with` block."""

    def __init__(self) -> None:
        (self.port,) = free_ports(1)
        #: Method and path of each request, without the query, in their order.
        self.requests: list[str] = []
        #: Headers of the last request.
        self.headers: Mapping[str, str] = {}
        #: Subjects whose new versions are refused, with the reasons.
        self.incompatible: dict[str, list[str]] = {}
        #: The compatibility that all subjects are said to have; only `incompatible` is acted by.
        self.compatibility = "BACKWARD"
        self.schemas: dict[int, Stored] = {}
        self.subjects: dict[str, list[Stored]] = {}
        self._status = 200
        self._delay = 0.0
        self._released = threading.Event()
        self._lock = threading.Lock()
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def address(self) -> str:
        """Returns the address for clients."""
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def add(self, subject: str, format: str, text: str, references: Sequence[Mapping[str, Any]] = ()) -> int:
        """Registers a schema ("AVRO", "JSON" or "PROTOBUF") without a request; returns its number."""
        with self._lock:
            return self._added(subject, format, text, references).number

    @contextmanager
    def failing(self, status: int = 500) -> Iterator[None]:
        """Answers each request with an error."""
        self._status = status
        try:
            yield
        finally:
            self._status = 200

    @contextmanager
    def slow(self, seconds: float) -> Iterator[None]:
        """Waits before each answer, until the end of the block at the longest."""
        self._delay = seconds
        self._released.clear()
        try:
            yield
        finally:
            self._delay = 0.0
            self._released.set()

    @contextmanager
    def away(self) -> Iterator[None]:
        """Refuses connections, and cuts open connections."""
        self._stop()
        try:
            yield
        finally:
            self._start()

    def answer(self, method: str, path: str, body: Any) -> Any:
        """Returns the answer to a request; raises `Refused`."""
        if self._delay:
            self._released.wait(self._delay)
        with self._lock:
            self.requests.append(f"{method} {path}")
            if self._status != 200:
                raise Refused(self._status, self._status, "disturbed by the test")
            for (known, pattern), respond in _ROUTES.items():
                found = re.fullmatch(pattern, path)
                if found and known == method:
                    return respond(self, *map(unquote, found.groups()), body)
        raise Refused(404, 404, f"{method} {path} isn't known")

    def _start(self) -> None:
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    def _stop(self) -> None:
        assert self._server is not None
        assert self._thread is not None
        self._released.set()
        self._server.shutdown()
        self._thread.join()
        self._server.close_all()

    def _added(self, subject: str, format: str, text: str, references: Sequence[Mapping[str, Any]]) -> Stored:
        wanted = (format, _normal(text), tuple(map(str, references)))
        for known in self.schemas.values():
            if (known.format, _normal(known.text), tuple(map(str, known.references))) == wanted:
                stored = known
                break
        else:
            stored = Stored(len(self.schemas) + 1, format, text, references)
            self.schemas[stored.number] = stored
        versions = self.subjects.setdefault(subject, [])
        if stored not in versions:
            versions.append(stored)
        return stored

    def register(self, subject: str, body: Any) -> Any:
        format, text, references = _asked(body)
        if reasons := self.incompatible.get(subject):
            raise Refused(409, 409, f"Schema being registered is incompatible: {'; '.join(reasons)}")
        return self._version(subject, self._added(subject, format, text, references))

    def look_up(self, subject: str, body: Any) -> Any:
        format, text, _ = _asked(body)
        for stored in self._versions(subject):
            if (stored.format, _normal(stored.text)) == (format, _normal(text)):
                return self._version(subject, stored)
        raise Refused(404, 40403, "Schema not found")

    def version(self, subject: str, number: str, body: Any) -> Any:
        versions = self._versions(subject)
        at = len(versions) if number in ("latest", "-1") else int(number)
        if not 1 <= at <= len(versions):
            raise Refused(404, 40402, f"Version {number} not found.")
        return self._version(subject, versions[at - 1])

    def versions(self, subject: str, body: Any) -> Any:
        return list(range(1, len(self._versions(subject)) + 1))

    def schema(self, number: str, body: Any) -> Any:
        stored = self.schemas.get(int(number))
        if stored is None:
            raise Refused(404, 40403, f"Schema {number} not found")
        return {name: value for name, value in stored.shown().items() if name != "id"}

    def schema_by_guid(self, guid: str, body: Any) -> Any:
        for stored in self.schemas.values():
            if stored.guid == guid:
                return stored.shown()
        raise Refused(404, 40403, f"Schema {guid} not found")

    def places(self, number: str, body: Any) -> Any:
        found = [
            {"subject": subject, "version": at}
            for subject, versions in self.subjects.items()
            for at, stored in enumerate(versions, 1)
            if stored.number == int(number)
        ]
        if not found:
            raise Refused(404, 40403, f"Schema {number} not found")
        return found

    def check(self, subject: str, number: str, body: Any) -> Any:
        self.version(subject, number, None)
        reasons = self.incompatible.get(subject, [])
        return {"is_compatible": not reasons, "messages": reasons}

    def _versions(self, subject: str) -> list[Stored]:
        if subject not in self.subjects:
            raise Refused(404, 40401, f"Subject '{subject}' not found.")
        return self.subjects[subject]

    def _version(self, subject: str, stored: Stored) -> dict[str, Any]:
        at = self.subjects[subject].index(stored) + 1
        return {"subject": subject, "version": at, **stored.shown()}


_ROUTES: dict[tuple[str, str], Any] = {
    ("GET", "/subjects"): lambda server, body: list(server.subjects),
    ("GET", "/subjects/([^/]+)/versions"): RegistryServer.versions,
    ("GET", "/subjects/([^/]+)/versions/([^/]+)"): RegistryServer.version,
    ("POST", "/subjects/([^/]+)/versions"): RegistryServer.register,
    ("POST", "/subjects/([^/]+)"): RegistryServer.look_up,
    ("GET", r"/schemas/ids/(\d+)"): RegistryServer.schema,
    ("GET", r"/schemas/ids/(\d+)/versions"): RegistryServer.places,
    ("GET", "/schemas/guids/([^/]+)"): RegistryServer.schema_by_guid,
    ("POST", "/compatibility/subjects/([^/]+)/versions/([^/]+)"): RegistryServer.check,
    ("GET", "/config"): lambda server, body: {"compatibilityLevel": server.compatibility},
}


def _asked(body: Any) -> tuple[str, str, Sequence[Mapping[str, Any]]]:
    return body.get("schemaType") or "AVRO", body["schema"], body.get("references") or ()


def _normal(text: str) -> str:
    try:
        return json.dumps(json.loads(text), sort_keys=True)
    except ValueError:
        return text


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # Requests that a test has left waiting don't keep it from ending.
    block_on_close = False

    def __init__(self, registry: RegistryServer) -> None:
        self.registry = registry
        self.connections: set[socket.socket] = set()
        super().__init__(("127.0.0.1", registry.port), _Handler)

    def close_all(self) -> None:
        self.server_close()
        for connection in list(self.connections):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Says nothing of clients that have gone."""


class _Handler(BaseHTTPRequestHandler):
    # Connections stay open, as a real registry leaves them.
    protocol_version = "HTTP/1.1"
    server: _Server

    def setup(self) -> None:
        super().setup()
        self.server.connections.add(self.connection)

    def finish(self) -> None:
        self.server.connections.discard(self.connection)
        super().finish()

    def _answer(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        registry = self.server.registry
        registry.headers = dict(self.headers)
        status = 200
        try:
            found = registry.answer(self.command, self.path.partition("?")[0].rstrip("/"), body)
        except Refused as refused:
            status, found = refused.status, {"error_code": refused.code, "message": str(refused)}
        content = json.dumps(found).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def log_message(self, *args: Any) -> None:
        """Says nothing: tests judge the requests."""
