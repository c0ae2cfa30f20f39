"""The needs of the tests of spark/, and the command that installs them; where CI is set nothing may be missing."""

from __future__ import annotations

import importlib.util
import os
import shutil

import pytest

__all__ = ["SHORT_LIVED", "need_spark"]

#: Options of a JVM that lives for a test. Its work is new to it nearly always, and the second compiler would work
#: for code that is soon done with: an archive and an audit of 3,000 messages took 63 s of CPU without it, 122 with it.
#: One core's worth of collecting, because its threads would only compete with the tests' other processes; room on the
#: stack for plans that are made by code that isn't compiled yet; and Spark's classes aren't verified, which was a sixth
#: of the CPU of a driver that writes three batches.
SHORT_LIVED = (
    "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xss4m "
    "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)


def need_spark() -> None:
    """Skips the test, or fails it in CI, when pyspark or Java is missing."""
    if (missing := _missing()) is None:
        return
    if os.environ.get("CI"):
        pytest.fail(missing)
    pytest.skip(missing)


def _missing() -> str | None:
    parts = [name for name in ("pyspark", "pyarrow", "fastavro") if importlib.util.find_spec(name) is None]
    if parts:
        return f"{', '.join(parts)} missing: pip install -e '.[spark]'"
    home = os.environ.get("JAVA_HOME")
    if shutil.which("java", path=f"{home}/bin" if home else None) is None:
        return "no Java for Spark: apt-get install -y openjdk-17-jre-headless (or 21)"
    return None
