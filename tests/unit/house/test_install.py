"""An install command that is copied installs this project: the plain name on the index belongs to another project.

Rules
1. A command of a document says where the distribution comes from (`NAME @ file://...` or `git+...`), as it isn't
   on the index. A hint of a program names the distribution alone: there the distribution is installed, and an extra is
   added.
2. A page with such a command says whose the plain name is, or links to the page that does.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.unit.house.repository import files, project, relative

NAME = project()["project"]["name"]
COMMAND = re.compile(r"(?:pip3?|pipx|uv tool|uv pip) install\b[^\n]*|(?:uv|poetry|pdm) add\b[^\n]*")
#: A name as an argument, and no part of a path or of an address.
NAMED = re.compile(r"(?<![\w./-])kafka[-_.]pubsub[\w-]*(?:\[[\w,]+\])?( @ (?:file://|git\+))?")
WARNING = "`kafka-pubsub` on the package index belongs to another project"
LINK = "connecting.md#install-into-your-project"

documents = [path for path in files() if path.suffix == ".md" and path.name != "changelog.md"]
programs = [path for path in files() if path.suffix in {".py", ".toml", ".sh", ".yml", ".yaml"}]


def installed(text: str) -> list[re.Match[str]]:
    """Returns the names of this project, right or wrong, that the text's install commands have."""
    commands = [re.split(r"`|\s#|&&|;", each[0])[0] for each in COMMAND.finditer(text)]
    return [name for command in commands for name in NAMED.finditer(command)]


def problems(text: str, *, document: bool) -> list[str]:
    """Returns the mistakes in the install commands of a text."""
    found = installed(text)
    wrong = [f"{each[0]!r} isn't {NAME!r}" for each in found if re.split(r"[\[ ]", each[0])[0] != NAME]
    if document:
        wrong += [f"{each[0]!r} doesn't say where it comes from" for each in found if not each[1]]
        if found and WARNING not in " ".join(text.split()) and LINK not in text:
            wrong.append("neither the warning nor a link to it")
    return wrong


@pytest.mark.parametrize(
    "page", [each for each in documents if installed(each.read_text("utf-8"))], ids=relative
)
def test_a_page_installs_this_project_and_says_whose_the_plain_name_is(page: Path) -> None:
    assert problems(page.read_text(encoding="utf-8"), document=True) == []


def test_hints_of_programs_have_the_right_name() -> None:
    own = Path(__file__).resolve()
    texts = {path: path.read_text(encoding="utf-8") for path in programs if path != own}
    assert {
        relative(path): found for path, text in texts.items() if (found := problems(text, document=False))
    } == {}


def test_the_pages_where_people_begin_say_how_to_install() -> None:
    said = {relative(path) for path in documents if installed(path.read_text(encoding="utf-8"))}
    assert said >= {"README.md", "docs/connecting.md", "docs/spark.md"}


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("pip install kafka-pubsub", 3),
        ("`uv add 'kafka_pubsub[local]'`", 3),
        (f"pip install {NAME}", 2),
        (f'pip install "{NAME} @ file:///clone"', 1),
        (f'pip install "{NAME}[local] @ git+https://h/kafka_pubsub"\nThe name {WARNING}.', 0),
        ("pip install -e '.[local]' && kafka-pubsub demo", 0),
    ],
)
def test_a_wrong_command_is_found(text: str, wrong: int) -> None:
    assert len(problems(text, document=True)) == wrong
