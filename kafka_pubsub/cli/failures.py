"""Exit codes, and the one line that reports a failure.

Rules
1. 0 ok, 1 failed, 2 wrong usage. 128 + n when signal n ended it, as a shell reports it: 130 Ctrl-C, 143 SIGTERM,
   141 when the reader of stdout has closed it.
2. A failure is one line on stderr; under `--json` one object `{"error": {"code", "type", "message"}}`.
3. An unexpected exception is one line too; `KAFKA_PUBSUB_DEBUG=1` adds the traceback to any failure.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import traceback

import click

from kafka_pubsub.cli.output import to_json
from kafka_pubsub.errors import PubSubError
from kafka_pubsub.services.signals import Stopped

__all__ = [
    "BROKEN_PIPE",
    "FAILED",
    "INTERRUPTED",
    "OK",
    "USAGE",
    "configure_logging",
    "report",
    "silence_stdout",
]

OK = 0
FAILED = 1
USAGE = 2
INTERRUPTED = 130
BROKEN_PIPE = 141

# Canonical RPC codes for what isn't a PubSubError.
INVALID_ARGUMENT = 3
INTERNAL = 13
UNKNOWN = 2


def report(error: BaseException, *, as_json: bool) -> int:
    """Reports a failure on stderr, and returns the exit code."""
    if os.environ.get("KAFKA_PUBSUB_DEBUG") and not isinstance(error, SystemExit):
        traceback.print_exception(error)
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else FAILED
    if isinstance(error, Stopped):
        return error.exit_code
    if isinstance(error, (click.exceptions.Abort, KeyboardInterrupt)):
        return INTERRUPTED
    code, kind, message, exit_code = _describe(error)
    one_line = " ".join(message.split())
    if as_json:
        _complain(to_json({"error": {"code": code, "type": kind, "message": one_line}}).decode())
    else:
        _complain(f"{click.style('error:', fg='red', bold=True)} {one_line}")
    return exit_code


def _describe(error: BaseException) -> tuple[int, str, str, int]:
    if isinstance(error, PubSubError):
        return error.code, type(error).__name__, error.message, FAILED
    if isinstance(error, click.UsageError):
        return (
            INVALID_ARGUMENT,
            "UsageError",
            error.format_message().rstrip(".") + _where_to_look(error),
            USAGE,
        )
    if isinstance(error, click.ClickException):
        return UNKNOWN, type(error).__name__, error.format_message(), FAILED
    if isinstance(error, OSError):
        name = f" ({error.filename})" if error.filename else ""
        return UNKNOWN, type(error).__name__, f"{error.strerror or error}{name}", FAILED
    text = f"internal error: {type(error).__name__}: {error} (KAFKA_PUBSUB_DEBUG=1 shows where)"
    return INTERNAL, type(error).__name__, text, FAILED


def _where_to_look(error: click.UsageError) -> str:
    return "" if error.ctx is None else f" (see `{error.ctx.command_path} --help`)"


def _complain(line: str) -> None:
    # The reader of stderr may be gone as well; the exit code still shows the failure.
    with contextlib.suppress(OSError):
        click.echo(line, err=True)


def silence_stdout() -> None:
    """Points stdout at nothing, so that the interpreter's last flush doesn't complain about a broken pipe."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, sys.stdout.fileno())
        os.close(nothing)


def configure_logging(*, debug: bool) -> None:
    """Hides the log, since errors say what a person needs; shows it when debugging."""
    if debug:
        logging.basicConfig(level=logging.DEBUG, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    else:
        logging.getLogger().addHandler(logging.NullHandler())
