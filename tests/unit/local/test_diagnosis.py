"""What a broker died of is read from its log, and each cause says what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_pubsub.local import diagnosis
from kafka_pubsub.local.errors import LocalKafkaError
from kafka_pubsub.local.node_config import NodeFiles


@pytest.mark.parametrize(
    ("log", "code", "says"),
    [
        ("java.net.BindException: Address already in use", 14, "Port 4711 is in use.*port="),
        ("java.io.IOException: No space left on device", 8, "disk of .* is full.*data_dir="),
        ("Failed to acquire lock on file .lock in /d", 6, "Another broker is using.*data_dir="),
        ("java.lang.OutOfMemoryError: Java heap space", 8, "out of memory.*heap_mb="),
        ("something new", 14, "(?s)ended by itself.*broker.log:\n  something new"),
    ],
)
def test_each_cause_of_death_has_its_advice(tmp_path: Path, log: str, code: int, says: str) -> None:
    files = NodeFiles(tmp_path)
    files.broker_log.write_text(f"INFO starting\n{log}\n" if code != 14 or "Port" in says else log)
    error = diagnosis.explain_death(files, 4711)
    assert error.code == code
    with pytest.raises(LocalKafkaError, match=says):
        raise error


def test_a_java_that_never_came_to_log_is_quoted_from_its_output(tmp_path: Path) -> None:
    files = NodeFiles(tmp_path)
    files.output.write_text("Error: could not find libjava.so\n")
    assert "could not find libjava.so" in diagnosis.explain_death(files, 1).message


def test_a_vanished_data_directory_is_no_second_error(tmp_path: Path) -> None:
    assert "it logged nothing" in diagnosis.explain_death(NodeFiles(tmp_path / "gone"), 1).message


def test_only_the_end_of_a_long_log_is_given(tmp_path: Path) -> None:
    files = NodeFiles(tmp_path)
    files.broker_log.write_text("".join(f"line {i}\n" for i in range(100_000)))
    assert diagnosis.last_lines(files, 2) == ["line 99998", "line 99999"]


def test_a_start_on_a_full_disk_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    diagnosis.require_disk(tmp_path)
    monkeypatch.setattr(diagnosis, "LEAST_FREE_BYTES", 1 << 60)
    with pytest.raises(LocalKafkaError, match=r"disk of .* is full \(\d+ MB free") as caught:
        diagnosis.require_disk(tmp_path)
    assert caught.value.code == 8
