"""Values that a configuration names and doesn't hold: `${env:NAME}` and `${file:PATH}`.

They are resolved when a unit starts, so that no catalog, answer, log or `repr` ever has them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from kafka_pubsub.errors import InvalidArgument

__all__ = ["names_value", "only_names_values", "resolve"]

_NAMED = re.compile(r"\$\{(env|file):([^}]+)\}")


def resolve(values: Mapping[str, str], environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Returns the values with all that they name; raises `InvalidArgument`, which has the setting and the name.

    `environment`: None, the default, is that of this process.
    """
    names = os.environ if environment is None else environment
    return {setting: _resolved(setting, value, names) for setting, value in values.items()}


def names_value(value: str) -> bool:
    """Returns whether a value names another one."""
    return _NAMED.search(value) is not None


def only_names_values(value: str) -> bool:
    """Returns whether a value names others and holds nothing itself."""
    return value != "" and _NAMED.sub("", value) == ""


def _resolved(setting: str, value: str, environment: Mapping[str, str]) -> str:
    return _NAMED.sub(lambda found: _value(setting, found[1], found[2], environment), value)


def _value(setting: str, kind: str, name: str, environment: Mapping[str, str]) -> str:
    if kind == "env":
        if name not in environment:
            raise InvalidArgument(
                f"{setting}: the variable {name} isn't set in the worker's environment; set it"
            )
        return environment[name]
    try:
        return Path(name).read_text("utf-8").removesuffix("\n")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it isn't text in UTF-8"
        raise InvalidArgument(
            f"{setting}: the file {name} can't be read: {why}. Put it there, and let the worker's user read it"
        ) from None
