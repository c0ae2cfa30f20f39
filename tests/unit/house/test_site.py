"""The documentation is a site that builds without a warning, holds every page, and asks no other server for anything.

Rules
1. Each page of docs/ stands in the navigation of mkdocs.yml once. Decisions are reached through their list.
2. No page links to a file outside docs/, because the site doesn't have it.
3. The API page shows every name that `kafka_pubsub` exports.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

import kafka_pubsub
from kafka_pubsub import errors as every_error
from tests.unit.house.repository import ROOT, files, relative

DOCS = ROOT / "docs"
LINK = re.compile(r"\]\((?!https?://|#)([^)#\s]+)")
IN_THE_NAVIGATION = re.compile(r": (\S+\.md)$", re.MULTILINE)


def pages() -> list[Path]:
    return [path for path in files() if path.suffix == ".md" and DOCS in path.parents]


def test_every_page_stands_in_the_navigation_once() -> None:
    listed = sorted(IN_THE_NAVIGATION.findall((ROOT / "mkdocs.yml").read_text("utf-8")))
    unlisted = {"decisions", "vendor"}
    expected = {page.relative_to(DOCS).as_posix() for page in pages() if page.parent.name not in unlisted}
    assert listed == sorted(expected | {"decisions/README.md"})


@pytest.mark.parametrize("page", pages(), ids=relative)
def test_links_stay_inside_the_documentation(page: Path) -> None:
    for target in LINK.findall(page.read_text("utf-8")):
        assert DOCS in (page.parent / target).resolve().parents, (
            f"{target} isn't part of the site: name it as code"
        )


def test_the_api_page_shows_every_public_name() -> None:
    text = (DOCS / "api.md").read_text("utf-8")
    shown = set(re.findall(r"^::: kafka_pubsub\.(\w+)$", text, re.MULTILINE))
    errors = set(every_error.__all__)
    assert shown - {"errors"} == set(kafka_pubsub.__all__) - errors
    assert "errors" in shown


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site."""
    pytest.importorskip("zensical", reason="needs `pip install -e '.[docs]'`")
    folder = tmp_path_factory.mktemp("site")
    shutil.copy(ROOT / "mkdocs.yml", folder)
    for name in ("docs", "kafka_pubsub"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    command = [str(Path(sys.executable).with_name("zensical")), "build", "--strict"]
    built = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=120)
    assert built.returncode == 0, built.stdout + built.stderr
    return folder / "build" / "site"


class Requests(HTMLParser):
    """Collects what a browser asks for by itself when it shows a page."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag == "link" and values.get("rel") not in ("stylesheet", "icon", "preload"):
            return
        for name in ("src", "href") if tag == "link" else ("src",):
            self.addresses.append(values.get(name) or "")


def test_a_page_is_shown_without_asking_another_server(site: Path) -> None:
    for page in site.rglob("*.html"):
        requests = Requests()
        requests.feed(page.read_text("utf-8"))
        foreign = [each for each in requests.addresses if each.startswith(("http:", "https:", "//"))]
        assert foreign == [], page


def test_the_api_page_has_docstrings_and_diagrams_have_their_script(site: Path) -> None:
    api = (site / "api.html").read_text("utf-8")
    assert 'id="kafka_pubsub.PubSub.create_topic"' in api
    assert (site / "vendor" / "mermaid.min.js").stat().st_size > 1_000_000
    assert "vendor/mermaid.min.js" in (site / "design.html").read_text("utf-8")
