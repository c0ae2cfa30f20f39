"""The declaration of the topics of delayed delivery: a small JSON file, and the topics that it stands for.

Rules
1. What isn't in the file has its default.
2. Names and settings come from `core/delays/layout.py`, which is what routers check.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from kafka_pubsub.config import DelayDeclaration
from kafka_pubsub.core.delays.layout import DEAD, DelayLayout
from kafka_pubsub.errors import InvalidArgument

__all__ = ["WantedTopic", "read_declaration", "wanted_topics"]


class WantedTopic(NamedTuple):
    """A topic as the declaration wants it; `replication` None: the broker's default."""

    name: str
    partitions: int
    replication: int | None
    settings: Mapping[str, str]


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
