"""The commands at the head of docs/benchmarks.md take what they are given; what they measure takes hours."""

from __future__ import annotations

import re
import shlex

import pytest

from tests.benchmarks.__main__ import compare
from tests.unit.house.repository import ROOT, project

PAGE = (ROOT / "docs" / "benchmarks.md").read_text("utf-8")
(BLOCK,) = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
INSTALL, *COMMANDS = BLOCK.splitlines()


def test_the_extra_that_is_installed_exists() -> None:
    assert INSTALL == "pip install -e '.[bench]'"
    assert "bench" in project()["project"]["optional-dependencies"]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_is_understood(command: str) -> None:
    python, module, name, *options = shlex.split(command)
    assert (python, module, name) == ("python", "-m", "tests.benchmarks")
    context = compare.make_context("benchmarks", options)
    assert context.params["repeats"] == 3
