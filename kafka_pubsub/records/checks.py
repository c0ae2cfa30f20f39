"""Checks a new schema against those that a folder or a registry has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from kafka_pubsub.errors import NotFound, SchemaError
from kafka_pubsub.records.codec import Codec
from kafka_pubsub.records.compatibility import ALL_CHECKED, Break, Compatibility, find_breaks
from kafka_pubsub.records.folder import Folder
from kafka_pubsub.records.registry import Registry

__all__ = ["Checked", "check_in_folder", "check_in_registry"]

_COMPATIBILITIES: Final[dict[str, Compatibility]] = {
    "BACKWARD": "backward",
    "FORWARD": "forward",
    "FULL": "full",
}


class Checked(NamedTuple):
    """The result of a check."""

    #: The versions with which the schema was compared.
    numbers: Sequence[int]
    breaks: Sequence[Break]
    #: The limits of the comparison; empty: none.
    note: str = ""


def check_in_folder(
    folder: Folder, subject: str, codec: Codec, compatibility: Compatibility, own: int | None = None
) -> Checked:
    """Compares a schema with those of a subject, all of them or those before the number `own`, which it has itself.

    Raises `SchemaError` if one of them was edited after its release.
    """
    numbers = [number for number in folder.numbers(subject) if own is None or number <= own]
    texts = {}
    for number in numbers:
        format_, text = folder.read(subject, number)
        if format_ != codec.format:
            raise SchemaError(
                f"schema: it is {codec.format}, and {subject!r} has {format_}: take another subject"
            )
        texts[number] = text
    if own is not None:
        del texts[own]
    breaks = find_breaks(codec.format, codec.text, texts, compatibility)
    note = (
        ""
        if ALL_CHECKED[codec.format] or not texts
        else (f"Of {codec.format} only what surely breaks is found here; a registry finds more.")
    )
    return Checked(list(texts), breaks, note)


def check_in_registry(registry: Registry, subject: str, codec: Codec) -> Checked:
    """Lets a registry compare a schema with those of a subject, by the compatibility that it has for this subject."""
    try:
        numbers = registry.numbers(subject)
    except NotFound:
        return Checked([], [], f"The subject {subject!r} has no version yet.")
    level = registry.compatibility(subject).upper()
    if level == "NONE":
        return Checked(
            [],
            [],
            f"The registry compares nothing: its compatibility for {subject!r} is NONE, which you can change there.",
        )
    compared = numbers if level.endswith("_TRANSITIVE") else numbers[-1:]
    if all(registry.check(subject, codec, number) for number in compared):
        return Checked(compared, [])
    return Checked(compared, _explain(registry, subject, codec, level, compared))


def _explain(
    registry: Registry, subject: str, codec: Codec, level: str, numbers: Sequence[int]
) -> Sequence[Break]:
    """Returns the breaks, by our own comparison; the registry only answers that there are some."""
    texts = {}
    for number in numbers:
        format_, text = registry.read(subject, number)
        if format_ == codec.format:
            texts[number] = text
    compatibility = _COMPATIBILITIES.get(level.removesuffix("_TRANSITIVE"), "backward")
    try:
        found = find_breaks(codec.format, codec.text, texts, compatibility)
    except SchemaError:  # a text that refers to others can't be compared by itself
        found = []
    said = f"the registry refuses it (compatibility {level})"
    return found or [Break(numbers[-1], "forward" if compatibility == "forward" else "backward", "", said)]
