"""Shared by the tests of jobs: a context whose notes are kept, and publishing by the client."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from kafka_pubsub import PubSub

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from spark.run.job import Context, Job, Outcome

__all__ = ["LONG", "Runner", "publish"]

#: Seconds, for a topic whose messages get times of their own: to the broker's retention they are old, and whenever it
#: looks, it would delete them.
LONG = 100 * 365 * 86400.0


@dataclass
class Runner:
    """Runs jobs as the command line does, in the session of the suite."""

    spark: SparkSession
    bootstrap: str
    notes: list[str] = field(default_factory=list)
    #: Settings of the Java client.
    config: dict[str, str] = field(default_factory=dict)

    def __call__(self, name: str, **options: Any) -> Outcome:
        from spark.run.job import find

        return self.typed(name, _arguments(find(name), options))

    def typed(self, name: str, arguments: list[str]) -> Outcome:
        """With the options as they are typed."""
        from spark.run.job import find

        job = find(name)
        outcomes: list[Outcome] = []

        def run(**parsed: Any) -> None:
            del parsed["master"], parsed["conf"], parsed["metrics_port"]
            outcomes.append(job.run(self._context(name), **parsed))

        command = click.Command(name, params=job.parameters(), callback=run)
        command.main(arguments, standalone_mode=False)
        return outcomes[0]

    def _context(self, name: str) -> Context:
        from spark.base.connection import Connection
        from spark.run.job import Context

        return Context(name, Connection(self.bootstrap, self.config), self.notes.append)


def _arguments(job: Job, options: dict[str, Any]) -> list[str]:
    by_name = {each.name: each for each in job.options}
    found: list[str] = []
    for name, value in options.items():
        option = by_name[name]
        if option.is_flag:
            # Off is said by its own name, or by saying nothing.
            found += (option.opts if value else option.secondary_opts)[:1]
            continue
        for each in value if option.multiple else [value]:
            found += [option.opts[0], str(each)]
    return found


def publish(ps: PubSub, topic: str, messages: Iterable[tuple[str | None, str]], **more: Any) -> None:
    """Key and body of each, in order."""
    handle = ps.topic(topic)
    for key, body in messages:
        handle.publish(body.encode(), ordering_key=key, **more)
    handle.flush(60)


def crash_at(call: int, method: Callable[..., Any]) -> Callable[..., Any]:
    """The method, which raises at its n-th call instead, as a process that is killed there."""
    calls = 0

    def crashing(*arguments: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == call:
            raise KilledHere(f"call {call}")
        return method(*arguments, **named)

    return crashing


class KilledHere(Exception):
    """Stands for a kill."""


def values(frame: DataFrame, column: str = "data") -> list[str]:
    """A column's texts, sorted."""
    return sorted(bytes(row[0]).decode() for row in frame.select(column).collect())
