"""The links of pages lead somewhere, and a decision has its form and its row."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.unit.house.repository import ROOT, files, relative

DECISIONS = ROOT / "docs" / "decisions"
#: Half a page.
LONGEST_DECISION = 3000
#: Words of docs/benchmarks.md: tables and limits. Earlier attempts go to decisions.
LONGEST_BENCHMARKS = 3000
#: "decision 012", "decisions 012 and 013".
NAMED = re.compile(r"\b[dD]ecisions?\s+(\d{3}(?:(?:,|,? and|,? or)\s+\d{3})*)\b")
#: The label of a link to a decision, and the number in its path.
LABELLED = re.compile(r"\[(\d{3})\]\((?:[\w./]*/)?(\d{3})-[a-z0-9-]+\.md\)")

pages = [path for path in files() if path.suffix == ".md"]
decisions = [path for path in pages if path.parent == DECISIONS and path.name != "README.md"]


def prose(page: Path) -> str:
    return re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The anchors that a renderer makes of the headings."""
    headings = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", each.strip().lower()).replace(" ", "-") for each in headings}


@pytest.mark.parametrize("page", pages, ids=relative)
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    wrong = []
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        there = (page.parent / name).resolve() if name else page
        found = there.is_relative_to(ROOT) and there.exists()
        if not found or (anchor and there.suffix == ".md" and anchor not in anchors(there)):
            wrong.append(target)
    assert wrong == []


@pytest.mark.parametrize("page", decisions, ids=relative)
def test_a_decision_has_its_form_and_fits_half_a_page(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert re.fullmatch(r"\d{3}-[a-z0-9-]+\.md", page.name)
    assert text.startswith(f"# {page.name[:3]}. ")
    assert re.findall(r"^\*\*(\w+)\.\*\*", text, re.MULTILINE) == ["Context", "Decision", "Consequences"]
    assert len(text) <= LONGEST_DECISION


def test_the_list_of_decisions_has_each_once_in_order() -> None:
    listed = re.findall(r"^\| \[\d{3}\]\(([^)]+)\)", prose(DECISIONS / "README.md"), re.MULTILINE)
    assert listed == [page.name for page in decisions]


def test_benchmarks_hold_tables_and_limits_only() -> None:
    text = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    assert len(text.split()) <= LONGEST_BENCHMARKS
    sections = re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    assert [title for title, body in sections[1:] if "**Limit**" not in body] == []


def test_numbers_of_decisions_have_no_gaps() -> None:
    assert [page.name[:3] for page in decisions] == [f"{n:03}" for n in range(1, len(decisions) + 1)]


def test_every_decision_that_is_named_exists_by_that_number() -> None:
    known = {page.name[:3] for page in decisions}
    wrong = []
    for path in (path for path in files() if path.suffix in {".py", ".md"}):
        text = path.read_text(encoding="utf-8")
        for several in NAMED.findall(text):
            wrong += [
                (relative(path), number) for number in re.findall(r"\d{3}", several) if number not in known
            ]
        wrong += [(relative(path), label) for label, linked in LABELLED.findall(text) if label != linked]
    assert wrong == []
