"""The scripts of CI at a Docker engine: what they remove and start, with commands that stand for the real ones.

Rules
1. A stand-in notes how it was called, and answers by a `case` of its words. PATH has these and the tools of `TOOLS`.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support import until
from tests.unit.house.repository import ROOT

RUN, ENGINE = ROOT / ".ci" / "run", ROOT / ".ci" / "engine"
#: What the scripts need beside the stand-ins, as it is.
TOOLS = "awk bash cat cp dirname env grep id mktemp rm seq setsid sleep tail tar timeout umount xargs"
#: An engine that begins to answer when dockerd was called.
NOT_YET = """if [ "$1" = info ] && [ ! -e "$TMPDIR/started" ]; then
  echo "Cannot connect to the Docker daemon at unix:///var/run/docker.sock." >&2
  exit 1
fi"""


class Commands:
    """A folder of stand-ins, and their calls."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._called = folder / "bin", folder / "called"
        self.folder.mkdir()
        self._called.touch()
        for tool in TOOLS.split():
            found = shutil.which(tool)
            assert found is not None, f"{tool} is missing"
            (self.folder / tool).symlink_to(found)

    def add(self, name: str, answers: str = "") -> None:
        """A command; `answers` is the shell that it runs."""
        path = self.folder / name
        path.unlink(missing_ok=True)
        path.write_text(f'#!/bin/bash\necho "{name} $*" >>{self._called}\n{answers}\n')
        path.chmod(0o755)

    def run(self, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Runs a command to its end."""
        return subprocess.run(
            command,
            env=self.environment(environment),
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    def environment(self, more: Mapping[str, str]) -> dict[str, str]:
        """The variables of a command: none of the reader's own, which may name an engine."""
        return {"PATH": str(self.folder), "TMPDIR": str(self.folder.parent), **more}

    def called(self, name: str = "") -> list[str]:
        """The calls of a command, or of all."""
        return [line for line in self._called.read_text().splitlines() if line.startswith(name)]


@pytest.fixture
def commands(tmp_path: Path) -> Commands:
    return Commands(tmp_path)


def functions(*names: str) -> str:
    """These functions of `.ci/run`."""
    text = RUN.read_text("utf-8")
    found = []
    for name in names:
        found += re.findall(rf"^{name}\(\) \{{(?:.*\}}$|\n(?:.*\n)*?\}}$)", text, re.MULTILINE)
    assert len(found) == len(names)
    return "\n".join(found) + "\n"


def test_of_an_engine_only_what_this_run_made_is_removed_and_containers_first(commands: Commands) -> None:
    # Others have things, too: without a filter all of them are told.
    commands.add(
        "docker",
        """case "$*" in
  "ps -aq --filter label=kafka-pubsub.run=7-11") echo ours-1; echo ours-2 ;;
  "network ls -q --filter label=kafka-pubsub.run=7-11") echo ours-net ;;
  "volume ls -q --filter label=com.docker.compose.project=kafka-pubsub-7-11") echo ours-volume ;;
  *--filter*) ;;
  "ps "* | *" ls "*) echo of-others ;;
esac""",
    )
    names = ("ours", "in_the_engine", "clear_the_engine")
    script = "set -euo pipefail\n" + functions(*names) + "in_the_engine\nclear_the_engine"
    done = commands.run("bash", "-c", script, KAFKA_PUBSUB_CI_RUN="7-11")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["ours-1", "ours-2", "ours-net", "ours-volume"]
    assert [call for call in commands.called() if " rm " in call] == [
        "docker rm -fv ours-1 ours-2",
        "docker network rm ours-net",
        "docker volume rm -f ours-volume",
    ]


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ('[ "$1" != network ] || echo net-1', "left containers, networks or volumes behind: net-1 net-1"),
        ('[ "$1" != volume ] || exit 1', ""),
    ],
    ids=["left", "no-answer"],
)
def test_a_run_fails_if_something_is_left_in_the_engine_or_if_it_doesnt_tell(
    commands: Commands, answers: str, said: str
) -> None:
    commands.add("docker", answers)
    names = ("ours", "in_the_engine", "nothing_left_behind", "processes_of_this_run")
    script = "set -euo pipefail\n" + functions(*names) + "nothing_left_behind"
    done = commands.run("bash", "-c", script, KAFKA_PUBSUB_CI_RUN="7-11")
    assert done.returncode == 1
    assert said in done.stdout


def test_the_tests_give_the_labels_by_which_a_run_finds_what_they_made() -> None:
    source = (ROOT / "tests" / "containers" / "engine.py").read_text("utf-8")
    text = RUN.read_text("utf-8")
    (label,) = re.findall(r'LABELS: Final = \{"([\w.-]+)": RUN\}', source)
    (prefix,) = re.findall(r'PROJECT: Final = f"([\w-]+)\{RUN\}"', source)
    assert f'"label={label}=$KAFKA_PUBSUB_CI_RUN"' in text
    assert f'"label=com.docker.compose.project={prefix}$KAFKA_PUBSUB_CI_RUN"' in text
    # Compose takes no other signs in a project's name.
    (mark,) = re.findall(r'^export KAFKA_PUBSUB_CI_RUN="(.*)"$', text, re.MULTILINE)
    assert re.fullmatch(r"[a-z0-9_-]*", re.sub(r"\$(\$|\w+)", "1", mark))


@pytest.mark.parametrize(
    ("here", "base", "pulled"),
    [
        ("python:3.12-slim kafka-pubsub/base:system", "python:3.12-slim", False),
        ("kafka-pubsub/base:system", "kafka-pubsub/base:system", False),
        ("", "python:3.12-slim", True),
    ],
    ids=["asked", "own", "neither"],
)
def test_an_image_that_is_here_is_taken_without_a_registry(
    commands: Commands, here: str, base: str, pulled: bool
) -> None:
    commands.add("docker", f'[ "$1" != image ] || [[ " {here} " == *" $3 "* ]]')
    done = commands.run(str(ENGINE))
    assert (done.returncode, done.stdout) == (0, f"{base}\n"), done.stderr
    assert bool(commands.called("docker pull")) is pulled


@pytest.mark.parametrize(
    ("said", "host", "fix"),
    [
        ("permission denied while trying to connect to the Docker daemon socket", "", "group docker"),
        ("Error response from daemon: client version 1.22 is too old.", "", "update the older"),
        ("Cannot connect to the Docker daemon at tcp://build:1.", "tcp://build:1", "unset DOCKER_HOST"),
    ],
    ids=["permission", "version", "elsewhere"],
)
def test_an_engine_that_refuses_is_named_and_no_second_one_is_started(
    commands: Commands, said: str, host: str, fix: str
) -> None:
    commands.add("docker", f'echo "{said}" >&2; exit 1')
    commands.add("dockerd")
    commands.add("apt-get")
    done = commands.run(str(ENGINE), **({"DOCKER_HOST": host} if host else {}))
    assert (done.returncode, done.stdout) == (1, "")
    assert fix in done.stderr
    assert commands.called("dockerd") + commands.called("apt-get") == []


def test_an_engine_that_the_package_starts_isnt_started_again(commands: Commands) -> None:
    for name in ("docker", "dockerd"):
        commands.add(name)
        (commands.folder / name).rename(commands.folder / f"{name}-of-apt")
    commands.add("id", "echo 0")
    commands.add("apt-get", 'for each in docker dockerd; do cp "${0%/*}/$each-of-apt" "${0%/*}/$each"; done')
    commands.add("iptables")
    done = commands.run(str(ENGINE))
    assert (done.returncode, done.stdout) == (0, "python:3.12-slim\n"), done.stderr
    assert "apt-get install -qy docker.io" in commands.called("apt-get")
    assert commands.called("dockerd") == []


def starting(commands: Commands, dockerd: str) -> dict[str, str]:
    """An engine that isn't there yet; its id will be in the file that is named."""
    commands.add("docker", NOT_YET)
    commands.add("dockerd", dockerd)
    commands.add("iptables")
    return {"KAFKA_PUBSUB_ENGINE_PID": str(commands.folder.parent / "pid"), "KAFKA_PUBSUB_CI_RUN": "7-11"}


def test_an_engine_that_was_started_outlives_the_script_and_its_run(commands: Commands) -> None:
    notes = 'echo "${KAFKA_PUBSUB_CI_RUN:-none}" >"$TMPDIR/mark"; : >"$TMPDIR/started"'
    more = starting(commands, f"{notes}; exec sleep 60")
    done = commands.run(str(ENGINE), **more)
    number = int(Path(more["KAFKA_PUBSUB_ENGINE_PID"]).read_text())
    try:
        assert (done.returncode, done.stdout) == (0, "python:3.12-slim\n"), done.stderr
        assert (commands.folder.parent / "mark").read_text() == "none\n"
        assert Path(f"/proc/{number}/comm").read_text() == "sleep\n"
    finally:
        os.kill(number, signal.SIGKILL)


def test_a_start_that_is_interrupted_leaves_no_engine(commands: Commands) -> None:
    more = starting(commands, "exec sleep 60")
    script = subprocess.Popen(
        [str(ENGINE)],
        env=commands.environment(more),
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        until(lambda: commands.called("dockerd"), "dockerd runs", 30)
        engine = int(Path(more["KAFKA_PUBSUB_ENGINE_PID"]).read_text())
        # As `timeout` does.
        os.killpg(script.pid, signal.SIGTERM)
        script.wait(30)
        until(lambda: not Path(f"/proc/{engine}/exe").exists(), "dockerd has ended", 30)
    finally:
        script.kill()


@pytest.mark.skipif(not Path("/etc/debian_version").exists(), reason="needs Debian or Ubuntu")
def test_a_base_comes_from_the_mirror_of_this_release_and_a_failure_names_a_way_out(
    commands: Commands,
) -> None:
    commands.add("docker", '[ "$1" = info ]')
    sites = r"trixie-updates http://wrong\ntrixie http://right\ntrixie http://second\n"
    commands.add("apt-get", f'[ "$1" != indextargets ] || printf "{sites}"')
    commands.add("debootstrap", 'echo "E: no such thing"; exit 1')
    done = commands.run(str(ENGINE))
    assert (done.returncode, done.stdout) == (1, "")
    assert "E: no such thing" in done.stderr
    assert ".ci/engine IMAGE" in done.stderr
    (called,) = commands.called("debootstrap")
    assert called.endswith(" http://right")
    assert not list(commands.folder.parent.glob("tmp.*"))
