"""Which of many similar slow tests a run takes: in CI some each day, elsewhere and in `just deep` all of them.

Rules
1. The variants of one slow test take turns, and so do the slow tests of a file in `BY_TURNS`, or of Spark. Of three or
   more, each runs on one day of three; of two, on every second day.
2. A test that stands for itself runs every day. So of each kind some run at every move result.
3. Tests with containers count as slow ones here.
4. Only CI leaves tests out. A run prints its day; KAFKA_PUBSUB_DAY takes the tests of another day.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import date

from tests.seeds import DAY, DEEP

__all__ = ["BY_TURNS", "CHOSEN", "SPARK", "of_this_day"]

#: Days until all variants have run.
DAYS = 3
#: Whether this run leaves tests out.
CHOSEN = bool(os.environ.get("CI")) and not DEEP

#: Folders of which each file is such a theme. They take half the time of all slow tests.
SPARK = ("tests/spark/drivers/", "tests/spark/session/")
#: Other files whose tests are variants of a theme.
BY_TURNS = frozenset(
    {
        "tests/integration/bad_input/test_outages.py",
        "tests/integration/delays/test_arrival.py",
        "tests/integration/delays/test_refusing_homes.py",
        "tests/integration/delays/test_takeovers.py",
        "tests/integration/local/test_cluster.py",
        "tests/integration/local/test_context_manager.py",
        "tests/integration/local/test_sharing.py",
        "tests/integration/local/test_up_and_down.py",
        "tests/integration/multicast/test_forgotten_offsets.py",
        "tests/integration/multicast/test_kills.py",
        "tests/integration/multicast/test_lost_inboxes.py",
        "tests/integration/processes/test_members.py",
        "tests/integration/test_lane_losses.py",
        "tests/integration/test_lost_tail.py",
        "tests/integration/test_secured.py",
        "tests/property/test_hostile_mutations.py",
    }
)


def of_this_day(nodeids: Sequence[str], day: int = DAY) -> set[str]:
    """The slow tests that run on a day, which is a number as 20261125."""
    groups: dict[str, list[str]] = {}
    for nodeid in nodeids:
        groups.setdefault(_theme_of(nodeid), []).append(nodeid)
    turn = date.fromisoformat(str(day)).toordinal()
    return {
        nodeid
        for group in groups.values()
        for place, nodeid in enumerate(group)
        if (place + turn) % min(len(group), DAYS) == 0
    }


def _theme_of(nodeid: str) -> str:
    file = nodeid.partition("::")[0]
    return file if file in BY_TURNS or file.startswith(SPARK) else nodeid.partition("[")[0]
