"""The examples of docs/testing.md as a reader's own test suite, run by pytest in a process of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

__all__ = ["run_suite_of_page"]

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def run_suite_of_page(
    folder: Path, *options: str, replaced: tuple[str, str] = ("", "")
) -> subprocess.CompletedProcess[str]:
    """Runs the page's blocks, each a file; `options` choose the tests, `replaced` is a text and what stands for it."""
    page = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8").replace(*replaced)
    for number, block in enumerate(BLOCK.findall(page)):
        (folder / f"test_block_{number}.py").write_text(block)
    ours = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "KAFKA", "CI"))
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, "."]
    environment = {**ours, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
