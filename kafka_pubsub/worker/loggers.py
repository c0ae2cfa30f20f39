"""Shows and changes the levels of this process's loggers, in Kafka Connect's words."""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

__all__ = ["change_logger", "list_loggers", "show_logger"]

#: Connect's names of levels that Python has under another name.
_LEVELS = {
    "TRACE": logging.DEBUG,
    "WARN": logging.WARNING,
    "FATAL": logging.CRITICAL,
    "OFF": logging.CRITICAL + 10,
}
_SAME = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
_NAMES = {logging.WARNING: "WARN", logging.CRITICAL: "FATAL", logging.CRITICAL + 10: "OFF"}
#: When the level of each logger was last changed here, in milliseconds since 1970.
_changed: dict[str, int] = {}
_lock = threading.Lock()


def list_loggers() -> dict[str, Any]:
    """Returns the loggers that have a level of their own, by name; the root is among them."""
    names = ["root", *sorted(_known())]
    return {name: _shown(name) for name in names if name == "root" or logging.getLogger(name).level}


def show_logger(name: str) -> dict[str, Any] | None:
    """Returns the level of a logger, which may be that of one above; None: there is no such logger."""
    return _shown(name) if name == "root" or name in _known() else None


def change_logger(name: str, level: str) -> list[str] | None:
    """Sets a level; returns the loggers that have it now: this one and all below it. None: there is no such level."""
    text = level.upper()
    if text not in _LEVELS and text not in _SAME:
        return None
    number = _LEVELS[text] if text in _LEVELS else logging.getLevelNamesMapping()[text]
    known = _known()
    below = sorted(known) if name == "root" else sorted(each for each in known if each.startswith(f"{name}."))
    names = [name, *below]
    with _lock:
        for each in names:
            _logger(each).setLevel(number)
            _changed[each] = int(time.time() * 1000)
    return names


def _known() -> list[str]:
    loggers = logging.root.manager.loggerDict.copy()
    return [name for name, each in loggers.items() if isinstance(each, logging.Logger)]


def _logger(name: str) -> logging.Logger:
    return logging.getLogger() if name == "root" else logging.getLogger(name)


def _shown(name: str) -> dict[str, Any]:
    level = _logger(name).getEffectiveLevel()
    return {"level": _NAMES.get(level, logging.getLevelName(level)), "last_modified": _changed.get(name)}
