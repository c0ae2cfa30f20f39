"""The unit of deploy/systemd is one that systemd takes, and docs/worker.md installs it where it looks for things."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.unit.house.repository import ROOT

UNIT = ROOT / "deploy" / "systemd" / "kafka-pubsub@.service"
TEXT = UNIT.read_text("utf-8")
PAGE = (ROOT / "docs" / "worker.md").read_text("utf-8")
HOME = "/opt/kafka-pubsub"


def setting(name: str) -> str:
    (value,) = re.findall(rf"^{name}=(.*)$", TEXT, re.MULTILINE)
    return str(value)


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("needs systemd-analyze, of Debian's package systemd")
    program = tmp_path / "bin" / "kafka-pubsub"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    (drop_in,) = re.findall(r"^```ini\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    unit = tmp_path / "kafka-pubsub@shop.service"
    unit.write_text(TEXT.replace(HOME, str(tmp_path)) + drop_in)
    verify = ["systemd-analyze", "verify", str(unit)]
    done = subprocess.run(verify, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    unit.write_text(unit.read_text("utf-8").replace("DynamicUser=", "DynamicUsers="))
    wrong = subprocess.run(verify, capture_output=True, text=True, check=False)
    assert "DynamicUsers" in wrong.stderr


def test_the_worker_has_more_time_to_end_than_its_grace() -> None:
    (grace,) = re.findall(r"--grace (\d+)s", setting("ExecStart"))
    assert int(setting("TimeoutStopSec")) > int(grace)
    assert setting("KillSignal") == "SIGTERM"
    assert setting("SuccessExitStatus") == "143"


def test_a_wrong_file_isnt_tried_for_ever() -> None:
    assert setting("Restart") == "always"
    assert setting("RestartPreventExitStatus") == "2"


def test_the_page_installs_what_the_unit_looks_for() -> None:
    (block,) = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert subprocess.run(["bash", "-n", "-c", block], check=False).returncode == 0
    assert setting("ExecStart").startswith(f"{HOME}/bin/kafka-pubsub worker ")
    assert f"venv {HOME}\n" in block
    assert f" {setting('WorkingDirectory').replace('%i', 'shop')}/\n" in block
    assert f"> {setting('EnvironmentFile').removeprefix('-').replace('%i', 'shop')}\n" in block
    assert "deploy/systemd/kafka-pubsub@.service" in block
