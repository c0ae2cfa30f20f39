"""Values that a configuration names, and doesn't hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_pubsub.errors import InvalidArgument
from kafka_pubsub.worker.secrets import resolve


def test_variables_and_files_take_the_place_of_their_names(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("abc\n")
    found = resolve(
        {"a": "${env:ONE}-${env:ONE}", "b": f"Bearer ${{file:{tmp_path}/token}}", "c": "$ {plain} ${x}"},
        {"ONE": "1${env:TWO}"},
    )
    assert found == {"a": "1${env:TWO}-1${env:TWO}", "b": "Bearer abc", "c": "$ {plain} ${x}"}


def test_a_name_that_stands_for_nothing_is_an_error_with_the_setting(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="token: the variable NO isn't set"):
        resolve({"token": "${env:NO}"}, {})
    with pytest.raises(InvalidArgument, match=r"token: the file .*gone can't be read: No such file"):
        resolve({"token": f"${{file:{tmp_path}/gone}}"}, {})
