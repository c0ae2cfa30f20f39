"""Archives: what a topic held, as Parquet with a log of its own or as a Delta table.

Theory. A batch that is repeated after a crash must replace what its first try left. Delta does that by itself:
it remembers the last batch of a query. For Parquet a small log does it: files are written aside, moved to names
that tell the batch, and count from the moment that an entry of the log lists them.

    ARCHIVE/_kafka_pubsub/kafka_pubsub.json     what this is
    ARCHIVE/_kafka_pubsub/log/000000000007.json what an entry added, or what all is after a compaction
    ARCHIVE/_kafka_pubsub/staging/              what isn't an archive yet
    ARCHIVE/date=2026-01-14/topic=orders/b000000000007-00000.parquet

Rules
1. One writer: entries are numbered, and a number is taken once.
2. `archived` reads what the log lists, so it never sees half a batch. Whoever reads the directories themselves
   sees each message once when no job is running, and after a crash from the next start on.
3. Fields may be added and left out; a field that changes its type is refused, by name.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from kafka_pubsub.errors import FailedPrecondition, NotFound, SchemaError

from . import marks
from .files import Files, Found

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

__all__ = ["Archive", "DeltaArchive", "ParquetArchive", "archived", "merged", "open_archive"]

Format = Literal["parquet", "delta"]
OURS = "_kafka_pubsub"
_LOG = f"{OURS}/log"
_STAGING = f"{OURS}/staging"
_QUERY = f"{OURS}/query"
#: Bytes: files below `SMALL` are put together, into files of about `WHOLE`.
SMALL = 32 * 1024 * 1024
WHOLE = 128 * 1024 * 1024
#: Small files of one directory that are worth a rewrite.
MANY = 8


@dataclass
class State:
    """What the log says. `batch`: the last one that is in; `query`: whose batches these are."""

    entry: int = -1
    query: str | None = None
    batch: int = -1
    files: dict[str, int] = field(default_factory=dict)
    schema: dict[str, Any] | None = None
    #: Files that the last entry took out, and that may be there still.
    removed: list[str] = field(default_factory=list)


def open_archive(spark: SparkSession, path: str, form: Format) -> Archive:
    """The archive at `path`, made if there is nothing; `FailedPrecondition` if something else is there."""
    files = Files(spark, path)
    names = [name for name in files.names() if name != OURS]
    if names and not files.exists(f"{OURS}/{marks.MARK}"):
        raise FailedPrecondition(
            f"{path} isn't an archive of kafka_pubsub: it holds {', '.join(names[:3])} and no {OURS}; "
            "choose another path"
        )
    marks.claim(files, "archive", {"format": form}, path=OURS)
    return (ParquetArchive if form == "parquet" else DeltaArchive)(spark, files)


def archived(spark: SparkSession, path: str) -> DataFrame:
    """What an archive holds, each message once: the columns of `messages`, `archived_at` and `date`.

    Example:
        archived(spark, "/data/archive").where("topic = 'orders' AND date >= '2026-01-14'").show()
    """
    files = Files(spark, path)
    told = files.read(f"{OURS}/{marks.MARK}")
    if told is None:
        raise NotFound(f"{path} isn't an archive of kafka_pubsub: it has no {OURS}/{marks.MARK}")
    form = json.loads(told).get("format")
    return (ParquetArchive if form == "parquet" else DeltaArchive)(spark, files).read()


class Archive:
    """What both kinds do."""

    def __init__(self, spark: SparkSession, files: Files) -> None:
        self.spark = spark
        self.files = files

    def last(self) -> tuple[str | None, int]:
        """The query and its last batch that is in; (None, -1) for an archive that is empty."""
        raise NotImplementedError

    def append(self, batch: DataFrame, query: str, number: int) -> None:
        """Takes a batch in; once, however often it is called."""
        raise NotImplementedError

    def read(self) -> DataFrame:
        """All that is in."""
        raise NotImplementedError

    def compact(self) -> int:
        """Puts small files together; how many there were."""
        raise NotImplementedError


class DeltaArchive(Archive):
    """A Delta table, which knows by itself which batches it has."""

    def last(self) -> tuple[str | None, int]:
        """Delta knows the batches that it has, and not that others are another query's of the same messages."""
        return self.files.read(_QUERY), -1

    def append(self, batch: DataFrame, query: str, number: int) -> None:
        """One transaction a batch."""
        if self.files.read(_QUERY) is None:
            self.files.create(_QUERY, query)
        writer = batch.write.format("delta").mode("append").partitionBy("date", "topic")
        options = {"txnAppId": query, "txnVersion": str(number), "mergeSchema": "true"}
        writer.options(**options).save(self.files.root)

    def read(self) -> DataFrame:
        """The table."""
        if not self.files.exists("_delta_log"):
            raise NotFound(f"{self.files.root} is an archive that nothing was written to yet")
        return self.spark.read.format("delta").load(self.files.root)

    def compact(self) -> int:
        """Delta's own OPTIMIZE."""
        if not self.files.exists("_delta_log"):
            return 0
        (told,) = self.spark.sql(f"OPTIMIZE delta.`{self.files.root}`").collect()
        return int(told["metrics"]["numFilesRemoved"])


class ParquetArchive(Archive):
    """Parquet files, and a log that says which of them count."""

    def __init__(self, spark: SparkSession, files: Files) -> None:
        super().__init__(spark, files)
        self._state = self._replay()

    def _replay(self) -> State:
        state = State()
        for name in self.files.names(_LOG):
            if name.endswith(".json"):
                _apply(
                    state,
                    int(name.removesuffix(".json")),
                    json.loads(self.files.read(f"{_LOG}/{name}") or ""),
                )
        return state

    def last(self) -> tuple[str | None, int]:
        """By the log."""
        return self._state.query, self._state.batch

    def tidy(self) -> None:
        """Removes what a crash left: moved files that no entry lists, listed removals, what was aside."""
        following = self._state.entry + 1
        for found in self.files.glob(f"date=*/topic=*/b{following:012d}-*.parquet"):
            self.files.delete(found.path)
        for path in self._state.removed:
            self.files.delete(path)
        self.files.delete(_STAGING)

    def append(self, batch: DataFrame, query: str, number: int) -> None:
        """Aside, moved, listed."""
        if query == self._state.query and number <= self._state.batch:
            return
        schema = batch.schema if self._state.schema is None else merged(self._schema(), batch.schema)
        self.tidy()
        batch.write.partitionBy("date", "topic").parquet(self.files.full(_STAGING))
        added = self._move()
        self._enter(
            {"query": query, "batch": number, "schema": schema.jsonValue(), "add": dict(added), "remove": []}
        )

    def _move(self) -> list[Found]:
        moved = []
        for at, found in enumerate(self.files.glob(f"{_STAGING}/date=*/topic=*/*.parquet")):
            directory = found.path.removeprefix(f"{_STAGING}/").rpartition("/")[0]
            target = f"{directory}/b{self._state.entry + 1:012d}-{at:05d}.parquet"
            self.files.rename(found.path, target)
            moved.append(Found(target, found.size))
        self.files.delete(_STAGING)
        return moved

    def _enter(self, entry: dict[str, Any]) -> None:
        number = self._state.entry + 1
        self.files.create(f"{_LOG}/{number:012d}.json", json.dumps(entry))
        _apply(self._state, number, entry)

    def _schema(self) -> StructType:
        from pyspark.sql.types import StructType

        return StructType.fromJson(self._state.schema or {"fields": []})

    def read(self) -> DataFrame:
        """The files that the log lists, by the schema that holds all their fields."""
        if self._state.schema is None:
            raise NotFound(f"{self.files.root} is an archive that nothing was written to yet")
        return self._frame(self._state.files)

    def _frame(self, paths: Iterable[str]) -> DataFrame:
        names = [self.files.full(path) for path in paths]
        if not names:
            return self.spark.createDataFrame([], self._schema())
        reader = self.spark.read.schema(self._schema()).option("basePath", self.files.root)
        return reader.parquet(*names)

    def compact(self) -> int:
        """Directory by directory; each is an entry of its own."""
        by_directory: dict[str, list[str]] = {}
        for path, size in self._state.files.items():
            if size < SMALL:
                by_directory.setdefault(path.rpartition("/")[0], []).append(path)
        crowded = {where: paths for where, paths in by_directory.items() if len(paths) >= MANY}
        for paths in crowded.values():
            self._rewrite(paths)
        return sum(map(len, crowded.values()))

    def _rewrite(self, paths: list[str]) -> None:
        self.tidy()
        size = sum(self._state.files[path] for path in paths)
        frame = self._frame(paths).coalesce(max(1, size // WHOLE))
        frame.write.partitionBy("date", "topic").parquet(self.files.full(_STAGING))
        self._enter({"add": dict(self._move()), "remove": paths})
        for path in paths:
            self.files.delete(path)


def _apply(state: State, number: int, entry: dict[str, Any]) -> None:
    state.entry = number
    for path in entry["remove"]:
        state.files.pop(path, None)
    state.removed = list(entry["remove"])
    state.files.update(entry["add"])
    if "batch" in entry:
        state.query, state.batch, state.schema = entry["query"], entry["batch"], entry["schema"]


def merged(old: StructType, new: StructType, where: str = "") -> StructType:
    """A schema with the fields of both; `SchemaError` names a field of two types."""
    from pyspark.sql.types import StructField, StructType

    theirs = {each.name: each for each in new.fields}
    fields = []
    for each in old.fields:
        other = theirs.pop(each.name, None)
        kind = each.dataType if other is None else _same(each.dataType, other.dataType, f"{where}{each.name}")
        fields.append(StructField(each.name, kind, True))
    return StructType([*fields, *(StructField(each.name, each.dataType, True) for each in theirs.values())])


def _same(old: DataType, new: DataType, where: str) -> DataType:
    from pyspark.sql.types import StructType

    if isinstance(old, StructType) and isinstance(new, StructType):
        return merged(old, new, f"{where}.")
    # Whether a field may be null is no part of its type here.
    if old.simpleString() != new.simpleString():
        raise SchemaError(
            f"field {where} is {old.simpleString()} in the archive and {new.simpleString()} now: give it another name, "
            "or begin another archive"
        )
    return old
