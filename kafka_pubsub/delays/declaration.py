"""The declaration of the topics of delayed delivery: a small JSON file, and the topics that it stands for.

Rules
1. What isn't in the file has its default.
2. Names and settings come from `delays/layout.py`, which is what routers check.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from pydantic import Field, field_validator

from kafka_pubsub.config import Value
from kafka_pubsub.delays.layout import DEAD, MOST_TIERS, PARTITIONS, DelayLayout
from kafka_pubsub.errors import InvalidArgument

__all__ = ["DelayDeclaration", "WantedTopic", "read_declaration", "wanted_topics"]


class WantedTopic(NamedTuple):
    """A topic as the declaration wants it; `replication` None: the broker's default."""

    name: str
    partitions: int
    replication: int | None
    settings: Mapping[str, str]


class DelayDeclaration(Value):
    """The topics of delayed delivery, as a file declares them.

    `tiers` (28): delays go up to 2^tiers - 1 seconds. `partitions` (12): how many routers can share the work; later it
    can be raised to a multiple. `replication` (the broker's default): copies of each record. `settings` (none): topic
    settings beside those that delays need, such as `min.insync.replicas`.
    """

    tiers: int = Field(MOST_TIERS, ge=1, le=MOST_TIERS)
    partitions: int = Field(PARTITIONS, ge=1)
    replication: int | None = Field(None, ge=1)
    settings: dict[str, str] = Field(default_factory=dict)

    @field_validator("settings")
    @classmethod
    def _keep_ours(cls, value: dict[str, str]) -> dict[str, str]:
        strange = [name for name in value if not re.fullmatch(r"[a-z0-9.]+", name)]
        if strange:
            raise ValueError(f"{', '.join(map(repr, strange))}: no topic setting has such a name")
        fixed = DelayLayout().settings
        wrong = [f"{name}={given}" for name, given in value.items() if fixed.get(name, given) != given]
        if wrong:
            raise ValueError(f"{', '.join(wrong)}: delays need another value, or waiting messages are lost")
        return value


def wanted_topics(declaration: DelayDeclaration) -> list[WantedTopic]:
    """Returns the topics: where messages come in, the tiers, and the routers' dead letters."""
    layout = DelayLayout(declaration.tiers, declaration.partitions)
    return [
        WantedTopic(
            name,
            declaration.partitions,
            declaration.replication,
            {**layout.settings_of(name), **declaration.settings},
        )
        for name in (*layout.topics, DEAD)
    ]


def read_declaration(path: Path | None) -> DelayDeclaration:
    """Reads a declaration; None: the defaults. `InvalidArgument` names the file and the field that is wrong."""
    if path is None:
        return DelayDeclaration()
    try:
        fields = json.loads(path.read_bytes())
        if not isinstance(fields, dict):
            raise InvalidArgument('it must be a JSON object, such as {"tiers": 12}')
        return DelayDeclaration(**fields)
    except OSError as error:
        raise InvalidArgument(f"file: {str(path)!r} can't be read: {error.strerror or error}") from None
    except ValueError as error:
        raise InvalidArgument(f"file: {str(path)!r} isn't JSON: {error}") from None
    except InvalidArgument as error:
        raise InvalidArgument(f"file: {str(path)!r}: {error.message}") from None
