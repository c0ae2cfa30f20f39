"""A port is free or not, and only our own broker counts as an answer."""

from __future__ import annotations

import contextlib
import socket
import threading

from kafka_pubsub.local.tcp_ports import broker_answers, free_ports, is_free


def test_free_ports_differ_and_are_free() -> None:
    ports = free_ports(20)
    assert len(set(ports)) == 20
    assert all(is_free(port) for port in ports)


def test_a_port_with_a_listener_isnt_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert not is_free(listener.getsockname()[1])


def answer(reply: bytes, cluster_id: str) -> bool:
    """Our judgement of a listener that sends `reply` to every request."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            # We may hang up as soon as we have seen enough.
            with connection, contextlib.suppress(OSError):
                connection.recv(100)
                connection.sendall(reply)

        thread = threading.Thread(target=serve)
        thread.start()
        found = broker_answers(listener.getsockname()[1], cluster_id, timeout_s=5.0)
        thread.join()
    return found


def test_only_our_own_cluster_counts_as_an_answer() -> None:
    ours = b"\0\0\0\x11" + b"brokers, id-of-us"
    assert answer(ours, "id-of-us")
    assert not answer(ours, "id-of-others")
    assert not broker_answers(free_ports(1)[0], None)


def test_what_isnt_kafka_is_no_answer_and_no_error() -> None:
    assert not answer(b"", "id")
    assert not answer(b"\xff\xff\xff\xff", "id")
    assert not answer(b"HTTP/1.1 400 Bad Request\r\n\r\n", "id")
    assert not broker_answers(free_ports(1)[0], "id")
