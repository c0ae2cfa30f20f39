"""A single row in a process of its own: `python -m tests.benchmarks.row '{"call": "module:function", ...}'`.

The function gets the parameters by name and returns its metrics. The last line on standard output is JSON:
`{"metrics": ..., "note": ...}`, `{"missing": <the package to install>}` or `{"error": ...}`. Before it a row may `say`
its progress.

A row leads a process group of its own. When the benchmark dies without a chance to end it (kill -9), the row notices
and takes its whole group along: a forgotten consumer at full speed would spoil whatever is measured next.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

__all__ = ["SAID", "Measured", "Missing", "call", "main", "say"]

#: Begins a line that says how far a row is.
SAID = "... "

OURS = frozenset({"kafka_pubsub", "tests"})
# Rare enough to cost no row anything.
ORPHAN_CHECK_S = 1.0

Measured = dict[str, float | str]
"""A row's answer: its metrics by name, and under `note` what the reader of the table should know."""


def say(text: str) -> None:
    """Says how far the row is, for whoever watches."""
    print(f"{SAID}{text}", flush=True)


class Missing(Exception):
    """A part of this row isn't installed; the text names the package."""


def call(specification: dict[str, Any]) -> dict[str, Any]:
    """Run the function of the specification and report in the form of the last line."""
    module, _, function = specification["call"].partition(":")
    try:
        run: Callable[..., Measured] = getattr(importlib.import_module(module), function)
        measured = run(**specification["parameters"])
    except Missing as missing:
        return {"missing": str(missing)}
    except ModuleNotFoundError as error:
        # Only other people's packages can be missing. An import of ours that fails is a bug, and a bug is no missing
        # part.
        if (error.name or "").partition(".")[0] in OURS:
            return {"error": f"{type(error).__name__}: {error}"}
        return {"missing": f"pip install 'kafka-pubsub-orderly[bench]' ({error})"}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}
    note = measured.pop("note", "")
    return {"metrics": measured, "note": note}


def _die_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(ORPHAN_CHECK_S)
    os.killpg(os.getpgrp(), signal.SIGKILL)


def main() -> None:
    """Entry point of the row's process."""
    if os.getpgrp() == os.getpid():
        threading.Thread(target=_die_with, args=(os.getppid(),), daemon=True).start()
    report = call(json.loads(sys.argv[1]))
    print(json.dumps(report), flush=True)


if __name__ == "__main__":
    main()
