"""The checker as a function."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from pathlib import Path

from tests.checker.judge import Judge
from tests.checker.reading import NotAHistory, open_all
from tests.checker.report import Report
from tests.checker.settings import Settings
from tests.checker.survey import survey

__all__ = ["check"]


def check(paths: Sequence[Path], settings: Settings | None = None, *, limit: int = 20) -> Report:
    """Holds the histories of all processes of a subscription, its publishers and the driver against each other."""
    histories = open_all(paths)
    if not any(each.role == "subscriber" for each in histories):
        raise NotAHistory("no history of a subscriber among the files: nothing could be proved")
    report = Report(limit=limit, files=len(histories))
    # Millions of small objects that live on, and no cycles among them: the collector would only look at them again.
    frozen = gc.isenabled()
    gc.disable()
    try:
        settings = settings or Settings()
        Judge(histories, survey(histories, report, settings), report, settings).run()
        report.gather(histories)
    finally:
        if frozen:
            gc.enable()
    return report
