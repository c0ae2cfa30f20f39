"""The test of the test: each rule that is taken out of the client must be missed by some seed."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.simulation import foci
from tests.simulation.mutations import MUTATIONS
from tests.simulation.plan import Focus
from tests.simulation.world import simulate

#: Seeds within which each must be caught; the shyest one needs about a third of them.
WITHIN = 600
#: Plans that show what shows in few drawn ones: walks inline are short there, and rarely keep two messages.
FOCI: Mapping[str, Focus] = {"kept_without_limit": foci.keeping}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", MUTATIONS)
def test_it_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTATIONS[name](monkeypatch)
    caught: list[str] = []
    for seed in range(WITHIN):
        try:
            simulate(seed, focus=FOCI.get(name))
        except Exception as error:  # a violation, or the client stumbling over itself
            caught.append(f"seed {seed}: {error!r}")
            monkeypatch.undo()  # the control: without the mistake this very seed holds
            simulate(seed, focus=FOCI.get(name))
            break
    assert caught, f"{MUTATIONS[name].__doc__} Nobody noticed."


def test_the_issues_own_are_among_them() -> None:
    own = {
        "old_releases_count",
        "whoever_wrote_last",
        "commit_before_ack",
        "blocked_key_evicted",
        "map_truncated",
    }
    assert own <= MUTATIONS.keys()
