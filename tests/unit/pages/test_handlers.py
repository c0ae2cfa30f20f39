"""docs/handlers.md: its blocks run as a reader would paste them; the web application runs in tests/acceptance."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks() -> list[str]:
    return BLOCK.findall((ROOT / "docs" / "handlers.md").read_text(encoding="utf-8"))


def test_the_files_of_the_page_pass_their_tests(tmp_path: Path) -> None:
    for block in blocks():
        if named := re.match(r"# (\w+\.py)\n", block):
            (tmp_path / named[1]).write_text(block)
    assert {path.name for path in tmp_path.iterdir()} == {"shop.py", "test_shop.py", "web.py"}
    ours = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "KAFKA", "CI"))
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "."]
    environment = {**ours, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert "3 passed" in done.stdout, done.stdout


def test_the_other_blocks_are_apps_that_run() -> None:
    others = [block for block in blocks() if not block.startswith("# ")]
    assert len(others) == 2
    for block in others:
        names: dict[str, object] = {"__name__": "page"}
        exec(compile(block, "docs/handlers.md", "exec"), names)
        app = names["app"]
        with app.test() as t:  # type: ignore[attr-defined]
            t.publish("orders", {"user_id": "ada", "total": 12})
            t.publish("orders", {"user_id": "bob", "total": 5000})
            t.wait_idle(timeout=120)
            assert len(t.calls("billing")) >= 2
