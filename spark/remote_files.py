"""Reads, lists and writes files over Spark Connect with Spark's own sources, because only Spark reaches the files.

Theory. Spark can't write a file of a given name, only a directory of that name with a file in it. This module writes a
text in that form. `Files` reads it as well, so one checkpoint works with and without Spark Connect.

Rules
1. Nothing is deleted, because Spark has no command for that. An error names what a person must delete.
2. If two jobs create the same text at once, its directory has two files, and a reader refuses their joined text.
3. `root` is absolute and names its file system: Spark's error about a path that doesn't exist has it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from kafka_pubsub.errors import AlreadyExists, FailedPrecondition, InvalidArgument

from .files import PART, Files, OneFile
from .spark_session import first_line, is_remote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["file_at", "files_below"]


def files_below(spark: SparkSession, root: str) -> Files:
    """Gives access to the files below a directory, with and without Spark Connect."""
    return _RemoteFiles(spark, root) if is_remote(spark) else Files(spark, root)


def file_at(spark: SparkSession, path: str, option: str) -> OneFile | _LocalFile:
    """Prepares a file that a job writes at its end; over Spark Connect it is a file of this machine."""
    return _LocalFile(path, option) if is_remote(spark) else OneFile(spark, path, option)


class _RemoteFiles(Files):
    """Files that only Spark can reach."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        self.spark = spark
        self.root = root.rstrip("/") or root
        self.root = self._qualified()

    def __getstate__(self) -> dict[str, Any]:
        # A process of the server handles a stream's batches, and has its own object for this session.
        return {"root": self.root}

    def __setstate__(self, state: dict[str, Any]) -> None:
        from .spark_session import session_here

        self.spark, self.root = session_here(), state["root"]

    def _qualified(self) -> str:
        nothing = f"none-{uuid4().hex}"
        try:
            _ = self._listed(nothing).schema
        except Exception as error:
            if found := re.search(rf"exist: (.+)/{nothing}", str(error)):
                return found[1]
            raise InvalidArgument(f"path {self.root!r} can't be used: {first_line(error)}") from error
        return self.root

    def exists(self, path: str = "") -> bool:
        """Returns whether there is such a file or directory."""
        try:
            # For a schema Spark only checks that the path exists.
            _ = self._listed(path).schema
        except Exception as error:
            if "PATH_NOT_FOUND" not in str(error):
                raise InvalidArgument(f"path {self.root!r} can't be used: {first_line(error)}") from error
            return False
        return True

    def read(self, path: str) -> str | None:
        """Returns a file's text; None if it doesn't exist."""
        if not self.exists(path):
            return None
        found = self.spark.read.text(self.full(path), wholetext=True).select("value", "_metadata.file_name")
        # Spark adds a newline to what it writes.
        return "".join(
            row.value.removesuffix("\n") if row.file_name.startswith(PART) else row.value
            for row in found.collect()
        )

    def names(self, path: str = "") -> list[str]:
        """Lists the names in a directory, without hidden ones."""
        if not self.exists(path):
            return []
        below = f"{self.full(path).rpartition(':')[2].rstrip('/')}/"
        # Only the path is selected, so Spark doesn't read the contents.
        paths = (row.path.partition(below)[2] for row in self._listed(path).select("path").collect())
        return sorted({path.partition("/")[0] for path in paths if path})

    def _listed(self, path: str) -> DataFrame:
        reader = self.spark.read.format("binaryFile").option("recursiveFileLookup", "true")
        return reader.load(self.full(path))

    def create(self, path: str, text: str) -> None:
        """Writes a text that must not exist yet."""
        if self.exists(path):
            raise AlreadyExists(f"{self.full(path)} exists already: is another job writing there?")
        self._write(path, text, "append")
        if self.read(path) != text:
            raise AlreadyExists(f"{self.full(path)} was written by another job at this moment")

    def write(self, path: str, text: str) -> None:
        """Writes a text or replaces it; a reader may see none for a moment."""
        self._write(path, text, "overwrite")

    def _write(self, path: str, text: str, mode: str) -> None:
        rows = self.spark.createDataFrame([(text,)], "value string").coalesce(1)
        rows.write.mode(mode).text(self.full(path))

    def replace(self, path: str, text: str) -> None:
        """Writes a text or replaces it; a reader may see none for a moment."""
        self.write(path, text)

    def delete(self, path: str = "") -> None:
        """Raises `FailedPrecondition` (rule 1)."""
        raise FailedPrecondition(
            f"{self.full(path)} is in the way, and over Spark Connect nothing can be deleted: delete it, or name "
            "another path"
        )

    def drop(self, path: str) -> None:
        """Does nothing, because a file that isn't needed may stay."""


class _LocalFile:
    """A file of this machine, on which the client of Spark Connect runs."""

    def __init__(self, path: str, option: str) -> None:
        where = Path(path.removeprefix("file://"))
        if re.match(r"[a-z0-9]+:", path) and not path.startswith("file:///"):
            raise InvalidArgument(
                f"{option} {path}: over Spark Connect the client writes it, so name a path of its machine"
            )
        if where.is_dir() or path.endswith("/"):
            raise InvalidArgument(f"{option} {path} is a directory: name a file")
        if not where.absolute().parent.is_dir():
            raise InvalidArgument(f"{option} {path}: the directory {where.absolute().parent} isn't there")
        self._where = where
        self.path = str(where.absolute())

    def write(self, text: str) -> None:
        """Writes the whole file, and replaces an earlier one."""
        unfinished = self._where.with_name(f".{self._where.name}.unfinished")
        unfinished.write_text(text, encoding="utf-8")
        unfinished.replace(self._where)
