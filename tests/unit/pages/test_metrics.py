"""docs/metrics.md: its blocks run, its table has every metric, and its Prometheus configuration is one."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from kafka_pubsub.observe.names import METRICS, PREFIX
from tests.prometheus import MISSING, there

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")


def test_the_blocks_of_the_page_run() -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 3
    program = "\n".join(blocks).replace("9464", "0")
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert '"message": "charged"' in done.stderr
    assert '"order": 17' in done.stderr


def test_the_table_has_every_metric() -> None:
    rows = [
        f"| `{PREFIX}{each.name}{'_total' if each.kind == 'counter' else ''}` | "
        f"{each.kind}{', Kafka' if each.of_kafka else ''} | {', '.join(each.labels) or 'none'} | {each.meaning} |"
        for each in METRICS
    ]
    assert re.findall(r"^\| `kafka_pubsub_.*$", PAGE, re.MULTILINE) == rows


def test_the_configuration_of_the_page_is_one(tmp_path: Path) -> None:
    if not there():
        pytest.skip(MISSING)
    (text,) = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    rules = ROOT / "deploy" / "observe" / "rules.yml"
    (tmp_path / "rules.yml").write_bytes(rules.read_bytes())
    (tmp_path / "prometheus.yml").write_text(text)
    done = subprocess.run(
        ["promtool", "check", "config", str(tmp_path / "prometheus.yml")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
