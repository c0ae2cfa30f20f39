"""How rows are called, ordered and read; the processes themselves are not started here, except a tiny row."""

from __future__ import annotations

import ast
import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.benchmarks import data
from tests.benchmarks.cluster import published_per_key
from tests.benchmarks.command import choose
from tests.benchmarks.figures import Parameter, Row, Scenario
from tests.benchmarks.harness import ROOT, filled, order, parse_report, run_process
from tests.benchmarks.meter import Meter
from tests.benchmarks.row import say
from tests.benchmarks.scenarios import FAILING_S, NAMES, scenarios

EVERY_ROW = [
    (scenario, row) for quick in (True, False) for scenario in scenarios(quick) for row in scenario.rows
]


def parameters_of(call: str) -> set[str]:
    """The parameters of a row's function, read from its source: the peers needn't be installed."""
    module, _, function = call.partition(":")
    source = (ROOT / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8")
    [found] = [
        node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef) and node.name == function
    ]
    return {argument.arg for argument in found.args.args}


def answering_row(answer: float) -> dict[str, float | str]:
    return {"rate": answer, "note": "said so"}


def failing_row() -> None:
    raise RuntimeError("on purpose")


def test_a_row_runs_in_a_process_and_reports() -> None:
    call = "tests.unit.bench.test_harness:answering_row"
    run = parse_report("r", 0, *run_process({"call": call, "parameters": {"answer": 4.5}}))
    assert (run.metrics, run.note, run.worked) == ({"rate": 4.5}, "said so", True)


def test_a_row_that_raises_is_reported() -> None:
    specification = {"call": "tests.unit.bench.test_harness:failing_row", "parameters": {}}
    run = parse_report("r", 0, *run_process(specification))
    assert run.error == "RuntimeError: on purpose"


def test_a_part_that_is_not_installed_says_how_to_get_it() -> None:
    run = parse_report("r", 0, *run_process({"call": "no_such_module_here:f", "parameters": {}}))
    assert "pip install" in run.missing
    assert "no_such_module_here" in run.missing


def broken_import() -> None:
    exec("from tests.benchmarks.row import no_such_name_here")


@pytest.mark.parametrize(
    "call", ["tests.unit.bench.test_harness:broken_import", "kafka_pubsub.no_such_module_here:f"]
)
def test_an_import_of_ours_that_fails_is_a_failure_and_no_missing_part(call: str) -> None:
    run = parse_report("r", 0, *run_process({"call": call, "parameters": {}}))
    assert not run.missing
    assert "Error" in run.error


def talking_row(pipe: str) -> dict[str, float | str]:
    say("half of it")
    Path(pipe).open("w").close()
    threading.Event().wait()
    return {"rate": 1.0}


def test_a_row_without_an_end_is_heard_of_and_ended_with_what_it_said_last(tmp_path: Path) -> None:
    pipe, heard = tmp_path / "pipe", list[float]()
    os.mkfifo(pipe)

    def tell(seconds: float, _said: str) -> None:
        if not heard:
            pipe.open().close()  # until the row has said so
        heard.append(seconds)

    call = {"call": "tests.unit.bench.test_harness:talking_row", "parameters": {"pipe": str(pipe)}}
    run = parse_report("r", 0, *run_process(call, tell, timeout=0.2, every=0.01))
    assert run.error == "no end after 0 s; it last said: half of it"
    assert heard


@pytest.mark.parametrize("output", ["", "Killed", "[1]", '"text"', '{"metrics": {"rate": "fast"}}', "null"])
def test_a_process_that_said_nothing_readable_has_failed(output: str) -> None:
    run = parse_report("r", 0, -9, output, "Traceback: the end")
    assert run.error == "its process ended with -9: Traceback: the end"


def test_only_the_last_line_counts_and_no_figures_are_a_failure() -> None:
    assert parse_report("r", 0, 0, 'noise\n{"metrics": {"rate": 1}}\n', "").metrics == {"rate": 1.0}
    assert parse_report("r", 0, 0, '{"metrics": {}}', "").error == "it reported no figures"


def test_every_second_repeat_goes_backwards() -> None:
    rows = [Row(name, "", "") for name in "abc"]
    assert ["".join(row.name for row in order(rows, repeat)) for repeat in range(3)] == ["abc", "cba", "abc"]


def test_places_are_filled_in_and_nothing_else() -> None:
    parameters: dict[str, Parameter] = {"topic": "{topic}", "name": "topic", "count": 3, "threads": [1, 2]}
    assert filled(parameters, {"{topic}": "t"}) == {
        "topic": "t",
        "name": "topic",
        "count": 3,
        "threads": [1, 2],
    }


@pytest.mark.parametrize(("scenario", "row"), EVERY_ROW, ids=lambda each: getattr(each, "name", ""))
def test_every_row_is_called_with_what_it_takes(scenario: Scenario, row: Row) -> None:
    names = {each.name for each in scenario.rows}
    assert not row.beside or row.beside in names
    assert set(row.parameters) == parameters_of(row.call)
    json.dumps(dict(row.parameters))


def test_a_shorter_outage_of_one_key_says_how_short_and_what_was_asked_for() -> None:
    [whole] = choose(scenarios(quick=False), ["failing"], [])
    [short] = choose(scenarios(False, 90), ["failing"], [])
    assert (whole.rows[0].parameters["seconds"], short.rows[0].parameters["seconds"]) == (FAILING_S, 90)
    assert f"fails for {FAILING_S} s while" in whole.title
    assert f"fails for 90 s (its figure asks for {FAILING_S} s)" in short.title


def test_every_target_names_rows_and_metrics_that_exist() -> None:
    for scenario in scenarios(quick=False):
        names = {row.name for row in scenario.rows}
        for target in scenario.targets:
            assert target.row in names
            assert target.beside is None or target.beside in names
            assert target.metric in scenario.metrics


def test_rows_that_stand_beside_each_other_measure_the_same_amount() -> None:
    for scenario in scenarios(quick=False):
        sizes = {
            row.name: (row.parameters["warmup"], row.parameters["measured"])
            for row in scenario.rows
            if "measured" in row.parameters and row.name != "faststream"
        }
        for row in scenario.rows:
            if row.name in sizes and row.beside in sizes:
                assert sizes[row.name] == sizes[row.beside], (row.name, sizes)


def test_scenarios_and_rows_are_chosen_by_name() -> None:
    every = scenarios(quick=True)
    assert [each.name for each in choose(every, [], [])] == list(NAMES)
    assert [each.name for each in choose(every, ["pull", "publish"], [])] == ["publish", "pull"]
    narrowed = choose(every, [], ["threads"])
    assert [(each.name, [row.name for row in each.rows]) for each in narrowed] == [("handler", ["threads"])]


@pytest.mark.parametrize(("names", "rows"), [(["pul"], []), ([], ["our"]), (["publish"], ["threads"])])
def test_a_name_nobody_knows_is_refused(names: list[str], rows: list[str]) -> None:
    with pytest.raises(ValueError, match=r"no (scenario|row) .*there are"):
        choose(scenarios(quick=True), names, rows)


def test_all_rows_see_the_same_messages() -> None:
    first = list(data.places(data.keys(1000, 10)))
    assert first == list(data.places(data.keys(1000, 10)))
    counts = published_per_key(10, 1000)
    assert sum(counts.values()) == 1000
    assert {key: max(p for k, p in first if k == key) + 1 for key in counts} == counts


def test_a_value_is_1_kb_and_carries_its_head() -> None:
    value = data.Payloads().make(3, 4, 5)
    assert len(value) == data.VALUE_BYTES
    assert data.head(value) == (3, 4, 5)


def test_the_meter_counts_from_many_threads_and_stops_at_the_last() -> None:
    meter = Meter(100, 900)

    def some() -> None:
        for _ in range(125):
            meter.one()

    with ThreadPoolExecutor(8) as pool:
        for _ in range(8):
            pool.submit(some)
    assert meter.wait(0) > 0


def test_the_meter_counts_batches() -> None:
    meter = Meter(10, 10)
    assert [meter.many(8), meter.many(8), meter.many(8)] == [True, True, False]
    assert meter.done.is_set()
    assert meter.rate() > 0


def test_a_meter_that_was_not_finished_has_no_rate() -> None:
    meter = Meter(1, 5)
    meter.one()
    with pytest.raises(RuntimeError, match="stopped before message 6"):
        meter.rate()
    with pytest.raises(RuntimeError, match="about 1 of 6"):
        meter.wait(0)
    assert isinstance(meter.done, threading.Event)
