"""Every block of a page says in which language it is, and a test runs it, or holds it against the program.

Rule: a page with a new language of blocks gets its test before its row here.
"""

from __future__ import annotations

import re

import pytest

from tests.unit.house.repository import ROOT

BLOCK = re.compile(r"^```([^\n]*)\n.*?^```$", re.MULTILINE | re.DOTALL)
PAGES = ["README.md", *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md")))]
COMMANDS = "tests/integration/test_page_commands.py"
PROGRAMS = "tests/unit/pages/test_blocks.py"
SPARK = "tests/spark/session/test_docs.py"
HOUR = "tests/first_hour.py"

#: Pictures and output: nothing in them is typed.
SHOWN = {"mermaid", "text"}
#: By page and language: the file that runs the page's blocks.
RUN_BY = {
    "README.md": {"python": PROGRAMS, "sh": HOUR},
    "docs/benchmarks.md": {"sh": "tests/unit/bench/test_page.py"},
    "docs/compose.md": dict.fromkeys(("sh", "dockerfile"), "tests/containers/test_compose.py"),
    "docs/connecting.md": dict.fromkeys(("python", "sh"), "tests/unit/pages/test_connecting.py")
    | {"console": COMMANDS, "properties": "tests/unit/pages/test_connecting.py"},
    "docs/delays.md": {"python": PROGRAMS, "console": COMMANDS},
    "docs/existing-topic.md": {"python": PROGRAMS, "console": COMMANDS},
    "docs/handlers.md": {"python": "tests/unit/pages/test_handlers.py", "console": COMMANDS},
    "docs/kubernetes.md": dict.fromkeys(("sh", "yaml", "dockerfile"), "tests/unit/deploy/test_page.py"),
    "docs/lanes.md": {"python": PROGRAMS, "console": COMMANDS},
    "docs/metrics.md": dict.fromkeys(("python", "yaml"), "tests/unit/pages/test_metrics.py")
    | {"console": COMMANDS},
    "docs/multicast.md": {"python": PROGRAMS, "console": COMMANDS},
    "docs/operations.md": {
        "python": "tests/acceptance/test_sigterm.py",
        "console": COMMANDS,
        "promql": "tests/unit/observe/test_names.py",
    },
    "docs/ordering.md": {"python": PROGRAMS},
    "docs/publishing.md": {"python": PROGRAMS},
    "docs/push.md": dict.fromkeys(("python", "toml"), "tests/unit/pages/test_push.py"),
    "docs/records.md": {"python": "tests/unit/pages/test_records.py"},
    "docs/redelivery-operations.md": {"console": COMMANDS},
    "docs/redelivery.md": {"python": PROGRAMS, "console": COMMANDS},
    "docs/spark-job.md": {"python": SPARK, "sh": SPARK},
    "docs/spark.md": {"python": SPARK, "sh": SPARK, "properties": SPARK},
    "docs/testing.md": {"python": "tests/page_suite.py"},
    "docs/tutorial.md": dict.fromkeys(("python", "sh"), "tests/acceptance/test_tutorial.py"),
    "docs/worker.md": {"console": COMMANDS, "toml": COMMANDS}
    | dict.fromkeys(("sh", "ini"), "tests/unit/house/test_systemd.py"),
}


@pytest.mark.parametrize("page", PAGES)
def test_the_blocks_of_a_page_are_run(page: str) -> None:
    languages = set(BLOCK.findall((ROOT / page).read_text("utf-8"))) - SHOWN
    tests = RUN_BY.get(page, {})
    assert languages == set(tests), "a block has no language, or no test, or a test has no block"
    name = page.removeprefix("docs/").removesuffix(".md")
    for test in set(tests.values()):
        assert name in (ROOT / test).read_text("utf-8"), f"{test} doesn't name {page}"
