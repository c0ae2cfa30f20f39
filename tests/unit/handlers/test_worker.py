"""One process of `run`: what it reports, when it ends, and with which exit code; its parent is a pipe here."""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import os
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafka_pubsub.handlers import worker
from tests.support import until

_NUMBERS = itertools.count()

SHOP = """
    import threading
    from kafka_pubsub import App, PubSub

    ps = PubSub.in_memory()
    app = App(pubsub=ps)
    begun, go_on = threading.Event(), threading.Event()

    @app.subscriber("billing", topic="orders")
    def charge(body: bytes) -> None:
        begun.set()
        assert go_on.wait(60)
"""

Write = Callable[[str], str]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Writes a module into the working directory, and returns its name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(worker, "LOOK", 0.02)
    before = set(sys.modules)

    def write(text: str) -> str:
        name = f"worker_shop_{next(_NUMBERS)}"
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(text))
        return name

    yield write
    for name in set(sys.modules) - before:
        del sys.modules[name]


class Run:
    """The process, on a thread, and its parent's end of the pipe."""

    def __init__(self, target: str, *options: str) -> None:
        self.target = target
        self.reports, theirs = os.pipe()
        os.set_blocking(self.reports, False)
        os.set_blocking(theirs, False)
        self.theirs = theirs
        self._text = b""
        self.codes = list[int]()
        arguments = [target, "--report", str(theirs), *options]
        self._thread = threading.Thread(target=lambda: self.codes.append(worker.main(arguments)))
        self._thread.start()

    @property
    def module(self) -> Any:
        return sys.modules[self.target]

    def last(self) -> dict[str, Any]:
        """What it said last; empty: nothing yet."""
        with contextlib.suppress(BlockingIOError):
            self._text += os.read(self.reports, 65536)
        lines = self._text.split(b"\n")[:-1]
        return json.loads(lines[-1]) if lines else {}

    def leave(self) -> None:
        """The parent is gone."""
        os.close(self.reports)

    def end(self) -> int:
        """Returns the exit code."""
        self._thread.join(60)
        os.close(self.theirs)
        (code,) = self.codes
        return code


def test_it_reports_how_it_is_and_ends_when_its_parent_is_gone(write: Write) -> None:
    run = Run(write(SHOP))
    until(lambda: run.last().get("ok"))
    assert run.last() == {"state": "running", "ok": True, "error": "", "streams": {"billing": ""}}
    run.leave()
    assert run.end() == 0
    assert run.module.app.life is None


def test_a_parent_that_does_not_read_is_no_reason_to_end(write: Write) -> None:
    run = Run(write(SHOP))
    until(lambda: run.last().get("ok"))
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(run.theirs, b"\n" * 4096)
    assert not threading.Event().wait(0.1)
    assert run.codes == []
    run.leave()
    assert run.end() == 0


def test_handlers_that_still_run_after_the_grace_are_told(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Run(write(SHOP), "--grace", "0.1")
    until(lambda: run.last().get("ok"))
    run.module.ps.topic("orders").publish(b"").result(60)
    assert run.module.begun.wait(60)
    run.leave()
    assert run.end() == 0
    assert "Handlers still ran after 0.1 s; their messages are delivered again." in capsys.readouterr().err
    run.module.go_on.set()


def test_a_stream_that_fails_ends_it_with_1_and_its_error(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Run(write(SHOP))
    until(lambda: run.last().get("ok"))
    run.module.ps.delete_subscription("billing")
    assert run.end() == 1
    assert "Error: the app has ended: subscription 'billing'" in capsys.readouterr().err
    run.leave()


def test_what_is_missing_on_the_cluster_ends_it_with_1(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    name = write(SHOP.replace('topic="orders"', 'topic="orders", ensure="check"'))
    assert worker.main([name]) == 1
    assert "Error: " in (said := capsys.readouterr().err)
    assert "orders" in said


HANDLER = "from kafka_pubsub import App\napp = App()\n@app.subscriber('a', topic='t')\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1 / 0", "ZeroDivisionError: division by zero in "),
        ("from kafka_pubsub import App\napp = App()", "this app has no handlers: declare one with"),
        (f"{HANDLER}def f(x): ...", "parameter 'x' has no annotation"),
        (
            f"{HANDLER}def f(x: bytes): ...\n@app.subscriber('a', topic='u')\ndef g(x: bytes): ...",
            "another name",
        ),
    ],
)
def test_what_is_declared_wrongly_ends_it_with_2_before_anything_is_opened(
    write: Write, capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    assert worker.main([write(text)]) == 2
    told = capsys.readouterr().err
    assert told.startswith("Error: ")
    assert said in told
    assert "Traceback" not in told


def test_logging_is_shown_unless_the_module_has_chosen_how(monkeypatch: pytest.MonkeyPatch) -> None:
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [chosen := logging.NullHandler()])
    worker._configure_logging()
    assert root.handlers == [chosen]

    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(root, "level", logging.WARNING)
    worker._configure_logging()
    assert len(root.handlers) == 1
    assert root.level == logging.INFO
