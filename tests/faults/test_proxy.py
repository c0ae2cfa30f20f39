"""The proxy does what its weather says, to connections that there are and to new ones; and never changes a byte."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from tests.faults.proxy import Proxy

PATIENCE = 30.0
#: Seconds without anything that count as silence; a byte that isn't kept back is here after a thousandth of it.
SILENCE = 0.3


@pytest.fixture
def echo() -> Iterator[int]:
    """The port of a server that sends back what it gets."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve(connection: socket.socket) -> None:
            with connection, contextlib.suppress(OSError):
                while data := connection.recv(65536):
                    connection.sendall(data)

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def proxy(echo: int) -> Iterator[Proxy]:
    with Proxy(echo) as proxy:
        yield proxy


@pytest.fixture
def client(proxy: Proxy) -> Iterator[socket.socket]:
    with connected(proxy) as client:
        assert exchange(client, b"hello") == b"hello"
        yield client


def connected(proxy: Proxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), timeout=PATIENCE)


def exchange(client: socket.socket, data: bytes) -> bytes:
    sender = threading.Thread(target=client.sendall, args=(data,))
    sender.start()
    received = b""
    while len(received) < len(data) and (more := client.recv(65536)):
        received += more
    sender.join()
    return received


def silent(client: socket.socket) -> bool:
    client.settimeout(SILENCE)
    try:
        return client.recv(1) == b"never"
    except TimeoutError:
        return True
    finally:
        client.settimeout(PATIENCE)


def test_bytes_pass_unchanged_both_ways_and_many_connections_at_once(proxy: Proxy) -> None:
    data = os.urandom(3_000_000)
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(connected(proxy)) for _ in range(3)]
        assert [exchange(client, data) == data for client in clients] == [True] * 3
        assert proxy.connections == 3


def test_a_delay_is_paid_in_each_direction_and_costs_no_throughput(
    proxy: Proxy, client: socket.socket
) -> None:
    with proxy.trouble(delay=0.1):
        started = time.monotonic()
        assert exchange(client, b"x") == b"x"
        assert time.monotonic() - started >= 0.2
        # 3 MB are some 50 chunks; in turn they would take 10 s.
        data = os.urandom(3_000_000)
        assert exchange(client, data) == data
    assert exchange(client, b"y") == b"y"


def test_a_throttle_limits_bytes_a_second(proxy: Proxy, client: socket.socket) -> None:
    proxy.throttle(100_000)
    started = time.monotonic()
    assert len(exchange(client, bytes(50_000))) == 50_000
    assert time.monotonic() - started >= 0.5
    proxy.throttle(None)
    assert len(exchange(client, bytes(3_000_000))) == 3_000_000


def test_a_cut_keeps_everything_back_and_delivers_it_when_it_ends(
    proxy: Proxy, client: socket.socket
) -> None:
    proxy.cut()
    client.sendall(b"kept")
    assert silent(client)
    with connected(proxy) as late:
        late.sendall(b"late")
        assert silent(late)
        proxy.heal()
        assert client.recv(100) == b"kept"
        assert late.recv(100) == b"late"


def test_one_direction_can_be_cut_alone(proxy: Proxy) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        proxy.target = server.getsockname()[1]
        with connected(proxy) as client, server.accept()[0] as far:
            far.settimeout(PATIENCE)
            proxy.cut("to_client")
            client.sendall(b"request")
            assert far.recv(100) == b"request"
            far.sendall(b"answer")
            assert silent(client)
            proxy.heal()
            assert client.recv(100) == b"answer"
            proxy.cut("to_broker")
            far.sendall(b"news")
            assert client.recv(100) == b"news"
            client.sendall(b"kept back")
            assert silent(far)
            proxy.heal()
            assert far.recv(100) == b"kept back"


def test_a_reset_breaks_what_there_is_and_lets_new_ones_in(proxy: Proxy, client: socket.socket) -> None:
    proxy.reset()
    with pytest.raises(ConnectionResetError):
        client.recv(1)
    with connected(proxy) as again:
        assert exchange(again, b"new") == b"new"


def test_refusing_leaves_those_alone_that_are_through(proxy: Proxy, client: socket.socket) -> None:
    proxy.refuse()
    with connected(proxy) as refused, contextlib.suppress(ConnectionResetError):
        assert refused.recv(1) == b""
    assert exchange(client, b"still here") == b"still here"
    proxy.heal()
    with connected(proxy) as again:
        assert exchange(again, b"in") == b"in"


def test_an_end_on_either_side_is_an_end_on_the_other(proxy: Proxy) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        proxy.target = server.getsockname()[1]
        with connected(proxy) as client:
            far, _ = server.accept()
            far.sendall(b"last words")
            far.close()
            client.settimeout(PATIENCE)
            assert client.recv(100) == b"last words"
            assert client.recv(100) == b""
        with connected(proxy) as client:
            far, _ = server.accept()
            with far:
                client.close()
                far.settimeout(PATIENCE)
                assert far.recv(100) == b""


def test_a_target_that_is_down_is_a_closed_connection_and_may_come_up_later(echo: int) -> None:
    with Proxy() as proxy:
        with connected(proxy) as client, contextlib.suppress(ConnectionResetError):
            assert client.recv(1) == b""
        proxy.target = echo
        with connected(proxy) as client:
            assert exchange(client, b"up") == b"up"


def test_closing_ends_connections_that_are_cut(proxy: Proxy, client: socket.socket) -> None:
    proxy.cut()
    client.sendall(b"x")
    proxy.close()
    with contextlib.suppress(ConnectionResetError):
        assert client.recv(1) == b""
