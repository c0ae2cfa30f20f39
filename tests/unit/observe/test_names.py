"""The dashboard and the alerts: their queries name metrics that exist, and each alert has its paragraph."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest

from kafka_pubsub.observe.names import METRICS, PREFIX
from tests.integration.observe.test_alerts import QUICK
from tests.prometheus import MISSING, OBSERVE, quickened, there
from tests.unit.house.repository import ROOT

RULES = (OBSERVE / "rules.yml").read_text(encoding="utf-8")
DASHBOARD = json.loads((OBSERVE / "dashboard.json").read_text(encoding="utf-8"))
ALERTS = re.findall(r"^ +- alert: (\w+)$", RULES, re.MULTILINE)
#: The names of series, as Prometheus has them.
SERIES = {
    name
    for each in METRICS
    for name in (
        [f"{PREFIX}{each.name}_total"]
        if each.kind == "counter"
        else [f"{PREFIX}{each.name}_bucket"]
        if each.kind == "histogram"
        else [f"{PREFIX}{each.name}"]
    )
}


def queries() -> Iterator[str]:
    for panel in DASHBOARD["panels"]:
        for target in panel["targets"]:
            yield target["expr"].replace("$subscription", ".*")
    yield from (
        " ".join(text.split())
        for text in re.findall(r"expr: (?:>-)?\s*((?:.|\n)*?)\n +(?:for|labels):", RULES)
    )


@pytest.mark.parametrize("query", list(queries()))
def test_a_query_is_right_and_names_metrics_that_exist(query: str) -> None:
    promql_parser.parse(query)
    named = set(re.findall(r"kafka_pubsub_\w+", query))
    assert named
    assert named <= SERIES, named - SERIES


def test_the_queries_of_the_page_on_operations_are_right_and_name_figures_of_its_table() -> None:
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```promql\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    for query in block.splitlines():
        promql_parser.parse(query)
        (name,) = re.findall(rf"{PREFIX}(\w+)", query)
        assert f"| `{name}` |" in page


def test_there_is_a_query_for_each_alert() -> None:
    assert len(ALERTS) == 11
    assert len(list(queries())) == len(ALERTS) + sum(len(panel["targets"]) for panel in DASHBOARD["panels"])


def test_each_alert_has_a_paragraph_of_what_to_do_and_none_is_left_over() -> None:
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    titles = re.findall(r"^#### (KafkaPubSub\w+)$", page, re.MULTILINE)
    assert titles == ALERTS
    for alert in ALERTS:
        assert f"runbook: docs/operations.md#{alert.lower()}" in RULES
        text = page.split(f"#### {alert}\n", 1)[1].split("\n#", 1)[0].strip()
        assert len(text) > 100, alert


def test_a_panel_shows_each_metric_that_a_person_asks_for() -> None:
    shown = set(re.findall(r"kafka_pubsub_\w+", " ".join(queries())))
    left = {name for name in SERIES - shown if "service_" not in name}
    assert left <= {
        "kafka_pubsub_lag",
        "kafka_pubsub_waiting_retry",
        "kafka_pubsub_moved_total",
        "kafka_pubsub_buffered_bytes",
        "kafka_pubsub_silent_workers",
        "kafka_pubsub_view_failures_total",
    }


def promtool(*arguments: str) -> str:
    if not there():
        pytest.skip(MISSING)
    done = subprocess.run(["promtool", *arguments], cwd=OBSERVE, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_promtool_finds_nothing_wrong_with_the_rules() -> None:
    assert f"{len(ALERTS)} rules found" in promtool("check", "rules", "rules.yml")


def test_each_alert_fires_for_its_fault_and_not_before() -> None:
    promtool("test", "rules", "rules.test.yml")
    tested: Any = re.findall(r"alertname: (\w+)", (OBSERVE / "rules.test.yml").read_text(encoding="utf-8"))
    assert set(tested) == set(ALERTS)


def test_the_shorter_times_of_the_live_test_are_in_the_rules() -> None:
    assert quickened(QUICK) != RULES


def breaks(text: str) -> Iterator[str]:
    """The rules with one alert that never fires, or fires always."""
    for alert in ALERTS:
        for wrong in ("absent(vector(1))", "vector(1)"):
            pattern = rf"(- alert: {alert}\n +expr: )(?:>-\n(?: {{10}}[^\n]*\n)+|[^\n]*\n)"
            changed, count = re.subn(pattern, rf"\g<1>{wrong}\n", text)
            assert count == 1, alert
            yield changed


def test_the_tests_of_the_rules_notice_each_alert_that_never_fires_or_always(tmp_path: Path) -> None:
    if not there():
        pytest.skip(MISSING)
    (tmp_path / "rules.test.yml").write_bytes((OBSERVE / "rules.test.yml").read_bytes())
    for text in breaks(RULES):
        (tmp_path / "rules.yml").write_text(text, encoding="utf-8")
        done = subprocess.run(
            ["promtool", "test", "rules", "rules.test.yml"], cwd=tmp_path, capture_output=True, check=False
        )
        assert done.returncode != 0, text


def overlapping(one: dict[str, int], other: dict[str, int]) -> bool:
    return (
        one["x"] < other["x"] + other["w"]
        and other["x"] < one["x"] + one["w"]
        and one["y"] < other["y"] + other["h"]
        and other["y"] < one["y"] + one["h"]
    )


def test_the_dashboard_has_the_form_that_grafana_imports() -> None:
    """Without a Grafana here: what its import needs of a dashboard's JSON, by its documentation."""
    assert DASHBOARD.get("id") is None
    assert isinstance(DASHBOARD["schemaVersion"], int)
    assert DASHBOARD["title"]
    assert re.fullmatch(r"[\w-]{1,40}", DASHBOARD["uid"])
    variables = {each["name"]: each for each in DASHBOARD["templating"]["list"]}
    assert (
        variables["datasource"]
        == {"name": "datasource", "type": "datasource", "query": "prometheus"} | variables["datasource"]
    )
    asked = {"type": "prometheus", "uid": "${datasource}"}
    assert variables["subscription"]["datasource"] == asked
    panels = DASHBOARD["panels"]
    assert len({each["id"] for each in panels}) == len(panels)
    for place, panel in enumerate(panels):
        assert panel["title"]
        assert panel["type"] in {"stat", "timeseries", "table", "heatmap", "bargauge", "gauge"}
        assert panel["datasource"] == asked
        grid = panel["gridPos"]
        assert 0 <= grid["x"] <= 24 - grid["w"]
        assert not any(overlapping(grid, each["gridPos"]) for each in panels[:place]), panel["title"]
        refs = [each["refId"] for each in panel["targets"]]
        assert len(set(refs)) == len(refs) > 0
        used = set(re.findall(r"\$\{?(\w+)", json.dumps(panel)))
        assert used <= set(variables), panel["title"]
