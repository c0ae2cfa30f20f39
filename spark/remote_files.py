"""Files over Spark Connect, where only Spark reaches them: read and listed by its own sources, never written.

Rule: `root` is as it was given, because what would qualify it is in another process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_pubsub.errors import InvalidArgument

from .files import Files
from .spark_session import first_line, is_remote, jvm

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["files_below"]


def files_below(spark: SparkSession, root: str) -> Files:
    """The files below a directory, to be read and listed; over Spark Connect as well."""
    return _RemoteFiles(spark, root) if is_remote(spark) else Files(spark, root)


class _RemoteFiles(Files):
    """Files that only Spark can reach."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        self._spark = spark
        self.root = root.rstrip("/") or root

    def exists(self, path: str = "") -> bool:
        """Whether there is such a file or directory."""
        try:
            # Spark looks for the path, and reads nothing.
            _ = self._listed(path).schema
        except Exception as error:
            if "PATH_NOT_FOUND" not in str(error):
                raise InvalidArgument(f"path {self.root!r} can't be used: {first_line(error)}") from error
            return False
        return True

    def read(self, path: str) -> str | None:
        """A file's text; None if it doesn't exist."""
        if not self.exists(path):
            return None
        return "".join(row.value for row in self._spark.read.text(self.full(path), wholetext=True).collect())

    def names(self, path: str = "") -> list[str]:
        """The names in a directory, without those that are hidden."""
        if not self.exists(path):
            return []
        below = f"{self.full(path).rpartition(':')[2].rstrip('/')}/"
        # Without the content, which is then not read.
        paths = (row.path.partition(below)[2] for row in self._listed(path).select("path").collect())
        return sorted({path.partition("/")[0] for path in paths if path})

    def _listed(self, path: str) -> DataFrame:
        reader = self._spark.read.format("binaryFile").option("recursiveFileLookup", "true")
        return reader.load(self.full(path))

    def write(self, path: str, text: str) -> None:
        """Refused."""
        jvm(self._spark)

    def delete(self, path: str = "") -> None:
        """Refused."""
        jvm(self._spark)
