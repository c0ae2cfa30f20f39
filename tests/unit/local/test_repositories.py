"""The machine's own Maven settings decide where jars come from."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_pubsub.local.repositories import mirror_of_central, remote_repositories

ADDRESS = "https://mirror.example/maven"


def settings(folder: Path, mirror: str, namespace: str = "") -> Path:
    path = folder / "settings.xml"
    path.write_text(f"<settings{namespace}><mirrors><mirror>{mirror}</mirror></mirrors></settings>")
    return path


@pytest.mark.parametrize("covers", ["central", "*", "external:*", "*,!inhouse", "other, central"])
def test_a_mirror_that_covers_central_is_used(tmp_path: Path, covers: str) -> None:
    mirror = f"<mirrorOf>{covers}</mirrorOf><url> {ADDRESS} </url>"
    assert mirror_of_central(settings(tmp_path, mirror)) == ADDRESS
    namespace = ' xmlns="urn:maven-settings"'
    assert mirror_of_central(settings(tmp_path, mirror, namespace)) == ADDRESS


@pytest.mark.parametrize(
    "mirror",
    [
        f"<mirrorOf>inhouse</mirrorOf><url>{ADDRESS}</url>",
        f"<mirrorOf>*,!central</mirrorOf><url>{ADDRESS}</url>",
        f"<mirrorOf>external:http:*</mirrorOf><url>{ADDRESS}</url><blocked>true</blocked>",
        f"<mirrorOf>*</mirrorOf><url>{ADDRESS}</url><blocked>true</blocked>",
        "<mirrorOf>*</mirrorOf>",
    ],
)
def test_any_other_mirror_is_not(tmp_path: Path, mirror: str) -> None:
    assert mirror_of_central(settings(tmp_path, mirror)) is None


def test_settings_that_are_missing_or_broken_say_nothing(tmp_path: Path) -> None:
    assert mirror_of_central(tmp_path / "none.xml") is None
    (tmp_path / "broken.xml").write_text("<settings>")
    assert mirror_of_central(tmp_path / "broken.xml") is None


def test_what_the_user_says_comes_before_any_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".m2").mkdir()
    settings(tmp_path / ".m2", f"<mirrorOf>*</mirrorOf><url>{ADDRESS}</url>")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KAFKA_PUBSUB_MAVEN_REPOSITORY", raising=False)
    assert remote_repositories() == {"mirror": ADDRESS}
    monkeypatch.setenv("KAFKA_PUBSUB_MAVEN_REPOSITORY", "https://told.example/")
    assert remote_repositories() == {"told": "https://told.example"}
