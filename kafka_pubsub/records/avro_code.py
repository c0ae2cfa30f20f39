"""Makes a function of an Avro schema that reads bodies by it: Python code for this one schema.

Theory. fastavro reads a body by calls of a file, one or more for each value. Code that is made for a schema reads the
bytes in place, without a call for most values, and takes about half the time.

Rules
1. The function accepts no body that fastavro refuses, and returns what fastavro returns. For any other body it raises
   an error or returns another end than the body's, and the caller asks fastavro.
2. A count in a body is not trusted: each item takes a byte (`limits.check_avro` sees to it), so a loop ends with the
   body.
3. Text of a schema is in the code only as a literal.
4. A schema that is large or deep has no function, and fastavro reads its bodies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from struct import Struct
from typing import Any

from fastavro.read import LOGICAL_READERS

from kafka_pubsub.records.limits import Node

__all__ = ["Read", "make_reader"]

#: Reads the value that begins at a place of a body; returns it and the place behind it.
Read = Callable[[bytes, int], tuple[object, int]]

#: The schemas in a schema for which code is made, those of a named schema once for each use; and characters of code.
_MOST_PARTS, _MOST_CHARACTERS = 300, 200_000
#: Arrays, maps and unions inside of each other: Python allows 20 loops, and an array takes two.
_MOST_DEPTH = 8
_FRACTIONS = {"float": Struct("<f"), "double": Struct("<d")}


class _NotMadeError(Exception):
    """No code is made for this schema."""


def make_reader(node: Node, named: Mapping[str, Any]) -> Read | None:
    """Returns the function that reads values of a schema in fastavro's form; None: fastavro reads them (rule 4).

    `named` are the schemas that it names. `limits.check_avro` must have accepted the schema.
    """
    code = _Code(named)
    try:
        code.read(node, "value", 1, 0)
    except _NotMadeError:
        return None
    source = "\n".join(["def read(body, at):", *code.lines, " return value, at"])
    names = {"more": _read_more, **code.constants}
    exec(compile(source, "<reader of an Avro schema>", "exec"), names)  # rule 3
    made: Read = names["read"]
    return made


def _read_more(body: bytes, at: int, number: int) -> tuple[int, int]:
    """Reads the rest of a number of which two bytes were read; the second says that more follow."""
    number -= 1 << 14
    for shift in range(14, 70, 7):
        byte = body[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            if number >> 64:
                break
            return number, at
    raise ValueError("a number has more than 64 bits")


class _Code:
    """The lines of a function. `number` is the last number that was read, in the form in which bodies have it."""

    def __init__(self, named: Mapping[str, Any]) -> None:
        self.lines: list[str] = []
        self.constants: dict[str, Any] = {}
        self._named = named
        self._parts = self._variables = self._characters = 0

    def read(self, node: Node, into: str, indent: int, depth: int) -> None:
        """Adds the lines that read a value of a schema into a variable."""
        self._parts += 1
        if self._parts > _MOST_PARTS or depth > _MOST_DEPTH:
            raise _NotMadeError
        if isinstance(node, list):
            self._read_union(node, into, indent, depth)
        elif isinstance(node, str):
            if node in self._named:
                self.read(self._named[node], into, indent, depth)
            else:
                self._read_kind(node, {}, into, indent, depth)
        else:
            self._read_kind(node["type"], node, into, indent, depth)
            self._convert(node, into, indent)

    def _convert(self, node: Node, into: str, indent: int) -> None:
        """Adds the call of the function that fastavro has for a logical type."""
        convert = LOGICAL_READERS.get(f"{node['type']}-{node.get('logicalType')}")
        if convert is not None:
            self._add(indent, f"{into} = {self._constant(convert)}({into}, {self._constant(node)}, None)")

    def _read_kind(self, kind: Node, node: Node, into: str, indent: int, depth: int) -> None:
        if kind == "array":
            self._read_items(node["items"], into, indent, depth)
        elif kind == "map":
            self._read_entries(node["values"], into, indent, depth)
        elif kind in ("record", "error"):
            self._read_record(node, into, indent, depth)
        else:
            self._read_scalar(kind, node, into, indent)

    def _read_scalar(self, kind: Node, node: Node, into: str, indent: int) -> None:
        if kind == "null":
            self._add(indent, f"{into} = None")
        elif kind == "boolean":
            self._add(indent, f"{into} = body[at] != 0", "at += 1")
        elif kind in ("int", "long"):
            self._read_number(indent)
            self._add(indent, f"{into} = (number >> 1) ^ -(number & 1)")
        elif kind in ("float", "double"):
            unpack = self._constant(_FRACTIONS[kind].unpack_from)
            self._add(indent, f"{into} = {unpack}(body, at)[0]", f"at += {_FRACTIONS[kind].size}")
        elif kind in ("string", "bytes"):
            self._read_text(into, ".decode()" if kind == "string" else "", indent)
        elif kind == "fixed":
            self._add(indent, f"end = at + {int(node['size'])}", "if end > len(body): raise EOFError")
            self._add(indent, f"{into} = body[at:end]", "at = end")
        elif kind == "enum":
            self._read_number(indent)
            self._refuse_negative(indent)
            self._add(indent, f"{into} = {self._constant(node['symbols'])}[number >> 1]")
        else:
            raise _NotMadeError

    def _read_number(self, indent: int) -> None:
        # Most numbers have one byte or two.
        self._add(indent, "number = body[at]", "at += 1", "if number > 127:")
        self._add(indent + 1, "byte = body[at]", "at += 1", "number += (byte << 7) - 128")
        self._add(indent + 1, "if byte > 127: number, at = more(body, at, number)")

    def _refuse_negative(self, indent: int) -> None:
        self._add(indent, "if number & 1: raise ValueError")

    def _read_text(self, into: str, decode: str, indent: int) -> None:
        self._read_number(indent)
        self._refuse_negative(indent)
        self._add(indent, "end = at + (number >> 1)", f"{into} = body[at:end]{decode}", "at = end")

    def _read_union(self, node: list[Any], into: str, indent: int, depth: int) -> None:
        self._read_number(indent)
        for place, each in enumerate(node):
            self._add(indent, f"{'el' if place else ''}if number == {2 * place}:")
            self.read(each, into, indent + 1, depth + 1)
        self._add(indent, "else: raise ValueError" if node else "raise ValueError")

    def _read_items(self, item: Node, into: str, indent: int, depth: int) -> None:
        value = self._variable()
        self._add(indent, f"{into} = []")
        self._begin_block(indent)
        self.read(item, value, indent + 2, depth + 1)
        self._add(indent + 2, f"{into}.append({value})")

    def _read_entries(self, item: Node, into: str, indent: int, depth: int) -> None:
        key, value = self._variable(), self._variable()
        self._add(indent, f"{into} = {{}}")
        self._begin_block(indent)
        self._read_text(key, ".decode()", indent + 2)
        self.read(item, value, indent + 2, depth + 1)
        self._add(indent + 2, f"{into}[{key}] = {value}")

    def _begin_block(self, indent: int) -> None:
        """Adds the loops over blocks and their items; a negative number of items has the block's size behind it."""
        self._add(indent, "while True:")
        self._read_number(indent + 1)
        self._add(indent + 1, "if not number: break", "count = (number + 1) >> 1", "if number & 1:")
        self._read_number(indent + 2)
        self._add(indent + 1, "for _ in range(count):")

    def _read_record(self, node: Node, into: str, indent: int, depth: int) -> None:
        fields = []
        for each in node["fields"]:
            value = self._variable()
            self.read(each["type"], value, indent, depth)
            fields.append(f"{each['name']!r}: {value}")
        self._add(indent, f"{into} = {{{', '.join(fields)}}}")

    def _variable(self) -> str:
        self._variables += 1
        return f"value_{self._variables}"

    def _constant(self, value: object) -> str:
        name = f"constant_{len(self.constants)}"
        self.constants[name] = value
        return name

    def _add(self, indent: int, *lines: str) -> None:
        self.lines.extend(" " * indent + line for line in lines)
        self._characters += sum(map(len, lines))
        if self._characters > _MOST_CHARACTERS:
            raise _NotMadeError
