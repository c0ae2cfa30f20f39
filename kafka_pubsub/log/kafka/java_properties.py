r"""Reads the text formats of Kafka's own tools: properties files, and the logins (JAAS) inside of them.

Rules
1. A line is read as Java reads it: comments, three kinds of separators, lines that go on in the next, escapes.
2. Java takes these files for Latin-1, editors write UTF-8: a character beyond ASCII has to be written as `\u00e4`.
3. Escapes in a login are those of Java's `StreamTokenizer`: named ones, and up to three octal digits; `\u` isn't one.
4. No text of an error quotes a value, because it may be a secret.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

__all__ = ["Line", "Login", "parse_login", "parse_properties"]

_ESCAPE: Final = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|(.)|$)", re.DOTALL)
_NAMED: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_LOGIN_ESCAPE: Final = re.compile(r"\\(?:([0-3][0-7]{0,2}|[4-7][0-7]?)|(.))", re.DOTALL)
_NAMED_IN_LOGINS: Final = {**_NAMED, "a": "\a", "b": "\b", "v": "\v"}
#: A name ends at the first blank, `=` or `:` without a backslash before it.
_NAME: Final = re.compile(r"(?:\\.|[^\\=:\s])*", re.DOTALL)
_SEPARATOR: Final = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")

_OPTION: Final = re.compile(
    r"""([\w.]+)\s*=\s*(?:"((?:\\.|[^"\\])*)"|'((?:\\.|[^'\\])*)'|([^\s;"']+))\s*""", re.DOTALL
)
_HEAD: Final = re.compile(r"\s*([\w.$]+)\s+(?i:required|requisite|sufficient|optional)\b\s*")


class Line(NamedTuple):
    """A setting and the number of the line on which it begins."""

    number: int
    name: str
    value: str


class Login(NamedTuple):
    """A login module, by the last part of its class's name, and its options."""

    module: str
    options: dict[str, str]


def parse_properties(text: str) -> Iterator[Line]:
    """Yields the settings of a properties file; raises `ValueError`, which names a line that can't be read."""
    for number, line in _logical_lines(text):
        if not line.isascii():
            raise ValueError(
                f"line {number} has a character beyond ASCII, which Java and editors store differently: write it as "
                "\\uXXXX, such as \\u00e4"
            )
        found = _NAME.match(line)
        assert found is not None
        separator = _SEPARATOR.match(line, found.end())
        assert separator is not None
        yield Line(number, _unescape(found[0]), _unescape(line[separator.end() :]))


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yields each line with its number, joined with those in which it goes on; no comments and no empty lines."""
    parts: list[str] = []
    began = 0
    for number, natural in enumerate(re.split(r"\r\n|\r|\n", text), 1):
        line = natural.lstrip(" \t\f")
        if not parts and (not line or line[0] in "#!"):
            continue
        began = began if parts else number
        goes_on = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        parts.append(line[:-1] if goes_on else line)
        if not goes_on:
            yield began, "".join(parts)
            parts = []
    if parts:
        yield began, "".join(parts)


def _unescape(text: str) -> str:
    def meaning(found: re.Match[str]) -> str:
        if found[1]:
            return chr(int(found[1], 16))
        return _NAMED.get(found[2] or "", found[2] or "")

    return _ESCAPE.sub(meaning, text)


def _unescape_login(text: str) -> str:
    def meaning(found: re.Match[str]) -> str:
        return chr(int(found[1], 8)) if found[1] else _NAMED_IN_LOGINS.get(found[2], found[2])

    return _LOGIN_ESCAPE.sub(meaning, text)


def parse_login(text: str) -> Login:
    """Returns the login of `sasl.jaas.config`; raises `ValueError`."""
    head = _HEAD.match(text)
    if head is None:
        raise ValueError('write MODULE required name="value" ...;')
    options: dict[str, str] = {}
    place = head.end()
    while (found := _OPTION.match(text, place)) is not None:
        quoted = found[2] if found[2] is not None else found[3]
        options[found[1]] = found[4] if quoted is None else _unescape_login(quoted)
        place = found.end()
    if text[place:].strip() != ";":
        names = f" after the option {list(options)[-1]!r}" if options else ""
        raise ValueError(
            f'can\'t be read on{names}: write MODULE required name="value" ...; end with a semicolon'
        )
    return Login(head[1].rpartition(".")[2], options)
