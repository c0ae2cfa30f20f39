"""A config file in the properties format of Kafka's own tools, such as `kafka-topics.sh --command-config`.

Rules
1. Names are those of Kafka's Java clients (`java_names.py`) or librdkafka's. One that neither knows, and one on which
   a promise rests, are refused: the error has every such line, with the file and the number. The value that such a
   setting has anyway is no error, and `client.id` is left out with a line of the log: other tools need both.
2. A value may stand in another file or in the environment (`references.py`).
3. No error quotes a value: it may be a secret.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Final

from kafka_pubsub.config import Settings
from kafka_pubsub.errors import InvalidArgument
from kafka_pubsub.log.kafka import java_names
from kafka_pubsub.log.kafka.configuration import GivenValue, is_known, is_same_as_ours, refusal_of
from kafka_pubsub.log.kafka.java_properties import Line, parse_properties
from kafka_pubsub.log.kafka.references import PROVIDERS, resolve

__all__ = ["join_config", "read_config_file", "read_java_file"]

_LOGGER = logging.getLogger("kafka_pubsub.kafka")

#: Larger files are no config files.
_MOST_BYTES: Final = 1024 * 1024
_ADDRESS: Final = "bootstrap.servers"
_CLIENT_ID: Final = "client.id"
_PROVIDER_CLASS: Final = re.compile(r"config\.providers\.(\w+)\.class")
_CLASSES: Final = {
    "FileConfigProvider": "file",
    "DirectoryConfigProvider": "directory",
    "EnvVarConfigProvider": "env",
}


def join_config(
    settings: Settings,
    bootstrap: object,
    config: Mapping[str, GivenValue],
    config_file: str | PathLike[str] | None,
) -> dict[str, GivenValue]:
    """Returns all settings of librdkafka: arguments win over the environment, and a setting over one in a file.

    An address that is an argument, or for a file of the environment a variable, wins over the one in the file.
    """
    from_file: dict[str, GivenValue] = {}
    chosen = config_file or settings.config_file
    if chosen:
        from_file.update(read_config_file(chosen))
    if bootstrap is not None or (config_file is None and settings.bootstrap):
        from_file.pop(_ADDRESS, None)
    if config_file is None:
        return {**from_file, **settings.config, **config}
    variables = dict(settings.config)
    if bootstrap is not None:
        variables.pop(_ADDRESS, None)
    return {**variables, **from_file, **config}


def read_config_file(path: str | PathLike[str]) -> dict[str, str]:
    """Returns the settings of a file by librdkafka's names; raises `InvalidArgument`."""
    lines, values, problems = _read(path)
    found: dict[str, str] = {}
    for line in lines:
        if line.name in values:
            _translate(line, values, found, problems)
    _refuse(path, problems)
    return found


def read_java_file(path: str | PathLike[str]) -> dict[str, str]:
    """Returns the settings of a file as they stand there, for a Java client; raises `InvalidArgument`."""
    _, values, problems = _read(path)
    _refuse(path, problems)
    return values


def _refuse(path: str | PathLike[str], problems: Sequence[str]) -> None:
    if problems:
        raise InvalidArgument(f"config file {os.fspath(path)}: {'; '.join(problems)}")


def _read(path: str | PathLike[str]) -> tuple[list[Line], dict[str, str], list[str]]:
    """Returns the lines, the values by name with all references resolved, and what can't be resolved."""
    try:
        lines = list(parse_properties(_text_of(Path(path))))
    except ValueError as error:
        raise InvalidArgument(f"config file {os.fspath(path)}: {error}") from None
    problems: list[str] = []
    values: dict[str, str] = {}
    aliases = dict(PROVIDERS)
    for line in lines:
        if line.name == "config.providers" or _PROVIDER_CLASS.fullmatch(line.name):
            _note_provider(line, aliases, problems)
    for line in lines:
        if not line.name.startswith("config.providers"):
            try:
                values[line.name] = resolve(line.value, aliases)
            except ValueError as error:
                problems.append(f"line {line.number}, {line.name}: {error}")
    return lines, values, problems


def _text_of(path: Path) -> str:
    try:
        with path.open("rb") as file:
            raw = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise InvalidArgument(f"config file {path}: {error.strerror or error}") from None
    if len(raw) > _MOST_BYTES:
        raise InvalidArgument(
            f"config file {path}: has more than {_MOST_BYTES:,} bytes, so it is no config file"
        )
    return raw.decode("latin-1")


def _note_provider(line: Line, aliases: dict[str, str], problems: list[str]) -> None:
    named = _PROVIDER_CLASS.fullmatch(line.name)
    if named is None:
        return
    kind = _CLASSES.get(line.value.rpartition(".")[2])
    if kind is None:
        problems.append(
            f"line {line.number}, {line.name}: only Kafka's own are known here: {', '.join(_CLASSES)}"
        )
    else:
        aliases[named[1]] = kind


def _translate(line: Line, values: Mapping[str, str], found: dict[str, str], problems: list[str]) -> None:
    def complain(text: str) -> None:
        problems.append(f"line {line.number}, {line.name}: {text}")

    try:
        here = java_names.translate(line.name, values[line.name], values)
    except ValueError as error:
        complain(str(error))
        return
    for name, value in here.items():
        refused = refusal_of(name)
        if name == _CLIENT_ID:
            _LOGGER.info(
                "line %d of the config file, %s, is left out: kafka_pubsub sets it", line.number, name
            )
        elif refused is not None and is_same_as_ours(name, value):
            continue
        elif refused is not None:
            complain(f"can't be set: {refused}")
        elif not is_known(name):
            complain("neither librdkafka nor this package knows it: remove the line, or mend its name")
        else:
            found[name] = value
