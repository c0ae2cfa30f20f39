"""Every limit of the codecs is needed: without a limit the search finds a crash, a delay or growth."""

from __future__ import annotations

import pytest

from tests.property.hostile_records import search
from tests.property.hostile_records_mutations import MUTATIONS

#: Records within which a broken rule is noticed, and the seconds that a record may take.
RECORDS, SECONDS = "4000", "2"


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_broken_limit_is_noticed(name: str) -> None:
    format, _ = MUTATIONS[name]
    ran = search(format, "--records", RECORDS, "--seconds", SECONDS, "--mutation", name)
    assert ran.returncode != 0
    assert "usage: " not in ran.stderr, ran.stderr
