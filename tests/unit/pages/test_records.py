"""docs/records.md: its programs run, over the in-memory Kafka and a registry in memory."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kafka_pubsub import PubSub
from kafka_pubsub.handlers.app import App
from tests.unit.house.repository import ROOT

PAGE = (ROOT / "docs" / "records.md").read_text("utf-8")
REGISTRY, FOLDER, HANDLER = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(("block", "schemas"), [(REGISTRY, '"mock://page"'), (FOLDER, '"schemas"')])
def test_a_program_publishes_and_reads_records(
    block: str,
    schemas: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    text, changed = re.subn(
        r'PubSub\("localhost:9092", schemas="[^"]*"\)', f"PubSub.in_memory(schemas={schemas})", block
    )
    assert changed == 1
    exec(compile(text, "docs/records.md", "exec"), {"PubSub": PubSub})
    assert capsys.readouterr().out == ("ada 12\n" if block is REGISTRY else "")


def test_the_handler_gets_its_model(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {"__name__": "shop"}
    exec(compile(HANDLER, "docs/records.md", "exec"), names)
    app, order = names["app"], names["Order"]
    assert isinstance(app, App)
    assert callable(order)
    with app.test(schemas="mock://test") as t:
        t.publish("orders", order(user_id="ada", total=12))
        t.wait_idle()
        assert t.calls("billing")[0].data[0] == 0
        assert t.calls("billing")[0].ordering_key == "ada"
    assert capsys.readouterr().out == "ada 12\n"
