"""Answers `/livez` and `/readyz` over HTTP, for a supervisor that restarts processes or sends them traffic."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

from kafka_pubsub.errors import FailedPrecondition, InvalidArgument

__all__ = ["HealthServer", "Report", "parse_address"]


class Report(NamedTuple):
    """`alive`: whether it is of use to go on. `ready`: whether handlers receive. `details`: why, as JSON."""

    alive: bool
    ready: bool
    details: dict[str, object]


def parse_address(text: str) -> tuple[str, int]:
    """Returns host and port of HOST:PORT; a port alone is on the loopback address, so that it is open to no network."""
    host, _, port = text.rpartition(":")
    if not port.isdigit() or not 0 <= int(port) <= 65535:
        raise InvalidArgument(f"http: {text!r} is no HOST:PORT; for example 127.0.0.1:8080, or 8080")
    return host.strip("[]") or "127.0.0.1", int(port)


class HealthServer:
    """A server of the two paths on a thread of its own; `report` is asked for each request."""

    def __init__(self, address: str, report: Callable[[], Report]) -> None:
        host, port = parse_address(address)

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:  # the name that http.server calls
                answer(self, report())

            def log_message(self, format: str, *args: object) -> None:
                """Says nothing: a supervisor asks every few seconds."""

        class Server(ThreadingHTTPServer):
            address_family = socket.AF_INET6 if ":" in host else socket.AF_INET

        try:
            self._server = Server((host, port), Handler)
        except OSError as error:
            raise FailedPrecondition(f"http: can't listen on {host}:{port}: {error}") from error
        self._server.daemon_threads = True
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="kafka_pubsub-health", daemon=True
        )

    @property
    def port(self) -> int:
        """The port, which the system has chosen if 0 was asked for."""
        return self._server.server_port

    def __enter__(self) -> HealthServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def answer(request: BaseHTTPRequestHandler, report: Report) -> None:
    """Answers one request."""
    states = {"/livez": report.alive, "/readyz": report.ready}
    good = states.get(request.path.partition("?")[0])
    status = 404 if good is None else 200 if good else 503
    body: dict[str, object] = {"ok": bool(good), **report.details}
    if good is None:
        body = {"error": "there are /livez and /readyz"}
    text = json.dumps(body).encode() + b"\n"
    request.send_response(status)
    request.send_header("Content-Type", "application/json")
    request.send_header("Content-Length", str(len(text)))
    request.end_headers()
    request.wfile.write(text)
