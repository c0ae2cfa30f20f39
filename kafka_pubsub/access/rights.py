"""What each kind of program may do on a cluster with access rules: `rights.json`, with the names filled in.

Theory. A broker takes Read, Write, Alter and Delete for Describe as well, and AlterConfigs for DescribeConfigs. So the
data name the least that is enough: a test runs each role with its rights, and once without each of them.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from importlib import resources
from typing import Final, NamedTuple

from kafka_pubsub.errors import InvalidArgument

__all__ = ["EXTRAS", "ROLES", "Access", "Rule", "rules_of"]

#: Kinds of programs.
ROLES: Final = ("publisher", "subscriber", "admin", "router", "sequencer", "monitor", "spark")
#: What a program may do besides, which needs more.
EXTRAS: Final = ("delays", "causal", "dead-letters", "replay")


class Rule(NamedTuple):
    """The operations that a role may do with a resource; `prefix`: with all whose names begin so."""

    type: str
    name: str
    prefix: bool
    operations: tuple[str, ...]


class Access(NamedTuple):
    """The topics, the subscription and the dead-letter topic (empty: none) with which a program works, and extras."""

    topics: Sequence[str]
    subscription: str = ""
    dead_letter: str = ""
    extras: Collection[str] = ()


def rules_of(role: str, access: Access) -> list[Rule]:
    """Returns the rules of a role; raises `InvalidArgument` if a name is missing that they need."""
    data: Mapping[str, list[dict[str, object]]] = json.loads(
        resources.files(__package__).joinpath("rights.json").read_text("utf-8")
    )
    if role not in data:
        raise InvalidArgument(f"role: there is no {role!r}; take one of {', '.join(ROLES)}")
    unknown = sorted(set(access.extras) - set(EXTRAS))
    if unknown:
        raise InvalidArgument(f"extras: there is no {unknown[0]!r}; take some of {', '.join(EXTRAS)}")
    merged: dict[tuple[str, str, bool], dict[str, None]] = {}
    for said in data[role]:
        if _is_wanted(said, access.extras):
            for name in _names(str(said["name"]), access):
                place = (str(said["type"]), name, bool(said.get("prefix")))
                operations = said["operations"]
                assert isinstance(operations, list)
                merged.setdefault(place, {}).update(dict.fromkeys(operations))
    return [Rule(*place, tuple(operations)) for place, operations in merged.items()]


def _is_wanted(said: Mapping[str, object], extras: Collection[str]) -> bool:
    banned = said.get("not", [])
    assert isinstance(banned, list)
    return said.get("for", None) in {None, *extras} and not set(banned) & set(extras)


def _names(pattern: str, access: Access) -> list[str]:
    for field in ("subscription", "dead_letter"):
        if f"{{{field}}}" in pattern and not getattr(access, field):
            raise InvalidArgument(f"{field}: give its name, which the rights of this role need")
    if "{topic}" in pattern and not access.topics:
        raise InvalidArgument(
            "topic: give at least one name (--topic NAME), which the rights of this role need"
        )
    topics = access.topics if "{topic}" in pattern else [""]
    return [
        pattern.format(topic=topic, subscription=access.subscription, dead_letter=access.dead_letter)
        for topic in topics
    ]
