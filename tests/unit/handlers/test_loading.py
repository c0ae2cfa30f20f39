"""An app is found by its module's name; what is wrong is said with the remedy."""

from __future__ import annotations

import itertools
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafka_pubsub import App, InvalidArgument
from kafka_pubsub.handlers.loading import load_app

Write = Callable[[str], str]
_NUMBERS = itertools.count()


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Writes a module into the working directory, and returns its name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)

    def write(text: str) -> str:
        name = f"loaded_shop_{next(_NUMBERS)}"
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(text))
        return name

    yield write
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_an_app_is_found_by_its_name_or_as_app(write: Write) -> None:
    name = write(
        """
        from kafka_pubsub import App
        app = App()
        class Shop:
            other = App()
        """
    )
    assert isinstance(load_app(name), App)
    assert load_app(f"{name}:app") is load_app(name)
    assert load_app(f"{name}:Shop.other") is not load_app(name)


@pytest.mark.parametrize(
    ("text", "attribute", "said"),
    [
        ("x = 1", "", r"'app' in module '\w+' isn't there: write `app = App\(\)` in it"),
        ("app = 1", "", "'app' in module .* is int, not an App"),
        ("from kafka_pubsub import App\nshop = App()", "", r"'app' .* isn't there; it has \w+:shop"),
        (
            "import nowhere_at_all",
            "",
            "doesn't import: ModuleNotFoundError: No module named 'nowhere_at_all' in .*:1",
        ),
        ("1 / 0", "", "doesn't import: ZeroDivisionError: division by zero in .*:1"),
        ("def f(:", "", "doesn't import: SyntaxError"),
        (
            "from kafka_pubsub import App\napp = App()\n@app.subscriber('a', topic='t', batch=0)\ndef f(b: bytes): ...",
            "",
            "doesn't import: InvalidArgument: subscriber 'a' .*batch must be from 1",
        ),
    ],
)
def test_what_is_wrong_with_a_module_is_said(write: Write, text: str, attribute: str, said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        load_app(write(text) + attribute)


@pytest.mark.parametrize(
    ("target", "said"),
    [
        (
            "no_such_shop_module",
            "there is no module 'no_such_shop_module' in .* run from the directory that has it",
        ),
        ("shop.py", "is no module: write MODULE:NAME as in Python, such as shop:app"),
        ("./shop/orders.py:handlers", "such as shop.orders:handlers"),
        ("./shop", "is no module"),
        ("", "is no module"),
        (":app", "is no module"),
    ],
)
def test_what_is_wrong_with_a_name_is_said(write: Write, target: str, said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        load_app(target)
