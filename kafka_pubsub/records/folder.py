"""Schemas in a folder: `FOLDER/<subject>/v1.avsc`, `v2.avsc` and so on, which is how our own lie in `schemas/`.

Rules
1. Numbers begin at 1 and have no gap; all of a subject have one format, which the files' ending says (`.avsc`, `.json`,
   `.proto`).
2. A file is never edited once records were written by it. `released.json` beside the files has the hash of each that
   was released; a file that has another hash now is refused.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from kafka_pubsub.errors import FailedPrecondition, NotFound, SchemaError
from kafka_pubsub.records.codec import Codec, Format
from kafka_pubsub.records.frames import SchemaId, check_subject
from kafka_pubsub.records.parsing import parse_schema
from kafka_pubsub.records.source import Registered, same_schema

__all__ = ["ENDINGS", "RELEASED", "Folder", "number_of"]

#: The format by the ending of a file.
ENDINGS: Final[Mapping[str, Format]] = {".avsc": "avro", ".json": "json", ".proto": "protobuf"}
#: The file with the hashes of those that were released.
RELEASED: Final = "released.json"

_FILE = re.compile(r"v([1-9]\d{0,9})(\.avsc|\.json|\.proto)")


class Folder:
    """Numbered schemas in a folder."""

    numbers_alone = False

    def __init__(self, path: Path) -> None:
        self.path = path
        # By subject and number: the files don't change.
        self._codecs: dict[tuple[str, int], Codec] = {}

    def __str__(self) -> str:
        return f"folder {self.path}"

    def subject_of(self, topic: str) -> str:
        """Returns the topic's own name."""
        return topic

    def subjects(self) -> list[str]:
        """Returns the subjects that have a schema."""
        self._check()
        return sorted(each.name for each in self.path.iterdir() if each.is_dir() and _numbered(each))

    def numbers(self, subject: str) -> list[int]:
        """Returns the numbers of a subject's schemas, from 1; raises `NotFound` if it has none."""
        return list(self._files(subject))

    def read(self, subject: str, number: int) -> tuple[Format, str]:
        """Returns the format and the text of a schema."""
        files = self._files(subject)
        if number not in files:
            raise FailedPrecondition(
                f"schema {subject}/{number} isn't in the {self}, whose last is v{len(files)}: ship the folder to "
                "readers before publishers"
            )
        file = files[number]
        try:
            text = file.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise FailedPrecondition(f"schema: {file} can't be read: {error}") from error
        known = self._released(file.parent).get(file.name)
        if known is not None and known != hash_of(text):
            raise SchemaError(
                f"schema: {file} was edited after it was released, so bodies that were written by it can't be read: "
                f"take the edit back, and write the change into v{len(files) + 1}{file.suffix}"
            )
        return ENDINGS[file.suffix], text

    def knows(self, schema: SchemaId) -> bool:
        """Returns whether the file was read before."""
        return (schema.subject, schema.number) in self._codecs

    def find(self, schema: SchemaId) -> Codec:
        """Returns the schema that a message names."""
        if schema.subject is None:
            raise FailedPrecondition(
                f"schema {schema} is a number in a registry, and the schemas are in the {self}: give the registry's "
                "address"
            )
        known = self._codecs.get((schema.subject, schema.number))
        try:
            return known or self._parse(schema.subject, schema.number)
        except NotFound as error:
            raise FailedPrecondition(
                f"schema {schema} isn't in the {self}, which has no sub-folder {schema.subject}: ship the folder to "
                "readers before publishers"
            ) from error

    def latest(self, subject: str) -> Registered:
        """Returns the last schema of a subject."""
        number = self.numbers(subject)[-1]
        return Registered(SchemaId(number, subject), self._parse(subject, number))

    def look_up(self, subject: str, codec: Codec) -> Registered:
        """Returns the number of a schema; raises `NotFound` if no file of the subject has it."""
        for number in reversed(self.numbers(subject)):
            found = self._parse(subject, number)
            if same_schema(found, codec):
                return Registered(SchemaId(number, subject), codec)
        last = self.numbers(subject)[-1]
        raise NotFound(
            f"schema: it is none of v1 to v{last} of {subject!r} in the {self}: write it to v{last + 1}, and let "
            "`kafka-pubsub schema check` compare it with the last"
        )

    def register(self, subject: str, codec: Codec) -> Registered:
        """Looks the schema up: files are written by people, and shipped with the program."""
        return self.look_up(subject, codec)

    def release(self, subject: str, last: int | None = None) -> list[str]:
        """Writes the hashes of a subject's files up to `last` (None: all); returns the names of those that are new."""
        files = {
            number: file for number, file in self._files(subject).items() if last is None or number <= last
        }
        known = self._released(self.path / subject)
        for number in files:
            self.read(subject, number)
        now = {**known, **{file.name: hash_of(file.read_text("utf-8")) for file in files.values()}}
        (self.path / subject / RELEASED).write_text(json.dumps(now, indent=2) + "\n", "utf-8")
        return [name for name in now if name not in known]

    def close(self) -> None:
        """Has nothing to close."""

    def _parse(self, subject: str, number: int) -> Codec:
        known = self._codecs.get((subject, number))
        if known is None:
            format_, text = self.read(subject, number)
            try:
                known = parse_schema(format_, text)
            except SchemaError as error:
                raise SchemaError(f"{self._files(subject)[number]}: {error.message}") from error
            self._codecs[subject, number] = known
        return known

    def _files(self, subject: str) -> dict[int, Path]:
        """Returns a subject's files by their numbers, in order."""
        self._check()
        folder = self.path / check_subject(subject)
        found = _numbered(folder) if folder.is_dir() else []
        if not found:
            raise NotFound(
                f"schema: {folder} has no file v1.avsc, v1.json or v1.proto: write the schema there"
            )
        files = dict(sorted(found))
        if len(files) != len(found) or list(files) != list(range(1, len(files) + 1)):
            raise FailedPrecondition(
                f"schema: the numbers in {folder} must be 1, 2, 3 and so on, each once, and are "
                f"{', '.join(str(number) for number, _ in sorted(found))}"
            )
        if len({file.suffix for file in files.values()}) > 1:
            raise FailedPrecondition(
                f"schema: the files in {folder} have several formats: take a folder for each"
            )
        return files

    def _check(self) -> None:
        if not self.path.is_dir():
            raise FailedPrecondition(
                f"schemas: there is no folder {self.path}: make it, or name the one that has the schemas"
            )

    def _released(self, folder: Path) -> Mapping[str, str]:
        file = folder / RELEASED
        if not file.exists():
            return {}
        try:
            found = json.loads(file.read_text("utf-8"))
            return {str(name): str(text) for name, text in found.items()}
        except (ValueError, AttributeError) as error:
            raise FailedPrecondition(
                f"schema: {file} isn't an object of file names and hashes ({error}): take the edit back"
            ) from error


def hash_of(text: str) -> str:
    """Returns the hash of a schema's text."""
    return hashlib.sha256(text.encode()).hexdigest()


def number_of(file: Path) -> int | None:
    """Returns the number in the name of a version's file; None: it isn't named like one."""
    found = _FILE.fullmatch(file.name)
    return None if found is None else int(found[1])


def _numbered(folder: Path) -> list[tuple[int, Path]]:
    return [(number, each) for each in folder.iterdir() if (number := number_of(each)) is not None]
