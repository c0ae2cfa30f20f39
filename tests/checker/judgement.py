"""A directory of histories, judged: each subscription's by itself, in a single call.

    judge(directory) -> Judgement     `ok`, or `problems`, a line each; `counts`; `text` for people

Whoever runs processes with `KAFKA_PUBSUB_HISTORY=directory` only has to add a driver's file: where the subscription
began, whom the driver killed, stopped and continued, and its faults of the network.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.checker.check import check
from tests.checker.reading import NotAHistory, head_of
from tests.checker.report import Report
from tests.checker.settings import Settings

__all__ = ["Judgement", "grouped", "judge"]


@dataclass
class Judgement:
    """The proof that the histories give."""

    reports: dict[str, Report] = field(default_factory=dict)
    """By subscription."""

    @property
    def ok(self) -> bool:
        """Whether all promises were kept."""
        return all(report.ok for report in self.reports.values())

    @property
    def problems(self) -> list[str]:
        """Each broken promise in a line, up to the limit of each kind."""
        return [
            f"{name}: {violation.kind}: {violation.text}"
            for name, report in self.reports.items()
            for violation in report.violations
        ]

    @property
    def counts(self) -> dict[str, int]:
        """How much there was to judge, over all subscriptions."""
        total: dict[str, int] = {}
        for report in self.reports.values():
            for name, count in report.figures().items():
                total[name] = total.get(name, 0) + count
        return total

    @property
    def text(self) -> str:
        """Everything, for people."""
        return "\n\n".join(f"[{name}]\n{report.summary()}" for name, report in self.reports.items())


def judge(where: Path | Sequence[Path], settings: Settings | None = None, *, limit: int = 20) -> Judgement:
    """Holds the histories in a directory, or these files, against each other; `NotAHistory` if there are none."""
    paths = sorted(where.glob("*.jsonl")) if isinstance(where, Path) and where.is_dir() else where
    groups = grouped([paths] if isinstance(paths, Path) else paths)
    if not groups:
        raise NotAHistory(f"no history of a subscriber in {where}: nothing could be proved")
    return Judgement({name: check(files, settings, limit=limit) for name, files in groups.items()})


def grouped(paths: Iterable[Path]) -> dict[str, list[Path]]:
    """The files that have to be held against each other, by subscription.

    A file in which nothing was told - its process was killed in that moment - tells nothing.
    """
    heads = {path: head_of(path) for path in paths if _tells(path)}
    subscriptions = {
        head["subscription"]: head["topic"] for head in heads.values() if head["role"] == "subscriber"
    }
    return {
        name: [
            path
            for path, head in heads.items()
            if head["topic"] == topic and head["subscription"] in (name, None)
        ]
        for name, topic in sorted(subscriptions.items())
    }


def _tells(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(1) not in (b"", b"\0")
