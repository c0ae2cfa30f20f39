"""The file of a worker: which units it runs, as values that were checked.

Rules
1. Everything is checked before a unit starts. An error names the file, the table, the field, and what to write.
2. A field that isn't known is an error: a typing error must not pass for a default.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import TypeGuard

from kafka_pubsub.errors import InvalidArgument
from kafka_pubsub.worker.connectors import CLASS

__all__ = [
    "AppSettings",
    "ConnectorSettings",
    "RestSettings",
    "RouterSettings",
    "SequencerSettings",
    "UnitSettings",
    "parse",
    "read",
    "read_rest",
]

TARGET = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*(:[^\W\d]\w*(\.[^\W\d]\w*)*)?")
NAME = re.compile(r"[\w.-]{1,100}")

EXAMPLE = '[apps] shop = "shop:app"'


@dataclass(frozen=True, kw_only=True)
class AppSettings:
    """An app: `app` is its MODULE:NAME. `max_restarts`: see `Life`."""

    app: str
    max_restarts: int | None = None


@dataclass(frozen=True, kw_only=True)
class RouterSettings:
    """A delay router: `tiers` and `partitions` are those that it makes if there are none; None: its own defaults."""

    tiers: int | None = None
    partitions: int | None = None
    begin_again: bool = False
    max_restarts: int | None = None


@dataclass(frozen=True, kw_only=True)
class SequencerSettings:
    """A sequencer."""

    max_restarts: int | None = None


@dataclass(frozen=True, kw_only=True)
class RestSettings:
    """The keys of the REST interface, as the file has them: names of secrets instead of them."""

    token: str = field(default="", repr=False)
    read_token: str = field(default="", repr=False)
    user: str = ""
    password: str = field(default="", repr=False)
    cert_file: str = ""
    key_file: str = ""


@dataclass(frozen=True, kw_only=True)
class ConnectorSettings:
    """A connector: `config` has its settings as texts, the class among them, and names of secrets instead of them."""

    config: tuple[tuple[str, str], ...]
    max_restarts: int | None = None


UnitSettings = AppSettings | RouterSettings | SequencerSettings | ConnectorSettings

#: What may stand in a field: a check, and the words for it.
Kind = tuple[Callable[[object], bool], str]


def _is_table(value: object) -> TypeGuard[dict[str, object]]:
    return isinstance(value, dict)


def _whole(least: int, most: int | None = None) -> Kind:
    words = f"a whole number from {least}" + (" on" if most is None else f" to {most}")
    return lambda value: type(value) is int and least <= value and (most is None or value <= most), words


_TEXT: Kind = (lambda value: isinstance(value, str) and value != "", "a text in quotes")
_RESTARTS = {"max_restarts": _whole(0)}
_APP: dict[str, Kind] = {
    "app": (
        lambda value: isinstance(value, str) and TARGET.fullmatch(value) is not None,
        'MODULE:NAME in quotes, for example "shop.orders:app"',
    ),
    **_RESTARTS,
}
_ROUTER: dict[str, Kind] = {
    "tiers": _whole(1, 28),
    "partitions": _whole(1),
    "begin_again": (lambda value: isinstance(value, bool), "true or false"),
    **_RESTARTS,
}


def read(path: Path) -> dict[str, UnitSettings]:
    """Returns the units of a file by their names; raises `InvalidArgument`, which says what to change."""
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        raise InvalidArgument(f"{path}: can't be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"{path}: isn't text in UTF-8: {error}") from error
    return parse(text, str(path))


def parse(text: str, file: str) -> dict[str, UnitSettings]:
    """Returns the units of a file's text by their names; `file` is its name in errors."""
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidArgument(f"{file}: isn't TOML: {error}") from error
    _check_names(tables, ("apps", "connectors", "services", "rest"), file, "table")
    _rest(tables, file)
    units: dict[str, UnitSettings] = {}
    for name, value in _table(tables, "apps", file).items():
        units[name] = _app(name, value, f"{file}: [apps] {name}", units)
    for name, value in _table(tables, "connectors", file).items():
        units[name] = _connector(name, value, f"{file}: [connectors.{name}]", units)
    services = _table(tables, "services", file)
    _check_names(services, ("router", "sequencer"), f"{file}: [services]", "service")
    for name, value in services.items():
        where = f"{file}: [services] {name}"
        if name in units:
            raise InvalidArgument(f"{where}: another unit has that name already; give that one another name")
        if (unit := _service(name, value, where)) is not None:
            units[name] = unit
    if not units:
        raise InvalidArgument(f"{file}: names no unit to run; write, for example: {EXAMPLE}")
    return units


def read_rest(path: Path) -> RestSettings:
    """Returns the table `[rest]` of a file that `read` has taken."""
    return _rest(tomllib.loads(path.read_text("utf-8")), str(path))


def _rest(tables: Mapping[str, object], file: str) -> RestSettings:
    fields, where = _table(tables, "rest", file), f"{file}: [rest]"
    _check_fields(fields, dict.fromkeys(RestSettings.__dataclass_fields__, _TEXT), where)
    found = RestSettings(**fields)  # type: ignore[arg-type]  # each field was checked
    if bool(found.user) != bool(found.password):
        raise InvalidArgument(f"{where}: user and password need each other; write both")
    if found.read_token and not (found.token or found.user):
        raise InvalidArgument(
            f"{where}: read_token alone opens nothing for writing; write token, or user and password"
        )
    if bool(found.cert_file) != bool(found.key_file):
        raise InvalidArgument(f"{where}: cert_file and key_file need each other; write both")
    return found


def _table(tables: Mapping[str, object], name: str, file: str) -> dict[str, object]:
    found = tables.get(name, {})
    if not _is_table(found):
        raise InvalidArgument(
            f"{file}: {name!r} is no table; write [{name}] on a line of its own above its fields"
        )
    return found


def _app(name: str, value: object, where: str, before: Mapping[str, UnitSettings]) -> AppSettings:
    _check_name(name, where)
    fields = {"app": value} if isinstance(value, str) else value
    if not _is_table(fields):
        raise InvalidArgument(f'{where}: {value!r} is no app; write {name} = "MODULE:NAME"')
    _check_fields(fields, _APP, where)
    if "app" not in fields:
        raise InvalidArgument(f"{where}: the field 'app' is missing; write {_APP['app'][1]}")
    found = AppSettings(**fields)  # type: ignore[arg-type]  # each field was checked
    full = _full(found.app)
    for other, unit in before.items():
        if isinstance(unit, AppSettings) and _full(unit.app) == full:
            raise InvalidArgument(
                f"{where}: {other} runs {full} already, and an app runs once in a process; "
                "start another worker for more"
            )
    return found


def _connector(name: str, value: object, where: str, before: Mapping[str, UnitSettings]) -> ConnectorSettings:
    _check_name(name, where)
    if name in before:
        raise InvalidArgument(f"{where}: an app has that name already; give one of them another name")
    if not _is_table(value):
        raise InvalidArgument(f"{where}: {value!r} is no table; write [connectors.{name}] above its fields")
    fields = dict(value)
    restarts = fields.pop("max_restarts", None)
    if restarts is not None:
        _check_fields({"max_restarts": restarts}, _RESTARTS, where)
    if not isinstance(fields.get("class"), str):
        raise InvalidArgument(f"{where}: the field 'class' is missing; write, for example, class = \"push\"")
    config = {
        CLASS if field == "class" else field: _text(each, f"{where}: {field}")
        for field, each in fields.items()
    }
    return ConnectorSettings(config=tuple(sorted(config.items())), max_restarts=restarts)  # type: ignore[arg-type]


def _check_name(name: str, where: str) -> None:
    if not NAME.fullmatch(name):
        raise InvalidArgument(
            f"{where}: a name has 1 to 100 letters, digits, '.', '_' and '-'; choose such a one"
        )


def _text(value: object, where: str) -> str:
    """Returns a value as a connector's configuration has it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    if isinstance(value, list) and all(type(each) in (str, int) for each in value):
        return ",".join(map(str, value))
    raise InvalidArgument(
        f"{where} = {value!r} is wrong; write a text, a number, true, false or a list of these"
    )


def _full(target: str) -> str:
    return target if ":" in target else f"{target}:app"


def _service(name: str, value: object, where: str) -> RouterSettings | SequencerSettings | None:
    if value is False:
        return None
    fields = {} if value is True else value
    if not _is_table(fields):
        raise InvalidArgument(f"{where}: {value!r} is neither true, false nor a table; write {name} = true")
    _check_fields(fields, _ROUTER if name == "router" else _RESTARTS, where)
    kind = RouterSettings if name == "router" else SequencerSettings
    return kind(**fields)  # type: ignore[arg-type]  # each field was checked


def _check_fields(fields: Mapping[str, object], kinds: Mapping[str, Kind], where: str) -> None:
    _check_names(fields, tuple(kinds), where, "field")
    for name, value in fields.items():
        is_good, words = kinds[name]
        if not is_good(value):
            raise InvalidArgument(f"{where}: {name} = {value!r} is wrong; write {words}")


def _check_names(found: Mapping[str, object], known: tuple[str, ...], where: str, noun: str) -> None:
    for name in found:
        if name not in known:
            near = get_close_matches(name, known, 1)
            advice = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(map(repr, known))}"
            raise InvalidArgument(f"{where}: there is no {noun} {name!r}; {advice}")
