"""Finds an app by the name of its module, as a command line names it: `shop`, or `shop.app:handlers`."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from types import ModuleType

from kafka_pubsub.errors import InvalidArgument
from kafka_pubsub.handlers.app import App

__all__ = ["load_app"]


def load_app(target: str) -> App:
    """Imports the module from the working directory or the path, and returns the app in it.

    `target` is MODULE, whose app has the name `app`, or MODULE:NAME. Raises `InvalidArgument`, which says what is
    wrong.
    """
    name, _, attribute = target.partition(":")
    attribute = attribute or "app"
    if not name or name.endswith(".py") or "/" in name:
        meant = name.removesuffix(".py").removeprefix("./").replace("/", ".").strip(".") or "shop"
        raise InvalidArgument(
            f"{target!r} is no module: write MODULE:NAME as in Python, such as {meant}:{attribute}"
        )
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    module = _import(name)
    found: object = module
    for part in attribute.split("."):
        found = getattr(found, part, None)
    if isinstance(found, App):
        return found
    apps = [key for key, value in vars(module).items() if isinstance(value, App)]
    have = (
        f"; it has {', '.join(f'{name}:{each}' for each in apps)}" if apps else ": write `app = App()` in it"
    )
    what = "isn't there" if found is None else f"is {type(found).__name__}, not an App"
    raise InvalidArgument(f"{attribute!r} in module {name!r} {what}{have}")


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            raise InvalidArgument(
                f"there is no module {name!r} in {os.getcwd()} or on the path: run from the directory that has it"
            ) from error
        raise InvalidArgument(f"module {name!r} doesn't import: {_last(error)}") from error
    except Exception as error:
        raise InvalidArgument(f"module {name!r} doesn't import: {_last(error)}") from error


def _last(error: Exception) -> str:
    """Returns the error with the place that raised it."""
    frames = [each for each in traceback.extract_tb(error.__traceback__) if "importlib" not in each.filename]
    place = f" in {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}: {error}{place}"
