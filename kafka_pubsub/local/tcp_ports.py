"""Ports of the loopback address: finding free ones, and asking whether our broker answers on one."""

from __future__ import annotations

import random
import socket
import struct
from itertools import islice

from kafka_pubsub.local.node_config import LOOPBACK

__all__ = ["ask", "broker_answers", "free_ports", "is_free"]

# A metadata request (key 3, version 2) for no topic at all: its answer lists the brokers and names the cluster.
_METADATA = struct.pack(">hhihi", 3, 2, 1, -1, 0)
# A cluster of a few brokers takes some 100 bytes; more is another protocol's chatter.
_LONGEST_ANSWER = 64 * 1024
# Linux gives ports from 32768 on to outgoing connections, other systems from 49152 on.
_CHOICE = range(10_000, 32_768)


def free_ports(count: int) -> list[int]:
    """Returns different ports on which no process listens right now, and which no outgoing connection is given."""
    return list(islice(filter(is_free, random.sample(_CHOICE, len(_CHOICE))), count))


def is_free(port: int) -> bool:
    """Returns whether a broker could listen on this port."""
    with socket.socket() as probe:
        # As Java does: connections of an earlier broker that linger in TIME_WAIT don't keep the port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True


def broker_answers(port: int, cluster_id: str | None, timeout_s: float = 1.0) -> bool:
    """Returns whether a broker of this cluster answers on the port; another cluster's broker doesn't count."""
    if cluster_id is None:
        return False
    answer = ask(port, _METADATA, timeout_s)
    return answer is not None and cluster_id.encode() in answer


def ask(
    port: int, request: bytes, timeout_s: float, longest: int = _LONGEST_ANSWER, host: str = LOOPBACK
) -> bytes | None:
    """Sends one request of Kafka's protocol, and returns the answer, or None if none comes."""
    try:
        with socket.create_connection((host, port), timeout=timeout_s) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            (length,) = struct.unpack(">i", _read(connection, 4))
            return _read(connection, min(length, longest))
    except (OSError, struct.error):
        return None


def _read(connection: socket.socket, length: int) -> bytes:
    return connection.recv(max(0, length), socket.MSG_WAITALL)
