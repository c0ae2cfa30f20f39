"""What the tests of spark/ need, and the command that gets what is missing; where CI is set nothing may be."""

from __future__ import annotations

import importlib.util
import os
import shutil

import pytest

__all__ = ["need_spark"]


def need_spark() -> None:
    """Skips the test, or fails it in CI, when pyspark or Java is missing."""
    if (missing := _missing()) is None:
        return
    if os.environ.get("CI"):
        pytest.fail(missing)
    pytest.skip(missing)


def _missing() -> str | None:
    parts = [
        name
        for name in ("pyspark", "pyarrow", "pandas", "fastavro")
        if importlib.util.find_spec(name) is None
    ]
    if parts:
        return f"{', '.join(parts)} missing: pip install -e '.[spark]'"
    home = os.environ.get("JAVA_HOME")
    if shutil.which("java", path=f"{home}/bin" if home else None) is None:
        return "no Java for Spark: apt-get install -y openjdk-17-jre-headless (or 21)"
    return None
