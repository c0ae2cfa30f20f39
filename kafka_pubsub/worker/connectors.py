r"""Connectors: units that a configuration makes of a class. The class is found by an entry point, never by a path.

Example, of a connector of one's own:
    class LinesOptions(ConnectorOptions):
        path: str = Field(description="The file to which bodies are appended.")

    class Lines(Connector[LinesOptions]):
        options_type = LinesOptions

        def declare(self, app: App) -> None:
            @app.subscriber(self.options.subscription, topic=self.options.topic)
            def append(body: bytes) -> None:
                with open(self.options.path, "ab") as file:
                    file.write(body + b"\n")

    # pyproject.toml
    [project.entry-points."kafka_pubsub.connectors"]
    lines = "my_package:Lines"
"""

from __future__ import annotations

import re
import types
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError

from kafka_pubsub.errors import InvalidArgument

if TYPE_CHECKING:
    from kafka_pubsub.handlers.app import App

__all__ = [
    "CLASS",
    "COMMON",
    "GROUP",
    "Connector",
    "ConnectorOptions",
    "Definition",
    "connector_names",
    "definitions",
    "load_connector",
    "make_connector",
    "problems",
]

#: The group of entry points that name connectors.
GROUP = "kafka_pubsub.connectors"
#: The setting that names the class, and those that every configuration may have: they are no options of the class.
CLASS = "connector.class"
TASKS = "tasks.max"
_COMMON = frozenset({CLASS, "name", TASKS})


class ConnectorOptions(BaseModel):
    """The options that each connector has; a class of its own adds more, each with a description."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    subscription: str = Field(description="The subscription whose messages the connector gets.", min_length=1)
    topic: str = Field(
        description="The topic of the subscription, which is made if it is missing.", min_length=1
    )


O = TypeVar("O", bound=ConnectorOptions)  # noqa: E741


class Connector(ABC, Generic[O]):
    """Declares handlers by its options. `options_type`: the class of these. `version`: yours, for people."""

    options_type: ClassVar[type[ConnectorOptions]] = ConnectorOptions
    version: ClassVar[str] = ""

    def __init__(self, options: O) -> None:
        self.options = options

    @abstractmethod
    def declare(self, app: App) -> None:
        """Declares the handlers on an app, which the worker starts and ends."""

    def problem(self) -> str:
        """Returns the trouble that keeps it from its work, for the health; empty, the default: there is none."""
        return ""


@dataclass(frozen=True)
class Definition:
    """A setting, as people and Kafka Connect's tools see it. `default`: None where it is required or has none."""

    name: str
    type: str
    documentation: str
    required: bool
    default: str | None
    values: tuple[str, ...] = ()


#: The settings of every connector.
COMMON = (
    Definition("name", "STRING", "The connector's name: letters, digits, '.', '_' and '-'.", False, None),
    Definition(CLASS, "STRING", "The class, by the name of its entry point.", True, None),
    Definition(
        TASKS, "INT", "Means nothing here: each worker is a task, so more workers are more.", False, "1"
    ),
    Definition(
        "max_restarts", "INT", "Restarts in a row until it gives up; without it there's no end.", False, None
    ),
)


def connector_names() -> list[str]:
    """Returns the names of all connectors that are installed."""
    return sorted({each.name for each in entry_points(group=GROUP)})


def load_connector(name: str) -> type[Connector[Any]]:
    """Returns the class of this name; raises `InvalidArgument`, which says what is wrong."""
    found: EntryPoint | None = next((each for each in entry_points(group=GROUP) if each.name == name), None)
    if found is None:
        there = connector_names()
        near = get_close_matches(name, there, 1)
        advice = f"did you mean {near[0]!r}?" if near else f"installed are {', '.join(there) or 'none'}"
        raise InvalidArgument(f"{CLASS}: there is no connector {name!r}; {advice}")
    try:
        loaded = found.load()
    except Exception as error:
        raise InvalidArgument(
            f"{CLASS}: connector {name!r} ({found.value}) doesn't import: {type(error).__name__}: {error}"
        ) from error
    if not (isinstance(loaded, type) and issubclass(loaded, Connector)):
        raise InvalidArgument(
            f"{CLASS}: {found.value} is no class made from kafka_pubsub.worker.connectors.Connector"
        )
    return loaded


def make_connector(config: Mapping[str, str]) -> Connector[Any]:
    """Returns the connector of a configuration whose secrets are resolved; raises `InvalidArgument` with each error."""
    kind = load_connector(config.get(CLASS, ""))
    wrong = problems(kind, config)
    if wrong:
        texts = [f"{name}: {text}" for name, texts in wrong.items() for text in texts]
        raise InvalidArgument("; ".join(texts))
    return kind(kind.options_type.model_validate(_values(kind, config)))


def problems(kind: type[Connector[Any]], config: Mapping[str, str]) -> dict[str, list[str]]:
    """Returns the errors of a configuration by setting; empty: there are none."""
    wrong: dict[str, list[str]] = {}
    if not re.fullmatch("0*[1-9][0-9]*", config.get(TASKS, "1")):
        wrong[TASKS] = ["a whole number from 1 on"]
    try:
        kind.options_type.model_validate(_values(kind, config))
    except ValidationError as error:
        for each in error.errors(include_url=False, include_input=False, include_context=False):
            name = str(each["loc"][0]) if each["loc"] else CLASS
            wrong.setdefault(name, []).append(_text(kind, name, each["type"], each["msg"]))
    return wrong


def definitions(kind: type[Connector[Any]]) -> list[Definition]:
    """Returns the settings of a class, in their order."""
    found, fields = [], kind.options_type.model_fields
    for name, field in fields.items():
        default = None if field.is_required() else field.get_default(call_default_factory=True)
        found.append(
            Definition(
                name,
                _type_name(field.annotation),
                field.description or "",
                field.is_required(),
                None if default is None else _written(default),
                _choices(field.annotation),
            )
        )
    return found


def _text(kind: type[Connector[Any]], name: str, error: str, message: str) -> str:
    if error == "missing":
        return f"it is missing: {kind.options_type.model_fields[name].description}"
    if error == "extra_forbidden":
        near = get_close_matches(name, kind.options_type.model_fields, 1)
        return "there is no such setting" + (f"; did you mean {near[0]!r}?" if near else "")
    return message.removeprefix("Value error, ")


def _values(kind: type[Connector[Any]], config: Mapping[str, str]) -> dict[str, object]:
    """Returns the options as pydantic reads them: a list stands in a text with commas."""
    fields = kind.options_type.model_fields
    values: dict[str, object] = {}
    for name, value in config.items():
        if name in _COMMON:
            continue
        if name in fields and _type_name(fields[name].annotation) == "LIST":
            values[name] = [each.strip() for each in value.split(",") if each.strip()]
        else:
            values[name] = value
    return values


def _written(default: object) -> str:
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, tuple | list | set | frozenset):
        return ",".join(map(str, default))
    return str(default)


_TYPES: Mapping[object, str] = {bool: "BOOLEAN", int: "INT", float: "DOUBLE", SecretStr: "PASSWORD"}


def _type_name(annotation: object) -> str:
    """Returns Kafka Connect's name for a type."""
    origin = get_origin(annotation)
    if origin in (tuple, list, set, frozenset):
        return "LIST"
    if origin in (Union, types.UnionType):
        return _type_name(next(each for each in get_args(annotation) if each is not type(None)))
    return _TYPES.get(annotation, "STRING")


def _choices(annotation: object) -> tuple[str, ...]:
    return tuple(map(str, get_args(annotation))) if get_origin(annotation) is Literal else ()
