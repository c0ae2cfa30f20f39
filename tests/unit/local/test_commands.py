"""`up`, `down` and `status` as far as they go without a broker."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kafka_pubsub.cli import broker as commands
from kafka_pubsub.errors import InvalidArgument, PubSubError
from kafka_pubsub.local import LocalKafka, down, find_running, paths, status, up
from kafka_pubsub.local.file_lock import exclusive, try_exclusive
from kafka_pubsub.local.settings import DEFAULT_HEAP_MB


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KAFKA_PUBSUB_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_without_a_broker_there_is_nothing_to_find_or_stop() -> None:
    assert find_running() is None
    assert status().state == "stopped"
    assert down().state == "stopped"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"ephemeral": True, "data_dir": "/d"}, "exclude each other"),
        ({"port": 0}, "port is 0; it must be from 1 to 65535"),
        ({"port": 65536}, "port is 65536"),
        ({"heap_mb": 127}, "heap_mb is 127; a broker needs 128"),
    ],
)
def test_options_that_cant_be_right_are_refused_by_name(options: dict[str, object], says: str) -> None:
    with pytest.raises(InvalidArgument, match=says):
        up(**options)  # type: ignore[arg-type]


def test_a_home_that_cant_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("KAFKA_PUBSUB_HOME", str(tmp_path / "file" / "home"))
    with pytest.raises(PubSubError, match=r"Can't keep the record .*file/home.*KAFKA_PUBSUB_HOME"):
        up()
    assert status().state == "stopped"


def test_a_broker_that_wasnt_started_has_no_address() -> None:
    kafka = LocalKafka()
    with pytest.raises(PubSubError, match="wasn't started yet"):
        _ = kafka.bootstrap
    kafka.stop()
    kafka.close()


def test_directories_follow_the_users_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KAFKA_PUBSUB_HOME")
    monkeypatch.delenv("KAFKA_PUBSUB_CACHE", raising=False)
    monkeypatch.setenv("HOME", "/users/me")
    monkeypatch.setenv("XDG_STATE_HOME", "relative/is/ignored")
    monkeypatch.setenv("XDG_CACHE_HOME", "/fast")
    assert paths.state_file() == Path("/users/me/.local/state/kafka-pubsub/broker.json")
    assert paths.cache() == Path("/fast/kafka-pubsub")


def test_a_lock_is_free_again_when_its_holder_dies(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    hold = (
        "import sys; from pathlib import Path; from kafka_pubsub.local.file_lock import try_exclusive\n"
        "lock = try_exclusive(Path(sys.argv[1])); print('held', flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", hold, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        assert try_exclusive(path) is None
        holder.kill()
        holder.wait()
        with exclusive(path):
            assert try_exclusive(path) is None


def test_where_files_cant_be_locked_the_error_says_where_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fcntl", None)
    assert find_running() is None
    with pytest.raises(PubSubError, match=r"runs on Linux and macOS\. On Windows use it inside WSL"):
        up()


def test_the_command_up_gives_the_broker_the_default_memory() -> None:
    (heap,) = (each for each in commands.up.params if each.name == "heap_mb")
    assert heap.default == DEFAULT_HEAP_MB
