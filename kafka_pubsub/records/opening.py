"""Opens the registry or folder that a program names as the place of its schemas."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from os import PathLike
from pathlib import Path

from kafka_pubsub.errors import InvalidArgument
from kafka_pubsub.log.kafka.references import resolve
from kafka_pubsub.records.folder import Folder
from kafka_pubsub.records.records import Records
from kafka_pubsub.records.registry import Registry, RegistryConfig

__all__ = ["SchemaPlace", "open_records", "open_source"]

#: An address without its scheme.
_ADDRESS = re.compile(r"[^/\\]+:\d+")

#: Where schemas lie: an address, settings of a registry's client, or a folder.
SchemaPlace = str | PathLike[str] | RegistryConfig


def open_records(schemas: SchemaPlace | None) -> Records:
    """Returns the records of a client; `schemas` is that of `PubSub`, or its text in the environment."""
    return Records(None if schemas is None or schemas == "" else open_source(schemas))


def open_source(schemas: SchemaPlace) -> Registry | Folder:
    """Returns the registry or folder that `schemas` names."""
    if isinstance(schemas, Mapping):
        return Registry(_resolved(schemas))
    text = str(schemas)
    if text.startswith("{"):
        return Registry(_resolved(_parse(text)))
    if "://" in text:
        return Registry({"url": text})
    if _ADDRESS.fullmatch(text):
        raise InvalidArgument("schemas: begin a registry's address with http:// or https://")
    return Folder(Path(text))


def _resolved(settings: RegistryConfig) -> RegistryConfig:
    """Returns settings of which a value may stand in a file or a variable."""
    found = dict(settings)
    for name, value in settings.items():
        try:
            found[name] = resolve(value) if isinstance(value, str) else value
        except ValueError as error:
            raise InvalidArgument(f"schemas: {name}: {error}") from None
    return found


def _parse(text: str) -> RegistryConfig:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        # The text isn't shown: it may hold a password.
        raise InvalidArgument(
            'schemas: the settings must be a JSON object, such as {"url": "https://registry:8081", '
            '"basic.auth.user.info": "NAME:PASSWORD"}'
        )
    return found
