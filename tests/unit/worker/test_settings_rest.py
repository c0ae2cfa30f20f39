"""The table `[rest]` of a worker's file."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kafka_pubsub.errors import InvalidArgument
from kafka_pubsub.worker.settings import RestSettings, parse, read_rest
from tests.unit.house.repository import ROOT

UNITS = "[services]\nrouter = true\n"


def rest(directory: Path, text: str) -> RestSettings:
    file = directory / "worker.toml"
    file.write_text(UNITS + text)
    return read_rest(file)


def test_the_page_has_a_table_that_is_read(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "worker.md").read_text("utf-8")
    (text,) = re.findall(r"^```toml\n(\[rest\].*?)^```$", page, re.MULTILINE | re.DOTALL)
    found = rest(tmp_path, text)
    assert found.token == "${env:WORKER_TOKEN}"
    assert found.key_file == "/etc/worker/key.pem"
    assert "WORKER_TOKEN" not in repr(found)
    assert list(parse(UNITS + text, "worker.toml")) == ["router"]


def test_without_it_nothing_is_set(tmp_path: Path) -> None:
    assert rest(tmp_path, "") == RestSettings()


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("[rest]\ntokens = 'x'", "there is no field 'tokens'; did you mean 'token'?"),
        ("[rest]\ntoken = 1", "token = 1 is wrong; write a text in quotes"),
        ("[rest]\ntoken = ''", "token = '' is wrong"),
        ("[rest]\nuser = 'ann'", "user and password need each other"),
        ("[rest]\nread_token = 'x'", "read_token alone opens nothing for writing"),
        ("[rest]\ncert_file = 'x'", "cert_file and key_file need each other"),
        ("rest = 1", "'rest' is no table"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, error: str) -> None:
    with pytest.raises(InvalidArgument) as raised:
        rest(tmp_path, text) if text.startswith("[") else parse(text, "worker.toml")
    assert error in raised.value.message
