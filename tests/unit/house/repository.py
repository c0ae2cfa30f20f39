"""The files of this repository, as git would commit them: the subject of the house-rule tests.

Untracked files count unless git ignores them, so that a rule speaks before the commit and not afterwards. A
copy without git (an unpacked archive) is walked instead, without hidden and generated files.
"""

from __future__ import annotations

import subprocess
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
PACKAGE = ROOT / "kafka_pubsub"

_GENERATED = {"__pycache__", "build", "dist"}
_SHOWN_THOUGH_HIDDEN = {".ci", ".dockerignore", ".gitignore", ".gitattributes", ".pre-commit-config.yaml"}


@cache
def files() -> tuple[Path, ...]:
    """Every file that belongs to the repository."""
    return tuple(sorted(path for path in _listed_by_git() or _walked() if path.is_file()))


def python_files() -> list[Path]:
    """The modules of the package and of the tests."""
    return [path for path in files() if path.suffix == ".py"]


def relative(path: Path) -> str:
    """The name by which a person knows a file of this repository."""
    return path.relative_to(ROOT).as_posix()


@cache
def project() -> dict[str, Any]:
    """pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def _listed_by_git() -> list[Path]:
    # CI's clone may belong to another user, which git refuses unless it is told that the place is fine.
    command = ["git", "-c", f"safe.directory={ROOT}", "-C", str(ROOT), "ls-files", "-z"]
    try:
        listed = subprocess.run(
            [*command, "--cached", "--others", "--exclude-standard"], capture_output=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return []
    return [ROOT / name for name in listed.stdout.decode().split("\0") if name]


def _walked() -> list[Path]:
    def belongs(path: Path) -> bool:
        parts = path.relative_to(ROOT).parts
        return not any(
            part in _GENERATED or (part.startswith(".") and part not in _SHOWN_THOUGH_HIDDEN)
            for part in parts
        )

    return [path for path in ROOT.rglob("*") if belongs(path)]
