"""Files below one directory, wherever Spark's own files may be: local, HDFS, an object store.

Rules
1. `create` never replaces, and what it made is whole: it is written under another name and renamed.
2. A path that doesn't exist is empty, not an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from kafka_pubsub.errors import AlreadyExists

from .session import jvm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Files", "Found"]


class Found(NamedTuple):
    """A file or directory: its path below the root, and its bytes."""

    path: str
    size: int


class Files:
    """The files below `root`; all paths are relative to it."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        self._jvm = jvm(spark)
        self.root = root.rstrip("/") or "/"
        base = self._jvm.org.apache.hadoop.fs.Path(self.root)
        self._system = base.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
        self._base = self._system.makeQualified(base)

    def full(self, path: str) -> str:
        """The whole path, as Spark takes it."""
        return f"{self.root}/{path}" if path else self.root

    def _at(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._base, path) if path else self._base

    def exists(self, path: str = "") -> bool:
        """Whether there is such a file or directory."""
        return bool(self._system.exists(self._at(path)))

    def read(self, path: str) -> str | None:
        """A file's text; None if it doesn't exist."""
        if not self.exists(path):
            return None
        stream = self._system.open(self._at(path))
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def create(self, path: str, text: str) -> None:
        """Writes a file that must not exist."""
        if self.exists(path):
            raise AlreadyExists(f"{self.full(path)} exists already: is another job writing there?")
        unfinished = f"{path}.unfinished"
        self._write(unfinished, text)
        self.rename(unfinished, path)

    def _write(self, path: str, text: str) -> None:
        stream = self._system.create(self._at(path), True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()

    def rename(self, old: str, new: str) -> None:
        """Moves a file; its new directory is made."""
        self._system.mkdirs(self._at(new).getParent())
        if not self._system.rename(self._at(old), self._at(new)):
            raise AlreadyExists(f"{self.full(old)} could not be moved to {self.full(new)}")

    def delete(self, path: str) -> None:
        """Removes a file, or a directory with all that is in it."""
        self._system.delete(self._at(path), True)

    def names(self, path: str = "") -> list[str]:
        """The names in a directory, without those that are hidden."""
        if not self.exists(path):
            return []
        found = (each.getPath().getName() for each in self._system.listStatus(self._at(path)))
        return sorted(name for name in found if not name.startswith("."))

    def glob(self, pattern: str) -> list[Found]:
        """Files whose relative path fits the pattern."""
        found = self._system.globStatus(self._jvm.org.apache.hadoop.fs.Path(self._base, pattern)) or ()
        start = len(self._base.toUri().getPath().rstrip("/")) + 1
        return sorted(Found(each.getPath().toUri().getPath()[start:], each.getLen()) for each in found)
