"""The rule that gives each input line its ordering key."""

from __future__ import annotations

import json
from dataclasses import dataclass

import click

from kafka_pubsub.errors import InvalidArgument

__all__ = ["KeyRule"]


@dataclass(frozen=True)
class KeyRule:
    """A rule for keys: one key for all lines, a field of the line's JSON, the text before a separator, or no key."""

    key: str | None = None
    field: str | None = None
    separator: bytes | None = None

    @classmethod
    def of(cls, key: str | None, field: str | None, separator: str | None) -> KeyRule:
        """Returns the rule that the options name; raises an error if more than one of them is given."""
        if sum(option is not None for option in (key, field, separator)) > 1:
            raise click.UsageError("--key, --key-field and --key-separator exclude each other: give one")
        if separator == "":
            raise click.BadParameter("the separator is empty", param_hint="--key-separator")
        return cls(key, field, None if separator is None else separator.encode())

    def split(self, line: bytes, number: int) -> tuple[str | None, bytes]:
        """Returns the line's ordering key, and the data to publish."""
        if self.separator is not None:
            raw, found, data = line.partition(self.separator)
            if not found:
                raise InvalidArgument(
                    f"line {number}: no {self.separator.decode()!r} that ends a key (--key-separator)"
                )
            return self._text(raw, number), data
        if self.field is not None:
            return self._from_json(line, self.field, number), line
        return self.key, line

    @staticmethod
    def _text(raw: bytes, number: int) -> str:
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError:
            raise InvalidArgument(f"line {number}: its key {raw[:40]!r} isn't UTF-8") from None

    @staticmethod
    def _from_json(line: bytes, field: str, number: int) -> str:
        try:
            value: object = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InvalidArgument(
                f"line {number}: not JSON, so it has no field {field!r} (--key-field): {error}"
            ) from None
        for name in field.split("."):
            if not isinstance(value, dict) or name not in value:
                raise InvalidArgument(f"line {number}: no field {field!r} (--key-field)")
            value = value[name]
        if isinstance(value, bool) or not isinstance(value, (str, int)):
            raise InvalidArgument(
                f"line {number}: field {field!r} is {json.dumps(value)[:40]}; a key is text or a whole number"
            )
        return str(value)
