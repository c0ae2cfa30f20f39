"""Three brokers that speak just enough of Kafka for a producer, and whose metadata may name none of them.

Theory. A real controller does that for a second when it fences all brokers at once, as on a machine without processor
time. No real broker can be told to, so these are sockets: each connection has a thread, which answers five requests in
versions without tagged fields. There is a single topic, "t"; nothing is kept.
"""

from __future__ import annotations

import contextlib
import functools
import socket
import struct
import threading
from types import TracebackType
from typing import Final, Self

__all__ = ["PARTITIONS", "NamelessBrokers"]

_NODES: Final = 3
#: So many that a client works on its metadata for a while after it has read them.
PARTITIONS: Final = 5000

_PRODUCE, _FETCH, _METADATA, _VERSIONS, _INIT_PRODUCER_ID = 0, 1, 3, 18, 22
#: Requests, with the oldest and the newest version of each. A client wants to see fetches, and sends none.
_SPOKEN = ((_PRODUCE, 3, 7), (_FETCH, 4, 11), (_METADATA, 0, 8), (_VERSIONS, 0, 3), (_INIT_PRODUCER_ID, 0, 1))
_LEADER_NOT_AVAILABLE, _NOT_LEADER = 5, 6


class _Reader:
    """The fields of a request, in turn."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def take(self, form: str) -> int:
        (value,) = struct.unpack_from(">" + form, self._data, self._at)
        self._at += struct.calcsize(form)
        return int(value)

    def text(self) -> bytes:
        return self._bytes(self.take("h"))

    def skip_records(self) -> None:
        self._bytes(self.take("i"))

    def _bytes(self, size: int) -> bytes:
        begin = self._at
        self._at += max(size, 0)
        return self._data[begin : self._at]


def _text(value: bytes) -> bytes:
    return struct.pack(">h", len(value)) + value


@functools.cache
def _partitions(nameless: bool) -> bytes:
    found = []
    for number in range(PARTITIONS):
        node = number % _NODES
        error, leader = (_LEADER_NOT_AVAILABLE, -1) if nameless else (0, node)
        replicas = struct.pack(">ii", 1, node)
        found.append(struct.pack(">hiii", error, number, leader, -1) + 2 * replicas + struct.pack(">i", 0))
    return b"".join(found)


class NamelessBrokers:
    """The brokers, in a `with` block; what is wrong with them is in their three attributes."""

    def __init__(self) -> None:
        #: Whether metadata name no broker, and no leader of any partition.
        self.nameless = False
        #: Whether new connections are closed at once.
        self.refuse = False
        #: Whether a connection is closed right after metadata went out on it.
        self.hang_up = False
        self._listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(_NODES)]
        self._ports = [each.getsockname()[1] for each in self._listeners]
        self._connections: list[list[socket.socket]] = [[] for _ in range(_NODES)]
        self.address = ",".join(f"127.0.0.1:{port}" for port in self._ports)
        for node in range(_NODES):
            threading.Thread(target=self._listen, args=(node,), daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        for node, listener in enumerate(self._listeners):
            listener.close()
            self.drop(node)

    def drop(self, node: int) -> None:
        """Closes the node's connections; nodes count from 0."""
        for each in self._connections[node]:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        self._connections[node] = []

    def _listen(self, node: int) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                connection, _ = self._listeners[node].accept()
                if self.refuse:
                    connection.close()
                    continue
                self._connections[node].append(connection)
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection, connection.makefile("rb") as stream:
            while len(size := stream.read(4)) == 4:
                request = _Reader(stream.read(struct.unpack(">i", size)[0]))
                kind, _, number, _ = request.take("h"), request.take("h"), request.take("i"), request.text()
                answer = struct.pack(">i", number) + self._answer(kind, request)
                connection.sendall(struct.pack(">i", len(answer)) + answer)
                if kind == _METADATA and self.hang_up:
                    return

    def _answer(self, kind: int, request: _Reader) -> bytes:
        if kind == _VERSIONS:
            spoken = b"".join(struct.pack(">hhhx", *each) for each in _SPOKEN)
            return struct.pack(">hB", 0, len(_SPOKEN) + 1) + spoken + struct.pack(">ix", 0)
        if kind == _INIT_PRODUCER_ID:
            return struct.pack(">ihqh", 0, 0, 1000, 0)
        return self._metadata(request) if kind == _METADATA else self._produced(request)

    def _metadata(self, request: _Reader) -> bytes:
        asked = request.take("i")
        names = [b"t"] if asked < 0 else [request.text() for _ in range(asked)]
        ports = [] if self.nameless else self._ports
        brokers = [
            struct.pack(">i", node) + _text(b"127.0.0.1") + struct.pack(">ih", port, -1)
            for node, port in enumerate(ports)
        ]
        topics = [
            struct.pack(">h", 0) + _text(name) + struct.pack(">xi", PARTITIONS) + _partitions(self.nameless)
            + struct.pack(">i", 0)
            for name in names
        ]  # fmt: skip
        about_cluster = _text(b"fake") + struct.pack(">i", -1 if self.nameless else 0)
        parts = [struct.pack(">ii", 0, len(brokers)), *brokers, about_cluster, struct.pack(">i", len(topics))]
        return b"".join([*parts, *topics, struct.pack(">i", 0)])

    def _produced(self, request: _Reader) -> bytes:
        request.text()
        request.take("h")
        request.take("i")
        topics = request.take("i")
        answer = [struct.pack(">i", topics)]
        for _ in range(topics):
            answer.append(_text(request.text()))
            partitions = request.take("i")
            answer.append(struct.pack(">i", partitions))
            for _ in range(partitions):
                number = request.take("i")
                request.skip_records()
                error, offset = (_NOT_LEADER, -1) if self.nameless else (0, 0)
                answer.append(struct.pack(">ihqqq", number, error, offset, -1, 0))
        return b"".join([*answer, struct.pack(">i", 0)])
