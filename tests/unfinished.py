"""Names in the report the tests that an interrupt has cut short: if a stage of CI has no time left, one may hang."""

from __future__ import annotations

import time

import pytest
from _pytest.junitxml import xml_key  # the only way to a property of the whole run outside of a test

__all__ = ["UNFINISHED", "Unfinished"]

#: The name of the property.
UNFINISHED = "unfinished"


class Unfinished:
    """Knows which tests are running."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        # When each test began, by its id.
        self._began: dict[str, float] = {}

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._began[nodeid] = time.monotonic()

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._began.pop(nodeid, None)

    def pytest_keyboard_interrupt(self) -> None:
        report = self._config.stash.get(xml_key, None)
        for nodeid, began in self._began.items():
            if report is not None:
                report.add_global_property(UNFINISHED, f"{nodeid} after {time.monotonic() - began:.0f} s")
