"""Serves a worker's REST interface with uvicorn, on a thread of its own."""

from __future__ import annotations

import socket
import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

import uvicorn

from kafka_pubsub.errors import FailedPrecondition

if TYPE_CHECKING:
    from fastapi import FastAPI

__all__ = ["RestServer"]

#: Seconds that a server may take to begin, and to end.
PATIENCE = 30.0


class RestServer:
    """A server that runs inside a `with` block. `cert_file`, `key_file`: its certificate; None: no TLS."""

    def __init__(
        self, app: FastAPI, host: str, port: int, cert_file: str | None = None, key_file: str | None = None
    ) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._socket.bind((host, port))
        except OSError as error:
            self._socket.close()
            raise FailedPrecondition(
                f"http: can't listen on {host}:{port}: {error}. Choose another port, or stop the program that has it"
            ) from error
        self.port: int = self._socket.getsockname()[1]
        self._server = uvicorn.Server(
            uvicorn.Config(
                app,
                log_config=None,
                log_level="warning",
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=5,
                ssl_certfile=cert_file,
                ssl_keyfile=key_file,
            )
        )
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="kafka_pubsub-rest", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        until = time.monotonic() + PATIENCE
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > until:
                self._socket.close()
                raise FailedPrecondition(
                    f"http: the server doesn't begin: {self._failure or 'no reason is known'}"
                )
            time.sleep(0.01)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.should_exit = True
        self._thread.join(PATIENCE)
        self._socket.close()

    def _run(self) -> None:
        try:
            self._server.run(sockets=[self._socket])
        except (Exception, SystemExit) as error:
            self._failure = error
