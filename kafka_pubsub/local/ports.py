"""Ports of the loopback address: is one free, give me a free one, does a broker answer there."""

from __future__ import annotations

import socket
import struct

from kafka_pubsub.local.node import LOOPBACK

__all__ = ["broker_answers", "free_port", "is_free"]

# ApiVersions, version 0, without a client id: the one request that every broker answers before anything else.
_API_VERSIONS = struct.pack(">hhih", 18, 0, 1, -1)


def free_port() -> int:
    """A port that nobody listens on right now."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port


def is_free(port: int) -> bool:
    """Whether a broker could listen on this port."""
    with socket.socket() as probe:
        # As Java does: connections of an earlier broker that linger in TIME_WAIT don't keep the port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True


def broker_answers(port: int, timeout_s: float = 1.0) -> bool:
    """Whether something that speaks Kafka's protocol answers on this port."""
    try:
        with socket.create_connection((LOOPBACK, port), timeout=timeout_s) as connection:
            connection.sendall(struct.pack(">i", len(_API_VERSIONS)) + _API_VERSIONS)
            answer = connection.recv(10, socket.MSG_WAITALL)
    except OSError:
        return False
    if len(answer) < 10:
        return False
    _, correlation, error = struct.unpack(">iih", answer)
    return bool(correlation == 1 and error == 0)
