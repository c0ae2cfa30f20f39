"""The options of jobs: each is explained; spans of time are read before Spark starts."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from spark.reading.protobuf import Protobuf
from spark.run.bodies import SCHEMA
from spark.run.job import JOBS, find


@pytest.mark.parametrize("name", JOBS)
def test_every_option_of_a_job_is_explained(name: str) -> None:
    for each in find(name).parameters():
        assert isinstance(each, click.Option)
        said = each.help or ""
        assert len(said.split()) >= 10, f"{name} {each.opts[0]}: {said!r} doesn't explain it"
        assert said.endswith("."), f"{name} {each.opts[0]}: {said!r}"
        # The default's effect is said, unless the option must be given or click shows the default itself.
        told = each.required or each.is_flag or each.show_default or "Default: " in said or "With --" in said
        assert told, f"{name} {each.opts[0]}: {said!r} doesn't say what holds without it"


def test_a_schema_is_a_text_or_a_file(tmp_path: Path) -> None:
    file = tmp_path / "order schema.avsc"
    file.write_text('"long"')
    descriptors = tmp_path / "order.desc"
    descriptors.write_bytes(b"\xff")
    found = {text: SCHEMA.convert(text, None, None) for text in ("id bigint", '{"type": "long"}', str(file))}
    assert found == {"id bigint": "id bigint", '{"type": "long"}': '{"type": "long"}', str(file): '"long"'}
    assert SCHEMA.convert(f"{descriptors}#shop.Order", None, None) == Protobuf(b"\xff", "shop.Order")
    for wrong in ("nowhere.avsc", "nowhere.desc#shop.Order", str(descriptors)):
        with pytest.raises(click.BadParameter, match=r"is no schema .* and no file that can be read"):
            SCHEMA.convert(wrong, None, None)
