"""`.ci/smoke.py` finds what is here, and names the file that doesn't work. CI runs the script on the real files."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.unit.house.repository import ROOT

SCRIPT = ROOT / ".ci" / "smoke.py"


@pytest.fixture(scope="module")
def smoke() -> ModuleType:
    spec = importlib.util.spec_from_file_location("smoke", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(SCRIPT), *words], capture_output=True, text=True, check=False)


def test_this_python_comes_first_and_each_minor_version_once(smoke: ModuleType) -> None:
    found = smoke.supported_pythons()
    assert found[0] == sys.executable
    said = [
        subprocess.run(
            [each, "-c", "import sys; print(*sys.version_info[:2])"],
            capture_output=True,
            text=True,
            check=True,
        )
        for each in found
    ]
    versions = [tuple(map(int, each.stdout.split())) for each in said]
    assert len(set(versions)) == len(versions)
    assert min(versions) >= (3, 11)


def test_only_pythons_that_the_project_names_are_tried(
    smoke: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = ("3.10", "3.11", "3.12", "3.13", "3.14", "3.15")
    for minor in others:
        (tmp_path / f"python{minor}").symlink_to("/bin/true")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    own = "{}.{}".format(*sys.version_info)
    wanted = [str(tmp_path / f"python{minor}") for minor in ("3.11", "3.12", "3.13") if minor != own]
    assert smoke.supported_pythons() == [sys.executable, *wanted]


def test_a_folder_without_the_two_files_is_named(tmp_path: Path) -> None:
    done = run(str(tmp_path))
    assert (done.returncode, "there are 0 and 0: empty the folder" in done.stdout) == (2, True)


def test_a_wheel_that_cannot_be_installed_is_named_with_what_pip_says(tmp_path: Path) -> None:
    (tmp_path / "thing-1.0-py3-none-any.whl").write_bytes(b"no wheel")
    (tmp_path / "thing-1.0.tar.gz").write_bytes(b"no archive")
    done = run(str(tmp_path), "--python", sys.executable)
    assert done.returncode == 1
    assert "thing-1.0-py3-none-any.whl\nended with 1:\n" in done.stderr


def test_the_program_fails_where_something_is_missing(smoke: ModuleType) -> None:
    # This checkout isn't below the environment's folder, as an installed package is.
    command = [sys.executable, "-c", smoke.PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert (done.returncode, "isn't what was installed" in done.stderr) == (1, True)
