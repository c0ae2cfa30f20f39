"""One broker's files: its data directory, its server.properties, its log settings.

Theory: a node is described by values (`NodeSettings`); the text of its configuration follows from them and
nothing else. A cluster of three is three of these with the same `voters` and replication factors, so nothing
here says "one".
Rules: listeners on the loopback address only (there is no authentication); internal topics small, because a
broker opens every partition of them at its start; no topic comes into being by a typing error.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["LOOPBACK", "NodeFiles", "NodeSettings", "log_settings", "server_properties"]

LOOPBACK: Final = "127.0.0.1"
# 8 instead of 50: halves the time to the first group's start, and one machine's groups don't need more.
INTERNAL_PARTITIONS: Final = 8
# Of a quick broker. 10 MiB, like the largest message of Google's Pub/Sub; plus what Kafka wraps around it.
MAX_MESSAGE_BYTES: Final = 10 * 1024 * 1024 + 64 * 1024


# 16 MiB, for 600,000 keys a pass; Kafka's default of 128 MiB is taken at once, a quarter of our heap.
CLEANER_BUFFER_BYTES: Final = 16 * 1024 * 1024
# Seconds. After a kill, a broker isn't admitted again before its last session has expired: 3 s instead of 9.
SESSION_TIMEOUT_S: Final = 3.0
HEARTBEAT_MS: Final = 500


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """What distinguishes one broker from another, and what a cluster shares.

    `voters` maps node id to controller port; `replication` is the factor of the internal topics and the default of
    all others. `cluster_id` is for a new data directory (empty: a random one). `detour` is a second listener for
    clients: the port on which it listens, and the port that it advertises, where a proxy forwards to it.
    """

    port: int
    controller_port: int
    node_id: int = 1
    voters: tuple[tuple[int, int], ...] = ()
    replication: int = 1
    cluster_id: str = ""
    detour: tuple[int, int] | None = None
    #: Seconds without a heartbeat after which the broker is fenced: none of its partitions has a leader then.
    session_timeout: float = SESSION_TIMEOUT_S
    #: For tests and demos: a group's first member waits for no others, and larger messages are taken. Without it both
    #: are as on a stock broker.
    quick: bool = True

    @property
    def bootstrap(self) -> str:
        """The address that clients use."""
        return f"{LOOPBACK}:{self.port}"


@dataclass(frozen=True, slots=True)
class NodeFiles:
    """The paths of one broker's files, below its data directory."""

    root: Path

    @property
    def log_dir(self) -> Path:
        """Kafka's data (Kafka calls partitions logs)."""
        return self.root / "data"

    @property
    def properties(self) -> Path:
        """The broker's configuration, written at every start."""
        return self.root / "server.properties"

    @property
    def log_settings(self) -> Path:
        """The configuration of its logging, written at every start."""
        return self.root / "log4j2.properties"

    @property
    def broker_log(self) -> Path:
        """The broker's own log."""
        return self.root / "broker.log"

    @property
    def output(self) -> Path:
        """The output of the Java process: little, unless it dies."""
        return self.root / "output.log"

    @property
    def formatted(self) -> bool:
        """Whether the data directory is formatted."""
        return (self.log_dir / "meta.properties").exists()

    @property
    def cluster_id(self) -> str | None:
        """The cluster id of the data directory; None if it isn't formatted."""
        try:
            lines = (self.log_dir / "meta.properties").read_text("latin-1").splitlines()
        except OSError:
            return None
        return next((line.partition("=")[2] for line in lines if line.startswith("cluster.id=")), None)


def server_properties(settings: NodeSettings, log_dir: Path) -> str:
    """Returns the text of server.properties."""
    voters = settings.voters or ((settings.node_id, settings.controller_port),)
    min_in_sync = max(1, settings.replication - 1)
    # By name: the port on which it listens, and the port that it advertises.
    listeners: dict[str, tuple[int, int | None]] = {
        "CLIENT": (settings.port, settings.port),
        "CONTROLLER": (settings.controller_port, None),
    }
    if settings.detour is not None:
        listeners["DETOUR"] = settings.detour
    values: dict[str, object] = {
        "process.roles": "broker,controller",
        "node.id": settings.node_id,
        "controller.quorum.voters": ",".join(f"{node}@{LOOPBACK}:{port}" for node, port in voters),
        "listeners": _addresses((name, port) for name, (port, _) in listeners.items()),
        "advertised.listeners": _addresses((name, given) for name, (_, given) in listeners.items() if given),
        "inter.broker.listener.name": "CLIENT",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in listeners),
        "log.dirs": _escaped(str(log_dir)),
        "num.partitions": 1,
        "auto.create.topics.enable": "false",
        "default.replication.factor": settings.replication,
        "min.insync.replicas": min_in_sync,
        "broker.heartbeat.interval.ms": HEARTBEAT_MS,
        "broker.session.timeout.ms": round(settings.session_timeout * 1000),
        "log.cleaner.dedupe.buffer.size": CLEANER_BUFFER_BYTES,
        "offsets.topic.num.partitions": INTERNAL_PARTITIONS,
        "offsets.topic.replication.factor": settings.replication,
        "transaction.state.log.num.partitions": INTERNAL_PARTITIONS,
        "transaction.state.log.replication.factor": settings.replication,
        "transaction.state.log.min.isr": min_in_sync,
        "share.coordinator.state.topic.num.partitions": INTERNAL_PARTITIONS,
        "share.coordinator.state.topic.replication.factor": settings.replication,
        "share.coordinator.state.topic.min.isr": min_in_sync,
    }
    if settings.quick:
        values |= {
            "message.max.bytes": MAX_MESSAGE_BYTES,
            "replica.fetch.max.bytes": MAX_MESSAGE_BYTES,
            "group.initial.rebalance.delay.ms": 0,
        }
    return "".join(f"{name}={value}\n" for name, value in values.items())


def _addresses(ports: Iterable[tuple[str, int]]) -> str:
    return ",".join(f"{name}://{LOOPBACK}:{port}" for name, port in ports)


def log_settings(broker_log: Path) -> str:
    """Returns the text of log4j2.properties: one rolling file, without the list of all settings at the start."""
    file = _escaped(str(broker_log))
    values = {
        "status": "error",
        "shutdownHook": "disable",
        "appender.file.type": "RollingFile",
        "appender.file.name": "file",
        "appender.file.fileName": file,
        "appender.file.filePattern": f"{file}.%i",
        "appender.file.layout.type": "PatternLayout",
        "appender.file.layout.pattern": "%d{ISO8601} %p %m (%c{1})%n",
        "appender.file.policies.type": "Policies",
        "appender.file.policies.size.type": "SizeBasedTriggeringPolicy",
        "appender.file.policies.size.size": "10MB",
        "appender.file.strategy.type": "DefaultRolloverStrategy",
        "appender.file.strategy.max": "2",
        "rootLogger.level": "info",
        "rootLogger.appenderRef.file.ref": "file",
        "logger.settings.name": "org.apache.kafka.common.config.AbstractConfig",
        "logger.settings.level": "warn",
    }
    return "".join(f"{name} = {value}\n" for name, value in values.items())


def _escaped(value: str) -> str:
    # Java reads these files as Latin-1 and takes a backslash for an escape.
    escaped = value.replace("\\", "\\\\")
    return "".join(c if c.isascii() else _utf16_escapes(c) for c in escaped)


def _utf16_escapes(character: str) -> str:
    raw = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{raw[i] << 8 | raw[i + 1]:04x}" for i in range(0, len(raw), 2))
