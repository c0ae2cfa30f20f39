"""Answers over HTTP: `/livez` and `/readyz` for a supervisor, and `/metrics` for Prometheus."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

from kafka_pubsub.errors import FailedPrecondition, InvalidArgument, PubSubError

__all__ = ["HealthServer", "Report", "parse_address"]


#: Seconds that a client may be silent: one that says nothing, or has gone, would keep a thread and a file for ever.
PATIENCE = 10.0


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


#: Returns the content type and the body of the metrics, in a format that the given header `Accept` names.
Metrics = Callable[[str], tuple[str, bytes]]


class HealthServer:
    """A server on threads of its own; `report` is asked for each request, `metrics` for each scrape.

    Without `metrics`, the default, there is no path for a scrape.
    """

    def __init__(self, address: str, report: Callable[[], Report], metrics: Metrics | None = None) -> None:
        host, port = parse_address(address)

        class Handler(BaseHTTPRequestHandler):
            timeout = PATIENCE

            def do_GET(self) -> None:  # the name that http.server calls
                if metrics is not None and self.path.partition("?")[0] == "/metrics":
                    scrape(self, metrics)
                else:
                    answer(self, report())

            def log_message(self, format: str, *args: object) -> None:
                """Says nothing: a supervisor asks every few seconds."""

        class Server(ThreadingHTTPServer):
            address_family = socket.AF_INET6 if ":" in host else socket.AF_INET

        try:
            self._server = Server((host, port), Handler)
        except OSError as error:
            raise FailedPrecondition(
                f"http: can't listen on {host}:{port}: {error}. Choose another port, or stop the program that has it"
            ) from error
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
        body = {"error": "there are /livez, /readyz and /metrics"}
    send(request, status, "application/json", json.dumps(body).encode() + b"\n")


def scrape(request: BaseHTTPRequestHandler, metrics: Metrics) -> None:
    """Answers one scrape; 501 if prometheus-client is missing."""
    try:
        kind, text = metrics(request.headers.get("Accept", ""))
    except PubSubError as error:
        send(request, 501, "text/plain; charset=utf-8", error.message.encode() + b"\n")
    else:
        send(request, 200, kind, text)


def send(request: BaseHTTPRequestHandler, status: int, kind: str, text: bytes) -> None:
    """Sends an answer."""
    request.send_response(status)
    request.send_header("Content-Type", kind)
    request.send_header("Content-Length", str(len(text)))
    request.end_headers()
    request.wfile.write(text)
