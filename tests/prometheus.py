"""A Prometheus of a test's own: scrapes, evaluates the rules of `deploy/observe`, and is asked."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from tests.unit.house.repository import ROOT

__all__ = ["MISSING", "OBSERVE", "Prometheus", "quickened", "there"]

OBSERVE = ROOT / "deploy" / "observe"
#: Why a test is skipped.
MISSING = "no Prometheus here: apt-get install -y --no-install-recommends prometheus"


def there() -> bool:
    """Returns whether Prometheus and promtool are installed."""
    return shutil.which("prometheus") is not None and shutil.which("promtool") is not None


def quickened(changes: Mapping[str, str]) -> str:
    """Returns the rules with other times and thresholds; each of the texts to replace must be there."""
    text = (OBSERVE / "rules.yml").read_text(encoding="utf-8")
    for old, new in changes.items():
        assert old in text, old
        text = text.replace(old, new)
    return text


class Prometheus:
    """Runs inside a `with` block. `targets`: HOST:PORT of what it scrapes; `interval`: of scrapes and rules."""

    def __init__(
        self, folder: Path, port: int, targets: Sequence[str], rules: str, interval: str = "1s"
    ) -> None:
        self._folder, self._port = folder, port
        (folder / "rules.yml").write_text(rules, encoding="utf-8")
        config = {
            "global": {
                "scrape_interval": interval,
                "scrape_timeout": interval,
                "evaluation_interval": interval,
            },
            "rule_files": ["rules.yml"],
            "scrape_configs": [{"job_name": "kafka_pubsub", "static_configs": [{"targets": list(targets)}]}],
        }
        (folder / "prometheus.yml").write_text(json.dumps(config), encoding="utf-8")  # JSON is YAML
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        with (self._folder / "prometheus.log").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    "prometheus",
                    f"--config.file={self._folder / 'prometheus.yml'}",
                    f"--storage.tsdb.path={self._folder / 'data'}",
                    f"--web.listen-address=127.0.0.1:{self._port}",
                ],
                stdout=log,
                stderr=log,
            )
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def query(self, expression: str) -> list[Any]:
        """Returns the rows of an expression now."""
        return list(self._ask("query", query=expression)["result"])

    def firing(self) -> set[str]:
        """Returns the names of the alerts that fire."""
        alerts = self._ask("alerts").get("alerts", [])
        return {each["labels"]["alertname"] for each in alerts if each["state"] == "firing"}

    def wait_for(self, alert: str, seconds: float) -> float:
        """Waits until an alert fires; returns how long that took."""
        began = time.monotonic()
        while alert not in self.firing():
            if time.monotonic() - began > seconds:
                raise AssertionError(f"{alert} doesn't fire after {seconds:g} s; these do: {self.firing()}")
            time.sleep(0.2)
        return time.monotonic() - began

    def _ask(self, what: str, **parameters: str) -> dict[str, Any]:
        url = f"http://127.0.0.1:{self._port}/api/v1/{what}?{urllib.parse.urlencode(parameters)}"
        end = time.monotonic() + 20
        while True:
            try:
                with urllib.request.urlopen(url, timeout=10) as answer:
                    return dict(json.load(answer)["data"])
            except urllib.error.HTTPError as error:
                if error.code != 503:
                    raise AssertionError(f"{parameters}: {error.read().decode()}") from error
            except OSError:
                pass  # it starts
            if time.monotonic() > end:
                raise AssertionError("Prometheus doesn't answer")
            time.sleep(0.1)
