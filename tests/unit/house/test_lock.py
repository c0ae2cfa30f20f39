"""requirements.lock: the packages of CI and the images, by hash, and from wherever the machine's client looks.

The lock must satisfy pyproject.toml under every supported Python, or a stranger's build fails instead of ours.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.unit.house.repository import ROOT, project

LOCK = ROOT / "requirements.lock"
# The bench's peers are measured, not built upon.
NOT_LOCKED = {"bench"}
PYTHONS = ["3.11", "3.12", "3.13"]


def entries() -> list[str]:
    """Logical lines: a requirement and its hashes."""
    lines = [
        line for line in LOCK.read_text(encoding="utf-8").splitlines() if not line.lstrip().startswith("#")
    ]
    return "\n".join(lines).replace("\\\n", " ").splitlines()


def locked() -> Iterator[tuple[Requirement, list[str]]]:
    for entry in entries():
        requirement, *hashes = re.split(r"\s+--hash=", entry.strip())
        yield Requirement(requirement), hashes


def wanted() -> list[Requirement]:
    metadata = project()
    extras = metadata["project"]["optional-dependencies"]
    texts = [*metadata["build-system"]["requires"], *metadata["project"]["dependencies"]]
    texts += [text for extra, group in extras.items() if extra not in NOT_LOCKED for text in group]
    return [r for r in map(Requirement, texts) if r.name != metadata["project"]["name"]]


def environment(python: str) -> dict[str, str]:
    told = {"python_version": python, "python_full_version": f"{python}.0", "sys_platform": "linux"}
    more = {"platform_system": "Linux", "os_name": "posix", "implementation_name": "cpython"}
    return {**{key: str(value) for key, value in default_environment().items()}, **told, **more}


@pytest.mark.parametrize("python", PYTHONS)
def test_each_requirement_has_exactly_one_locked_version_that_satisfies_it(python: str) -> None:
    versions: dict[str, list[str]] = {}
    for requirement, _ in locked():
        if requirement.marker is None or requirement.marker.evaluate(environment(python)):
            (pin,) = requirement.specifier
            versions.setdefault(canonicalize_name(requirement.name), []).append(pin.version)
    for requirement in wanted():
        found = versions.get(canonicalize_name(requirement.name), [])
        assert len(found) == 1, f"{requirement.name}: {found} in {LOCK.name}"
        assert found[0] in requirement.specifier, f"{requirement} is not satisfied by {found[0]}"


def test_every_version_is_exact_and_has_sha256_hashes() -> None:
    assert list(locked())
    for requirement, hashes in locked():
        assert [pin.operator for pin in requirement.specifier] == ["=="], requirement
        assert hashes, requirement
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", digest) for digest in hashes), requirement


def test_no_line_names_an_address_a_path_or_an_option_other_than_hash() -> None:
    text = LOCK.read_text(encoding="utf-8")
    assert "://" not in text
    assert [entry for entry in entries() if re.search(r"(?:^|\s)-(?!-hash=)|@|/", entry)] == []


def test_every_dependency_is_bounded_on_both_sides() -> None:
    for requirement in wanted():
        operators = {pin.operator for pin in requirement.specifier}
        assert operators & {">=", ">"}, f"{requirement} has no lower bound"
        assert operators & {"<", "<=", "~=", "=="}, f"{requirement} has no upper bound"
