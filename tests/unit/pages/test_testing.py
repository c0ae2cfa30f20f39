"""docs/testing.md: its examples are tests that pass, without a broker (with one: tests/integration/local)."""

from __future__ import annotations

from pathlib import Path

from tests.page_suite import run_suite_of_page


def test_the_examples_in_memory_pass(tmp_path: Path) -> None:
    done = run_suite_of_page(tmp_path, "-k", "not kafka and not container")
    assert "4 passed, 2 deselected" in done.stdout, done.stdout


FRESH = """
import pytest
from kafka_pubsub import NotFound

@pytest.mark.parametrize("again", [False, True])
def test_each_test_has_its_own(pubsub, again):
    with pytest.raises(NotFound):
        pubsub.topic("orders").options
    pubsub.create_topic("orders")
"""


def test_the_fixture_is_fresh_for_each_test(tmp_path: Path) -> None:
    (tmp_path / "test_fresh.py").write_text(FRESH)
    done = run_suite_of_page(tmp_path, "-k", "its_own")
    assert "2 passed" in done.stdout, done.stdout
