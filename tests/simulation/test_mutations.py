"""The test of the test: each rule that is taken out of the client must be missed by some seed."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.simulation import variants
from tests.simulation.mutation_check import must_be_missed
from tests.simulation.mutations import MUTATIONS
from tests.simulation.plan import PlanVariant

#: Plans that show mistakes that few drawn plans show: walks inline are short there, and rarely keep two messages.
VARIANTS: Mapping[str, PlanVariant] = {
    "kept_without_limit": variants.keeping,
    "expired_key_given_away": variants.asking,
}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", MUTATIONS)
def test_it_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    must_be_missed(MUTATIONS[name], monkeypatch, variant=VARIANTS.get(name))


def test_the_issues_own_are_among_them() -> None:
    own = {
        "old_releases_count",
        "last_written_counts",
        "commit_before_ack",
        "blocked_key_evicted",
        "map_truncated",
    }
    assert own <= MUTATIONS.keys()
