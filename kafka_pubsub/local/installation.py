"""A Kafka that can be run: a Java and a class path.

`KAFKA_HOME` (or `kafka_home=`) names an unpacked Kafka, which is used as it is; else the locked jars are.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kafka_pubsub.local import paths
from kafka_pubsub.local.artifacts import ensure_jars
from kafka_pubsub.local.errors import LocalKafkaError
from kafka_pubsub.local.java import find_java

__all__ = ["Installation", "locate"]

# The first version without ZooKeeper whose properties and commands are those that we write.
OLDEST_KAFKA = 4


@dataclass(frozen=True, slots=True)
class Installation:
    """A Java and a class path, with which classes of Kafka can be run."""

    java: Path
    jars: tuple[Path, ...]

    def command(self, main_class: str, jvm: list[str], args: list[str]) -> list[str]:
        """Returns the command line that runs one of Kafka's main classes."""
        class_path = os.pathsep.join(str(jar) for jar in self.jars)
        return [str(self.java), *jvm, "-cp", class_path, main_class, *args]


def locate(
    *,
    java: str | os.PathLike[str] | None = None,
    kafka_home: str | os.PathLike[str] | None = None,
    on_progress: Callable[[str], None] = lambda text: None,
) -> Installation:
    """Finds Java and Kafka on this machine; fetches Kafka once if no installed one was named."""
    program = find_java(java)
    given = kafka_home or os.environ.get("KAFKA_HOME")
    jars = _jars_of(Path(given).expanduser()) if given else ensure_jars(paths.cache(), on_progress)
    return Installation(program, tuple(jars))


def _jars_of(home: Path) -> list[Path]:
    jars = sorted((home / "libs").glob("*.jar"))
    versions = [found for jar in jars if (found := re.fullmatch(r"kafka_2\.1\d-(\d+)\..*\.jar", jar.name))]
    if not versions:
        raise LocalKafkaError(
            f"KAFKA_HOME is {home}, but there is no libs/kafka_2.13-*.jar below it. Point it to an "
            "unpacked Kafka "
            f"{OLDEST_KAFKA}.x, or unset it to use the one that comes with the extra [local]."
        )
    if int(versions[0].group(1)) < OLDEST_KAFKA:
        raise LocalKafkaError(
            f"KAFKA_HOME is {home}, which holds {versions[0].group(0)}; Kafka {OLDEST_KAFKA}.0 or "
            "newer is needed. "
            "Point it to one, or unset it to use the one that comes with the extra [local]."
        )
    return jars
