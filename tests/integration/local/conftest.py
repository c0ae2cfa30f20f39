"""Rooms for brokers that these tests start and break themselves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_pubsub.local import down


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A user of its own for `up`, whose broker doesn't outlive the test."""
    monkeypatch.setenv("KAFKA_PUBSUB_HOME", str(tmp_path / "home"))
    yield tmp_path / "home"
    down(timeout=0)
