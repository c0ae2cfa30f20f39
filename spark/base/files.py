"""Reads and writes small files below one directory in any file system of Spark: local, HDFS, an object store.

Rules
1. `create` never replaces a file, and a file that it made is whole: it is written under a hidden name and renamed.
2. A path that doesn't exist counts as empty, and isn't an error.
3. `root` is absolute and names its file system, so every spelling of one path gives the same root.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import uuid4

from kafka_pubsub.errors import AlreadyExists, FailedPrecondition, InvalidArgument

from .spark_session import first_line, jvm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Files", "OneFile"]


class Files:
    """The files below `root`; all paths are relative to it.

    `checksums=False` leaves out the hidden file with a checksum that Hadoop writes beside each file of a local disk
    (default: it is written).
    """

    def __init__(self, spark: SparkSession, root: str, *, checksums: bool = True) -> None:
        self.spark = spark
        self._jvm = jvm(spark)
        try:
            base = self._jvm.org.apache.hadoop.fs.Path(root)
            self._system = base.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
        except Exception as error:
            raise InvalidArgument(f"path {root!r} can't be used: {first_line(error)}") from error
        self._base = self._system.makeQualified(base)
        if not checksums and self._system.getScheme() == "file":
            self._system = self._system.getRawFileSystem()
        self.root = str(self._base.toString())

    def full(self, path: str) -> str:
        """Returns the whole path, as Spark takes it."""
        return f"{self.root.rstrip('/')}/{path}" if path else self.root

    def _at(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._base, path) if path else self._base

    def exists(self, path: str = "") -> bool:
        """Returns whether there is such a file or directory."""
        return bool(self._system.exists(self._at(path)))

    def read(self, path: str) -> str | None:
        """Returns a file's text; None if it doesn't exist."""
        if not self.exists(path):
            return None
        stream = self._system.open(self._at(path))
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def create(self, path: str, text: str) -> None:
        """Writes a file that must not exist yet."""
        if self.exists(path):
            raise AlreadyExists(f"{self.full(path)} exists already: is another job writing there?")
        directory, _, name = path.rpartition("/")
        unfinished = f"{directory}/.{name}.unfinished".lstrip("/")
        self.write(unfinished, text)
        if not self._system.rename(self._at(unfinished), self._at(path)):
            raise AlreadyExists(f"{self.full(unfinished)} could not be moved to {self.full(path)}")

    def replace(self, path: str, text: str) -> None:
        """Writes a file or replaces it; a reader sees a whole file, or for a moment none."""
        directory, _, name = path.rpartition("/")
        # Two drivers of one job may replace a file at the same moment.
        unfinished = f"{directory}/.{name}.{uuid4().hex}.unfinished".lstrip("/")
        self.write(unfinished, text)
        self.delete(path)
        if not self._system.rename(self._at(unfinished), self._at(path)):
            raise FailedPrecondition(f"{self.full(unfinished)} could not be moved to {self.full(path)}")

    def is_directory(self, path: str = "") -> bool:
        """Returns whether there is such a directory."""
        return self.exists(path) and bool(self._system.getFileStatus(self._at(path)).isDirectory())

    def write(self, path: str, text: str) -> None:
        """Writes a file or replaces it; a reader may see a part of it."""
        stream = self._system.create(self._at(path), True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()

    def delete(self, path: str = "") -> None:
        """Removes a file, or a directory with all that is in it."""
        self._system.delete(self._at(path), True)

    def names(self, path: str = "") -> list[str]:
        """Lists the names in a directory, without hidden ones."""
        if not self.exists(path):
            return []
        found = (each.getPath().getName() for each in self._system.listStatus(self._at(path)))
        return sorted(name for name in found if not name.startswith("."))


class OneFile:
    """A file that a job writes at its end. `option` is the command's option that named it, for errors."""

    def __init__(self, spark: SparkSession, path: str, option: str) -> None:
        directory, slash, self._name = path.rpartition("/")
        try:
            self._files = Files(spark, directory + slash if slash else ".", checksums=False)
            taken = not self._name or self._files.is_directory(self._name)
        except InvalidArgument as error:
            raise InvalidArgument(f"{option}: {error.message}") from error
        if taken:
            raise InvalidArgument(f"{option} {path} is a directory: name a file")
        self.path = self._files.full(self._name)

    def write(self, text: str) -> None:
        """Writes the whole file, and replaces an earlier one."""
        self._files.replace(self._name, text)
