"""One process of `kafka-pubsub run`: loads the app, runs it, and reports to its parent how it is.

Rules
1. What is wrong with the app's declarations ends the process with 2, before anything is opened; the parent then ends
   too. Another failure ends it with 1, and the parent starts another process.
2. A report is a line of JSON, every `LOOK` seconds. If the parent is gone the process ends as after SIGTERM.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

from kafka_pubsub.errors import PubSubError
from kafka_pubsub.handlers.loading import load_app
from kafka_pubsub.handlers.units import AppUnit
from kafka_pubsub.services.signals import StopFlag, stop_flag
from kafka_pubsub.services.units import run_units

__all__ = ["LOOK", "main"]

#: Seconds between two reports.
LOOK = 0.5

FAILED, USAGE = 1, 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the process; returns its exit code."""
    parser = argparse.ArgumentParser("kafka-pubsub run (a process of it)")
    parser.add_argument("target")
    parser.add_argument("--grace", type=float, default=30.0)
    parser.add_argument("--report", type=int, default=-1)
    parser.add_argument("--figures", default="")
    parser.add_argument("--view", action="store_true")
    given = parser.parse_args(arguments)
    with stop_flag() as stop:
        try:
            app = load_app(given.target)
            app.check()
        except PubSubError as error:
            sys.stderr.write(f"Error: {error.message}\n")
            return USAGE
        _configure_logging()
        unit = AppUnit(app)
        try:
            with _answering(given.figures, view=given.view):
                late = run_units(
                    [unit],
                    stop,
                    grace=given.grace,
                    watch=lambda: _report(given.report, unit, stop),
                    look=LOOK,
                )
        except PubSubError as error:
            sys.stderr.write(f"Error: {error.message}\n")
            return FAILED
    if late:
        sys.stderr.write(f"Handlers still ran after {given.grace:g} s; their messages are delivered again.\n")
    return 0


def _answering(path: str, *, view: bool) -> AbstractContextManager[object]:
    """Answers the parent for the figures of this process, if it wants them."""
    if not path:
        return nullcontext()
    from kafka_pubsub.observe.workers import answering

    return answering(path, view=view)


def _configure_logging() -> None:
    """Shows what is logged, unless the app's module has chosen how."""
    if not logging.getLogger().handlers:
        logging.basicConfig(
            level=logging.INFO, format="%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s"
        )
        # At INFO it names each request that it sends again, such as the first ones of a new cluster.
        logging.getLogger("kafka_pubsub.librdkafka").setLevel(logging.WARNING)


def _report(where: int, unit: AppUnit, stop: StopFlag) -> None:
    if where < 0:
        return
    health = unit.health()
    said = {
        "state": health.state.value,
        "ok": health.ok,
        "error": health.error,
        "streams": dict(health.streams),
    }
    try:
        os.write(where, json.dumps(said).encode() + b"\n")
    except BlockingIOError:
        return  # the parent reads later
    except OSError:
        stop.set()  # the parent is gone


if __name__ == "__main__":
    sys.exit(main())
