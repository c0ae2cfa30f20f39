"""Reads and writes the Delta tables of jobs, which lie at a path or have a name in a catalog.

Theory. Delta's log makes a batch count once: a commit carries the query's id and the batch's number (`txnAppId`,
`txnVersion`), and Delta leaves out a commit whose number is in the table already. Two drivers that write the same
batch at the same moment conflict, and one of them fails.

Rules
1. A table says what it is for in its properties (`kafka_pubsub.kind`). A table without this property, and a directory
   with other files, is refused before anything is written.
2. A table is made by the first batch that is written to it: a job that fails earlier leaves no table.
3. OPTIMIZE replaces small files, and VACUUM deletes files that were replaced longer ago than `KEEP`. A reader that
   takes less time than that isn't disturbed. In a sorted table the rows of one key lie together, in few files and few
   pages of a file. A date is sorted once, by the first OPTIMIZE after it is over.
4. A text with a dot and without a slash is a name (`schema.table`, `catalog.schema.table`); all else is a path.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from kafka_pubsub.errors import FailedPrecondition, InvalidArgument, NotFound, SchemaError

from .files import Files
from .spark_session import check_delta, first_line, jvm

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

__all__ = ["KEEP", "Layout", "Table", "is_name", "kind_of", "last_batch", "unformatted"]

#: How long replaced files stay for readers, in Delta's notation; a user may change the table's property.
KEEP = "interval 7 days"
_KIND, _QUERY = "kafka_pubsub.kind", "kafka_pubsub.query"
_SIGNS = ("_last_checkpoint", f"{0:020}.json")
_NAME = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+){1,2}")


@dataclass(frozen=True)
class Layout:
    """The layout of a kind of table.

    `statistics` are the columns by which Delta skips files. `sorted_by` is the column by which the rows of each `date`
    are sorted when it is over ("": they aren't).
    """

    kind: str
    partitions: Sequence[str]
    statistics: Sequence[str]
    sorted_by: str = ""


def is_name(where: str) -> bool:
    """Returns whether this is a table's name in a catalog, not a path."""
    return _NAME.fullmatch(where) is not None


def kind_of(properties: Mapping[str, str]) -> str | None:
    """Returns what a table is for, by its properties; None: kafka_pubsub didn't make it."""
    return properties.get(_KIND)


def last_batch(spark: SparkSession, where: str, query: str) -> int:
    """Returns the number of the last batch of this query in a Delta table (a path or a name).

    It is -1 if there is none or no table.
    """
    if is_name(where):
        if not spark.catalog.tableExists(where):
            return -1
        where = spark.sql(f"DESCRIBE DETAIL {_quoted(*where.split('.'))}").collect()[0]["location"]
    logs = jvm(spark).org.apache.spark.sql.delta.DeltaLog
    found = logs.forTableWithSnapshot(spark._jsparkSession, where)._2().transactions().get(query)
    return int(found.get()) if found.isDefined() else -1


def _quoted(*parts: str) -> str:
    """Returns a name of several parts, as SQL takes it."""
    return ".".join(f"`{part}`" for part in parts)


def unformatted(sql: str) -> str:
    """Returns SQL that Python's `format` leaves as it is: a path may have braces."""
    return sql.replace("{", "{{").replace("}", "}}")


class Table:
    """One Delta table.

    `address` is the same for all spellings of a path or name. `option` is the command's option that named the table.
    """

    def __init__(self, spark: SparkSession, where: str, layout: Layout, *, option: str = "") -> None:
        self.spark = spark
        self._where = where
        #: How errors name the table.
        self.where = f"{option} {where}".strip()
        self.layout = layout
        #: The table's properties, once `check` has found the table; None before that.
        self._made: dict[str, str] | None = None
        if is_name(where):
            parts = where.split(".")
            self.address = ".".join(parts if len(parts) == 3 else [spark.catalog.currentCatalog(), *parts])
            self.files: Files | None = None
            self._sql = _quoted(*self.address.split("."))
        else:
            if "`" in where:
                raise InvalidArgument(
                    f"{self.where} has a backtick, which Delta can't take: choose another path"
                )
            self.files = Files(spark, where)
            self.address = self.files.root
            self._sql = _quoted("delta", self.address)

    def beside(self, suffix: str, layout: Layout) -> Table:
        """Returns another table, whose name is this table's name and `suffix`."""
        joint = "_" if self.files is None else "-"
        return Table(self.spark, f"{self._where.rstrip('/')}{joint}{suffix}", layout)

    @property
    def checkpoint(self) -> str:
        """The default path of the job's checkpoint; `InvalidArgument` for a table that has a name in a catalog."""
        if self.files is None:
            raise InvalidArgument(
                f"--checkpoint is missing: {self.where} is a name in a catalog, so say where the checkpoint is kept"
            )
        # The checkpoint isn't in the table's directory, because Delta takes a directory with files for a table.
        return f"{self.address}-checkpoint"

    def exists(self) -> bool:
        """Returns whether there is a Delta table."""
        if self.files is not None:
            # This looks for the first commit, or for the file that is left when Delta has deleted that commit. A
            # listing of the log would have a line for every batch.
            return any(self.files.exists(f"_delta_log/{name}") for name in _SIGNS)
        try:
            return bool(self.spark.catalog.tableExists(self.address))
        except Exception as error:
            raise InvalidArgument(f"{self.where} can't be a table: {first_line(error)}") from error

    def check(self) -> None:
        """Raises `FailedPrecondition` if something other than a table of this kind is there, or if Delta is missing."""
        check_delta(self.spark)
        if self.exists():
            found = self.properties()
            kind = kind_of(found)
            if kind != self.layout.kind:
                said = kind or "a Delta table that kafka_pubsub didn't make"
                raise FailedPrecondition(
                    f"{self.where} isn't {self.layout.kind} of kafka_pubsub: it is {said}; choose another path or name"
                )
            self._made = found
            return
        if self.files is None:
            self._check_schema()
        elif (names := self.files.names()) and not self._is_half_made():
            raise FailedPrecondition(
                f"{self.where} isn't {self.layout.kind} of kafka_pubsub: it holds {', '.join(names[:3])} and no "
                "Delta table; choose another path or name"
            )

    def _is_half_made(self) -> bool:
        """Returns whether there is a Delta log without a commit: a driver was killed while it made the table."""
        if self.files is None or self.files.names() != ["_delta_log"]:
            return False
        return all(name.startswith("_") for name in self.files.names("_delta_log"))

    def _check_schema(self) -> None:
        schema = self.address.rpartition(".")[0]
        try:
            there = self.spark.catalog.databaseExists(schema)
        except Exception as error:
            raise InvalidArgument(f"{self.where} can't be a table: {first_line(error)}") from error
        if not there:
            raise FailedPrecondition(
                f"{self.where}: there is no schema {schema}; create it, or name another one"
            )

    def properties(self) -> dict[str, str]:
        """Returns the properties of the table, which exists, as they are now."""
        try:
            return {row.key: row.value for row in self.spark.sql(f"SHOW TBLPROPERTIES {self._sql}").collect()}
        except Exception as error:
            raise FailedPrecondition(f"{self.where} can't be read as a table: {first_line(error)}") from error

    def set_property(self, name: str, value: str) -> None:
        """Sets a property of the table."""
        self.spark.sql(f"ALTER TABLE {self._sql} SET TBLPROPERTIES ('{name}' = '{value}')")

    def delete(self, where: str) -> int:
        """Deletes the rows of which a condition holds, and returns how many there were."""
        return int(self.spark.sql(f"DELETE FROM {self._sql} WHERE {where}").collect()[0][0] or 0)

    def query(self) -> str | None:
        """Returns the id of the query that made the table; None if there is no table yet."""
        if self._made is None:
            self.check()
        return None if self._made is None else self._made.get(_QUERY)

    def append(self, batch: DataFrame, query: str, number: int, *, note: str = "") -> None:
        """Adds a batch's rows, once, however often this is called with the same query and number.

        `note` is stored with the commit (default: no note).
        """
        self.create(batch, query)
        options = {"txnAppId": query, "txnVersion": str(number), "mergeSchema": "true"}
        if note:
            options["userMetadata"] = note
        try:
            self._save(batch.write.mode("append").options(**options))
        except Exception as error:
            if "DELTA_FAILED_TO_MERGE_FIELDS" in str(error):
                raise SchemaError(
                    f"{self.where}: a column has another type than in the table ({first_line(error)}): give it "
                    "another name, or begin another table"
                ) from error
            raise

    def create(self, like: DataFrame, query: str) -> None:
        """Makes the table with the columns of `like` and no rows; does nothing if the table exists."""
        from pyspark.sql import functions as F

        if self._made is None:
            self.check()
        if self._made is not None:
            if not self.exists():
                # A new table would hide that everything before this batch is lost.
                raise FailedPrecondition(f"{self.where} was deleted while a job wrote to it: restore it")
            return
        if self.files is not None and self._is_half_made():
            # Delta takes any such directory for a table that exists.
            self.files.delete("_delta_log")
        maker = like.limit(0).writeTo(self._sql).using("delta")
        for name, value in self._made_with(query).items():
            maker = maker.tableProperty(name, value)
        if self.layout.partitions:
            maker = maker.partitionedBy(*(F.col(name) for name in self.layout.partitions))
        try:
            maker.create()
        except Exception:
            # Another driver of the same job may have made the table meanwhile.
            if not self.exists():
                raise
        self.check()

    def _made_with(self, query: str) -> dict[str, str]:
        return {
            _KIND: self.layout.kind,
            _QUERY: query,
            "delta.dataSkippingStatsColumns": ",".join(self.layout.statistics),
            "delta.deletedFileRetentionDuration": KEEP,
        }

    def merge(self, rows: DataFrame, on: str, newer: str, query: str, number: int) -> None:
        """Inserts rows that the table doesn't have, and updates those for which `newer` holds.

        `on` and `newer` are SQL conditions, in which `old` is a row of the table and `new` one of `rows`. The batch of
        this query and number counts once.
        """
        self.create(rows, query)
        session = rows.sparkSession
        # MERGE takes no options of a writer, so they are settings of this session, which is the query's own copy.
        once = {
            "spark.databricks.delta.write.txnAppId": query,
            "spark.databricks.delta.write.txnVersion": str(number),
        }
        for name, value in once.items():
            session.conf.set(name, value)
        try:
            # The table of an earlier version may lack columns.
            session.sql(
                f"MERGE WITH SCHEMA EVOLUTION INTO {unformatted(self._sql)} AS old USING {{new}} AS new ON {on} "
                f"WHEN MATCHED AND {newer} THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
                new=rows,
            ).collect()
        finally:
            for name in once:
                session.conf.unset(name)

    def add(self, rows: DataFrame, query: str) -> None:
        """Adds rows, each time that this is called."""
        self.create(rows, query)
        self._save(rows.write.mode("append"))

    def replace(self, rows: DataFrame, where: str, query: str) -> None:
        """Replaces the rows of which `where`, a condition over partitions, holds, in one commit."""
        self.create(rows, query)
        self._save(rows.write.mode("overwrite").option("replaceWhere", where))

    def _save(self, writer: DataFrameWriter) -> None:
        writer = writer.format("delta")
        if self.files is None:
            writer.saveAsTable(self._sql)
        else:
            writer.save(self.address)

    def notes(self) -> list[str]:
        """Returns the notes of the last commits, newest first, as `append` stored them."""
        found = self.spark.sql(f"DESCRIBE HISTORY {self._sql} LIMIT 20").select("userMetadata").collect()
        return [row[0] for row in found if row[0]]

    def version(self) -> int:
        """Returns the number of the last commit."""
        return int(self.spark.sql(f"DESCRIBE HISTORY {self._sql} LIMIT 1").collect()[0]["version"])

    def read(self, *, version: int | None = None) -> DataFrame:
        """Returns the table's rows, now or at `version`; `NotFound` if there is no table."""
        if self._made is None:
            self.check()
        if self._made is None:
            raise NotFound(f"{self.where} isn't {self.layout.kind} of kafka_pubsub: nothing is there")
        if version is not None:
            return self.spark.sql(f"SELECT * FROM {self._sql} VERSION AS OF {version}")
        if self.files is None:
            return self.spark.table(self._sql)
        return self.spark.read.format("delta").load(self.address)

    def optimize(self, note: Callable[[str], None], last: float | None = None) -> int:
        """Puts small files together, and returns how many small files there were.

        Of a table that is sorted, the dates that are over since `last` (seconds since 1970; None: all) are sorted.
        """
        done = []
        if self.layout.sorted_by:
            dates = f"date < DATE '{datetime.now(UTC).date()}'"
            if last is not None:
                dates += f" AND date >= DATE '{datetime.fromtimestamp(last, UTC).date()}'"
            # Of a date that goes on, the next command would sort all rows again.
            done.append(
                self._maintain("OPTIMIZE", note, f"WHERE {dates} ZORDER BY ({self.layout.sorted_by})")
            )
        done.append(self._maintain("OPTIMIZE", note))
        return sum(int(found["metrics"]["numFilesRemoved"]) for found in done if found is not None)

    def vacuum(self, note: Callable[[str], None]) -> None:
        """Deletes files that were replaced long ago."""
        self._maintain("VACUUM", note)

    def _maintain(self, command: str, note: Callable[[str], None], more: str = "") -> Any:
        """Runs a command of maintenance; None if it failed, because the rows are safe and it is tried again later."""
        if not self.exists():
            return None
        try:
            return self.spark.sql(f"{command} {self._sql} {more}").collect()[0]
        except Exception as error:
            note(f"{command} of {self.where} failed, and is tried again later: {first_line(error)}")
            return None
