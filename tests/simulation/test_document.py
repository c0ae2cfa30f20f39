"""docs/invariants.md names tests, checks and mutations: they must be there, and none may be missing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.property.delays_mutations import MUTATIONS as DELAYS_MUTATIONS
from tests.property.delays_world import DelayWorld
from tests.property.lanes_mutations import MUTATIONS as LANES_MUTATIONS
from tests.simulation.answer_mutations import ANSWER_MUTATIONS
from tests.simulation.disasters import DISASTERS
from tests.simulation.growth_mutations import GROWTH_MUTATIONS
from tests.simulation.ledger import Ledger
from tests.simulation.mutations import MUTATIONS
from tests.simulation.process import Process, SimulatedRunner
from tests.simulation.retry_ledger import RetryLedger
from tests.simulation.retry_mutations import RETRY_MUTATIONS
from tests.simulation.worker_pool import ScriptedWorkers

_DISASTROUS = [mutation for each in DISASTERS.values() for mutation in each.mutations]
_OTHERS = (*RETRY_MUTATIONS, *ANSWER_MUTATIONS, *GROWTH_MUTATIONS, *_DISASTROUS)
ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "invariants.md").read_text(encoding="utf-8")


def test_every_invariant_has_its_chapter() -> None:
    written = [f"I{number}" for number in range(1, 17)]
    assert re.findall(r"^## (I\d+):", TEXT, re.MULTILINE) == written


def test_every_file_and_test_that_it_names_exists() -> None:
    paths = set(re.findall(r"`(tests/[\w/.]+)`", TEXT))
    assert len(paths) > 5
    assert [path for path in paths if not (ROOT / path).exists()] == []
    sources = "".join(file.read_text(encoding="utf-8") for file in (ROOT / "tests" / "property").glob("*.py"))
    names = set(re.findall(r"`(Test[A-Z]\w+|test_\w+)`", TEXT))
    assert names
    assert [
        name for name in names if not re.search(rf"^({name} =|def {name}\b)", sources, re.MULTILINE)
    ] == []


def test_every_check_that_it_names_exists() -> None:
    owners = {
        kind.__name__: kind
        for kind in (ScriptedWorkers, Ledger, RetryLedger, Process, SimulatedRunner, DelayWorld)
    }
    named = re.findall(r"`(\w+)\.(\w+)`", TEXT)
    found = [(owner, name) for owner, name in named if owner in owners]
    assert found
    assert [each for each in found if not hasattr(owners[each[0]], each[1])] == []


def test_it_names_every_mutation() -> None:
    names = [*MUTATIONS, *(mutation.__name__ for mutation in (*_OTHERS, *DELAYS_MUTATIONS, *LANES_MUTATIONS))]
    assert [name for name in names if f"`{name}`" not in TEXT] == []


@pytest.mark.parametrize("kind", ["retry", "checkpoint", "answer", "growth"])
def test_no_mutation_is_left_out(kind: str) -> None:
    source = (ROOT / "tests" / "simulation" / f"{kind}_mutations.py").read_text(encoding="utf-8")
    written = re.findall(r"^def ([a-z]\w+)\(patch: Patch\)", source, re.MULTILINE)
    used = [mutation.__name__ for mutation in _OTHERS]
    assert written
    assert [name for name in written if name not in used] == []
