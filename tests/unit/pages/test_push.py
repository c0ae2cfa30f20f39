"""docs/push.md: its configuration is read, its receiver takes what we sign, and its connector runs out of a wheel."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kafka_pubsub.worker.connectors import CLASS, load_connector, problems
from kafka_pubsub.worker.push.signature import sign, signing_key
from kafka_pubsub.worker.settings import ConnectorSettings, parse
from tests.unit.house.repository import ROOT

PAGE = (ROOT / "docs" / "push.md").read_text("utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
(CONFIGURATION, PACKAGE), (RECEIVER, CONNECTOR) = (
    [text for language, text in BLOCKS if language == wanted] for wanted in ("toml", "python")
)

#: Runs the connector over the in-memory Kafka, as a worker does.
PROGRAM = """
import contextlib, sys, time
from kafka_pubsub import PubSub
from kafka_pubsub.worker.settings import parse
from kafka_pubsub.worker.units import make_unit

text = f'[connectors.x]\\nclass = "lines"\\nsubscription = "s"\\ntopic = "t"\\npath = "{sys.argv[1]}"'
with PubSub.in_memory() as ps:
    ps.create_topic("t")
    ps.create_subscription("s", "t")
    ps.topic("t").publish(b"one").result(10)
    unit = make_unit("x", parse(text, "worker.toml")["x"], lambda: contextlib.nullcontext(ps))
    unit.start()
    while ps.subscription("s").state().backlog:
        time.sleep(0.01)
    assert unit.stop(30)
"""


def test_the_configuration_is_one_of_a_push() -> None:
    (unit,) = parse(CONFIGURATION, "worker.toml").values()
    assert isinstance(unit, ConnectorSettings)
    config = {**dict(unit.config), "secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}
    assert problems(load_connector(config[CLASS]), config) == {}


def test_the_table_has_each_setting_with_its_default() -> None:
    table = PAGE.partition("## Settings")[2].partition("## ")[0]
    rows = dict(re.findall(r"^\| (`.*?`) \| (.*?) \|", table, re.MULTILINE))
    named = {name: default for names, default in rows.items() for name in re.findall(r"`(\w+)`", names)}
    fields = load_connector("push").options_type.model_fields
    assert set(named) == {*fields, "max_restarts"}
    assert named["format"] == f"`{fields['format'].default}`"
    assert named["allow_private"] == str(fields["allow_private"].default).lower()
    assert named["timeout"] == f"{fields['timeout'].default:g}"
    assert named["concurrency"] == str(fields["concurrency"].default)
    assert named["max_body"] == str(fields["max_body"].default)


def test_the_receiver_takes_what_is_signed_and_nothing_else() -> None:
    names: dict[str, Any] = {}
    exec(RECEIVER, names)
    is_ours: Callable[[str, dict[str, str], bytes], bool] = names["is_ours"]
    secret, now = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", int(time.time())
    headers = sign(signing_key(secret), "id", now, b"body")
    assert is_ours(secret, headers, b"body")
    assert not is_ours(secret, headers, b"other")
    assert not is_ours(secret, sign(signing_key(secret), "id", now - 1000, b"body"), b"body")


def test_the_connector_runs_out_of_a_wheel(tmp_path: Path) -> None:
    project, installed = tmp_path / "project", tmp_path / "installed"
    project.mkdir()
    (project / "lines.py").write_text(CONNECTOR)
    (project / "pyproject.toml").write_text(PACKAGE)
    run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)], project)
    (wheel,) = tmp_path.glob("*.whl")
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index"]
    run([*pip, "--target", str(installed), str(wheel)], tmp_path)
    run([sys.executable, "-c", PROGRAM, str(tmp_path / "lines")], tmp_path, PYTHONPATH=str(installed))
    assert (tmp_path / "lines").read_bytes() == b"one\n"


def run(command: list[str], directory: Path, **environment: str) -> None:
    done = subprocess.run(
        command,
        cwd=directory,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
