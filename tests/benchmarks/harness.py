"""Runs scenarios: a fresh broker for each, every row in a fresh process, rows of a scenario in turn.

Rules
1. The same broker, data, warm-up and patience for all rows of a scenario; nothing runs at the same time.
2. A process per row and repeat: no row inherits another's heap, threads, connections or just-in-time state.
3. Every second repeat goes through the rows backwards, so that being first is nobody's privilege.
4. The processes that a row started die with the row: its process group is killed at the end.
5. A row that fails is reported and the others go on.
6. A row that takes long reports (`TELL_S`) the last line that it printed; so does a row that was ended.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO

from tests.benchmarks.figures import Judgement, Parameter, Row, Run, Scenario, judge
from tests.benchmarks.row import SAID

__all__ = ["Outcome", "Progress", "Runner", "order", "parse_report"]

ROOT = Path(__file__).resolve().parents[2]
# Rows bound themselves by their `patience`; this ends only a row that ignores its bound.
ROW_TIMEOUT_S = 1800.0
# A broker is up in some seconds; on a machine with other work the start may take minutes.
READY_TIMEOUT_S = 240.0
# Between two words about a row that runs.
TELL_S = 15.0
# Of a row's standard error, enough to see a traceback's end.
ERROR_TAIL = 400

#: Told which step begins: its text, how many steps are behind, and of how many.
Progress = Callable[[str, int, int], None]


@dataclass
class Outcome:
    """A scenario, the reports of its rows, and how they compare with the targets."""

    scenario: Scenario
    runs: list[Run] = field(default_factory=list)
    judged: bool = True
    """False after a quick run: its numbers are too small to say anything."""

    @property
    def judgements(self) -> list[Judgement]:
        rows = {row.name for row in self.scenario.rows}
        wanted = [target for target in self.scenario.targets if target.row in rows]
        results = [judge(target, self.runs) for target in wanted]
        if self.judged:
            return results
        return [
            replace(result, result="not judged", reason=result.reason or "a quick run") for result in results
        ]

    @property
    def failed(self) -> bool:
        """Whether a row broke or a target was missed. A part that isn't installed is no failure."""
        return any(run.error for run in self.runs) or any(each.result == "miss" for each in self.judgements)


class Runner:
    """Runs scenarios in turn."""

    def __init__(
        self,
        scenarios: Sequence[Scenario],
        repeats: int,
        judged: bool,
        bootstrap: str | None,
        progress: Progress,
    ) -> None:
        self._scenarios = scenarios
        self._repeats = repeats
        self._judged = judged
        self._bootstrap = bootstrap
        self._progress = progress
        self._done = 0
        self._steps = sum(self._steps_of(scenario) for scenario in scenarios)

    def _steps_of(self, scenario: Scenario) -> int:
        return self._repeats_of(scenario) * len(scenario.rows) + (scenario.prepare is not None)

    def _repeats_of(self, scenario: Scenario) -> int:
        return self._repeats if scenario.repeatable else 1

    def run(self) -> list[Outcome]:
        """All scenarios."""
        return [self._run_scenario(scenario) for scenario in self._scenarios]

    def _run_scenario(self, scenario: Scenario) -> Outcome:
        outcome, before = Outcome(scenario, judged=self._judged), self._done
        try:
            with self._broker(scenario) as bootstrap:
                self._run_rows(scenario, bootstrap, outcome)
        except _Unprepared as broken:
            outcome.runs = [Run(row.name, 0, error=str(broken)) for row in scenario.rows]
            self._done = before + self._steps_of(scenario)
        return outcome

    def _run_rows(self, scenario: Scenario, bootstrap: str, outcome: Outcome) -> None:
        if (broken := self._prepare(scenario, bootstrap)) is not None:
            raise _Unprepared(f"preparing: {broken}")
        for repeat in range(self._repeats_of(scenario)):
            for row in order(scenario.rows, repeat):
                text = f"{scenario.name}: {row.name}, run {repeat + 1} of {self._repeats_of(scenario)}"
                self._step(text)
                outcome.runs.append(self._run_row(row, repeat, bootstrap, topic_of(scenario), text))

    def _step(self, text: str) -> None:
        self._progress(text, self._done, self._steps)
        self._done += 1

    @contextlib.contextmanager
    def _broker(self, scenario: Scenario) -> Iterator[str]:
        if self._bootstrap is not None:
            try:
                yield self._bootstrap
            finally:
                self._remove(scenario, self._bootstrap)
            return
        from kafka_pubsub.local import LocalKafka, LocalKafkaError

        # A broker for each scenario: the last one's gigabytes are off the disk and out of the page cache.
        self._progress(f"{scenario.name}: starting Kafka", self._done, self._steps)
        with contextlib.ExitStack() as stack:
            try:
                kafka = stack.enter_context(LocalKafka(ready_timeout=READY_TIMEOUT_S))
            except LocalKafkaError as error:
                raise _Unprepared(f"starting Kafka: {error}") from error
            yield kafka.bootstrap

    def _remove(self, scenario: Scenario, bootstrap: str) -> None:
        prefix = topic_of(scenario)
        ours = any(row.ours for row in scenario.rows)
        parameters: dict[str, Parameter] = {"bootstrap": bootstrap, "prefix": prefix, "ours": ours}
        row = Row("remove", "", "tests.benchmarks.cluster:remove", parameters=parameters)
        run = self._run_row(row, 0, bootstrap, prefix, f"{scenario.name}: removing its topics")
        if not run.worked:
            text = f"{scenario.name}: its topics {prefix}* are still there ({run.error or run.missing})"
            self._progress(text, self._done, self._steps)

    def _prepare(self, scenario: Scenario, bootstrap: str) -> str | None:
        if scenario.prepare is None:
            return None
        self._step(text := f"{scenario.name}: publishing its messages")
        topic = topic_of(scenario)
        ours = [row.name for row in scenario.rows if row.ours]
        subscriptions = [group_of(topic, name, n) for name in ours for n in range(self._repeats_of(scenario))]
        parameters = {**scenario.preparation, "subscriptions": subscriptions, "ours": bool(ours)}
        row = Row("prepare", "", scenario.prepare, parameters=parameters)
        run = self._run_row(row, 0, bootstrap, topic, text)
        return None if run.worked else run.error or run.missing

    def _run_row(self, row: Row, repeat: int, bootstrap: str, topic: str, text: str) -> Run:
        places = {"{bootstrap}": bootstrap, "{topic}": topic, "{group}": group_of(topic, row.name, repeat)}
        specification = {"call": row.call, "parameters": filled(row.parameters, places)}

        def tell(seconds: float, said: str) -> None:
            so_far = f"{text}, {seconds:.0f} s" + (f": {said}" if said else "")
            self._progress(so_far, self._done - 1, self._steps)

        return parse_report(row.name, repeat, *run_process(specification, tell))


class _Unprepared(Exception):
    """A scenario whose rows can't be run; the others can."""


def topic_of(scenario: Scenario) -> str:
    """The name of a scenario's topic; unique, because a named cluster may have had the same topic before."""
    return f"bench-{scenario.name}-{os.getpid()}"


def group_of(topic: str, row: str, repeat: int) -> str:
    """The consumer group, and subscription, of a run: no run continues where another stopped."""
    return f"{topic}-{row}-{repeat}"


def order(rows: Sequence[Row], repeat: int) -> list[Row]:
    """The rows in the order in which this repeat runs them."""
    return list(reversed(rows)) if repeat % 2 else list(rows)


def filled(parameters: Mapping[str, Parameter], places: Mapping[str, str]) -> dict[str, Parameter]:
    """The parameters with `{bootstrap}`, `{topic}` and `{group}` replaced."""
    return {
        name: places.get(value, value) if isinstance(value, str) else value
        for name, value in parameters.items()
    }


def run_process(
    specification: Mapping[str, object],
    tell: Callable[[float, str], None] = lambda _seconds, _said: None,
    timeout: float = ROW_TIMEOUT_S,
    every: float = TELL_S,
) -> tuple[int, str, str]:
    """A row's exit code, output and errors; `tell` hears how long the row has run and its last line."""
    command = [sys.executable, "-m", "tests.benchmarks.row", json.dumps(specification)]
    # Files and not pipes: processes that a row has left running can't keep us waiting for the end of a pipe.
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=errors, start_new_session=True)
        started = time.monotonic()
        try:
            while (past := time.monotonic() - started) < timeout:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    code = process.wait(min(every, timeout - past))
                    return code, _text(output), _text(errors)
                tell(time.monotonic() - started, _last_said(output))
            said = _last_said(output)
            error = f"no end after {timeout:.0f} s" + (f"; it last said: {said}" if said else "")
            return 1, json.dumps({"error": error}), ""
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _last_said(output: IO[str]) -> str:
    # Another descriptor of the same file would share the writer's place in it: `pread` moves nobody's.
    size = os.fstat(output.fileno()).st_size
    tail = os.pread(output.fileno(), ERROR_TAIL, max(0, size - ERROR_TAIL)).decode(errors="replace")
    said = [line.removeprefix(SAID) for line in tail.splitlines() if line.startswith(SAID)]
    return said[-1] if said else ""


def _text(file: IO[str]) -> str:
    file.seek(0)
    return file.read()


def parse_report(row: str, repeat: int, code: int, output: str, errors: str) -> Run:
    """The line that a row's process printed; a process without a readable line has failed."""
    try:
        report = json.loads(output.strip().splitlines()[-1])
        metrics = {name: float(value) for name, value in report.get("metrics", {}).items()}
    except (IndexError, ValueError, AttributeError, TypeError):
        tail = errors.strip()[-ERROR_TAIL:] or output.strip()[-ERROR_TAIL:] or "without a word"
        return Run(row, repeat, error=f"its process ended with {code}: {tail}")
    missing, error = report.get("missing", ""), report.get("error", "")
    if not metrics and not missing and not error:
        error = "it reported no figures"
    return Run(row, repeat, metrics, report.get("note", ""), missing, error)
