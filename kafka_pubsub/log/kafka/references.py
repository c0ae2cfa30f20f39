"""References in settings to another file or to the environment, as with Kafka's config providers.

`${file:PATH:NAME}` is a value of a properties file, `${directory:FOLDER:FILE}` the whole text of a file, `${env:NAME}`
a variable.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from kafka_pubsub.log.kafka.java_properties import parse_properties

__all__ = ["PROVIDERS", "resolve"]

_REFERENCE: Final = re.compile(r"\$\{(\w+):([^}]*)\}")
#: The providers, each by its own name.
PROVIDERS: Final[Mapping[str, str]] = {name: name for name in ("file", "directory", "env")}


def resolve(value: str, aliases: Mapping[str, str] = PROVIDERS) -> str:
    """Returns a value with what its references stand for; raises `ValueError`, which quotes no value.

    `aliases` are the providers by the names that are used for them (default: their own names). A text in which no
    provider is named stays as it is.
    """

    def meaning(found: re.Match[str]) -> str:
        kind = aliases.get(found[1])
        if kind is None:
            return found[0]
        place, _, name = found[2].rpartition(":")
        if kind == "env":
            if found[2] not in os.environ:
                raise ValueError(f"the environment has no variable {found[2]}")
            return os.environ[found[2]]
        if not place or not name:
            raise ValueError("write ${file:PATH:NAME}, ${directory:FOLDER:FILE} or ${env:NAME}")
        return _of_folder(place, name) if kind == "directory" else _of_file(place, name)

    return _REFERENCE.sub(meaning, value)


def _of_folder(folder: str, name: str) -> str:
    try:
        # An editor, and `echo`, end a file with a line's end that is no part of a password.
        return (Path(folder) / name).read_text("utf-8").rstrip("\r\n")
    except OSError as error:
        raise ValueError(f"can't read {folder}/{name}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{folder}/{name} isn't text in UTF-8") from None


def _of_file(path: str, name: str) -> str:
    try:
        lines = parse_properties(Path(path).read_text("latin-1"))
        values = {line.name: line.value for line in lines}
    except OSError as error:
        raise ValueError(f"can't read {path}: {error.strerror or error}") from None
    except ValueError as error:
        raise ValueError(f"{path}, {error}") from None
    if name not in values:
        raise ValueError(f"{path} has no {name}")
    return values[name]
