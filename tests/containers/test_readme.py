"""README's commands in a container that has nothing but Python: the demo, and the tests."""

from __future__ import annotations

import io
import re
import subprocess
import tarfile
from collections.abc import Iterator

import pytest
from testcontainers.core.container import DockerContainer, ExecConfig

from tests.containers.engine import LABELS, ROOT, Engine

#: All tests would take minutes more; these run on a real broker.
CHOSEN = "tests/acceptance/test_ordering_examples.py -n 2"


def commands() -> tuple[str, str]:
    """The two of README that make an environment."""
    blocks = re.findall(r"```sh\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    demo, tests = (block for block in blocks if "python3 -m venv" in block)
    return demo, tests


@pytest.fixture(scope="module")
def bare(engine: Engine) -> Iterator[DockerContainer]:
    """A container with a clone of this repository, without its history."""
    container = DockerContainer(engine.base, labels=LABELS).with_command(["sleep", "infinity"])
    with container:
        container.get_wrapped_container().put_archive("/opt", clone())
        yield container


def clone() -> bytes:
    """Returns the files that git knows here, as an archive."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name in filter(None, listed.stdout.split("\0")):
            archive.add(ROOT / name, f"clone/{name}")
    return packed.getvalue()


def run(bare: DockerContainer, command: str, **environment: str) -> str:
    settings = {"PIP_ROOT_USER_ACTION": "ignore", **environment}
    done = bare.exec(ExecConfig(["sh", "-ec", command], environment=settings, workdir="/opt/clone"))
    said = done.output.decode("utf-8", "replace")
    assert done.exit_code == 0, said[-6000:]
    return said


@pytest.mark.timeout(600)
def test_the_demo_runs_where_there_is_only_python(bare: DockerContainer) -> None:
    said = run(bare, commands()[0])
    assert "0 out of order" in said
    assert "0 lost" in said


@pytest.mark.timeout(600)
def test_the_tests_run_there(bare: DockerContainer) -> None:
    said = run(bare, commands()[1], PYTEST_ADDOPTS=CHOSEN)
    assert " passed" in said
    assert "skipped" not in said
