"""Writes the rows that a streaming job rejects to a table.

Rule: a row is in the table of rejected rows once, however often a batch is repeated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..base.tables import Table
from ..reading.expectations import REJECTS, split
from .streams import Run

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["Rejects", "rejects_table"]


def rejects_table(spark: SparkSession, named: str | None, default: Table | str) -> Table:
    """Returns the table that `--rejects` names; by default it lies beside the job's table or checkpoint (`default`)."""
    if named is not None:
        return Table(spark, named, REJECTS, option="--rejects")
    if isinstance(default, str):
        return Table(spark, f"{default.rstrip('/')}-rejects-table", REJECTS)
    return default.beside("rejects", REJECTS)


class Rejects:
    """The rejected rows of one start of a job."""

    def __init__(self, table: Table, conditions: Sequence[str]) -> None:
        self.table = table
        self._conditions = conditions
        self._written = 0
        #: The number of the last batch that was counted: one may come again.
        self._counted = -1

    def check_conditions(self, rows: DataFrame) -> None:
        """Raises `InvalidArgument` if a condition isn't one over these columns; reads no data."""
        split(rows, self._conditions)

    def taken(self, going: Run, batch: DataFrame, number: int, *, unless: Column | None = None) -> DataFrame:
        """Writes the rejected rows of a batch, and returns the others.

        The batch is used several times, so the caller should persist it. No condition is checked of rows for which
        `unless` holds (default: all are checked).
        """
        kept, rejected = split(batch, self._conditions, unless=unless)
        self._write(going, rejected, number)
        return kept

    def _write(self, going: Run, rejected: DataFrame, number: int) -> None:
        rejected.persist()
        try:
            if count := rejected.count():
                going.append(rejected, self.table, number)
            if number > self._counted:
                self._counted, self._written = number, self._written + count
        finally:
            rejected.unpersist()

    @property
    def rows(self) -> int:
        """How many rows this start of the job has rejected."""
        return self._written

    def facts(self) -> dict[str, Any]:
        """Returns the facts for the outcome."""
        return {"rejected": self.rows, "rejects": self.table.address}

    def said(self) -> str:
        """Returns a text for the outcome; empty if nothing was rejected."""
        rows = self.rows
        return f", {rows:,} rejected to {self.table.address}" if rows else ""
