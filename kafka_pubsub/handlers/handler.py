"""One handler as it was declared: the function, its subscription, and how it is run.

Rule: a wrong argument is refused where the handler is declared; what needs the cluster is checked when the app starts.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from kafka_pubsub.config import FlowControl
from kafka_pubsub.errors import InvalidArgument
from kafka_pubsub.handlers.parameters import place_of
from kafka_pubsub.options import Start, SubscriptionSettings, check_names
from kafka_pubsub.subscribe.admin.starts import check_start

__all__ = ["ENSURE", "Ensure", "Handler", "is_async"]

Ensure = Literal["create", "check", "never"]
ENSURE = ("create", "check", "never")


@dataclass(frozen=True)
class Handler:
    """A handler; `App.subscriber` explains each field. `names`: those around its declaration, for its annotations."""

    name: str
    function: Callable[..., object]
    topic: str
    start: Start = "latest"
    dead_letter_on: tuple[type[Exception], ...] = ()
    flow: FlowControl | None = None
    max_workers: int | None = None
    batch: int | None = None
    to: str | None = None
    ensure: Ensure = "create"
    settings: SubscriptionSettings = field(default_factory=SubscriptionSettings)
    names: Mapping[str, object] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        function: object = self.function
        if not callable(function):
            raise InvalidArgument(f"{self.where}: the handler must be a function, not {self.function!r}")
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise InvalidArgument(
                f"{self.where}: the handler has a yield, so a call wouldn't run it: take it out"
            )
        texts: dict[str, object] = {"name": self.name, "topic": self.topic}
        if self.to is not None:
            texts["to"] = self.to
        for name, value in texts.items():
            if not isinstance(value, str) or not value:
                raise InvalidArgument(f"{self.where}: {name} must be a name, not {value!r}")
        if self.ensure not in ENSURE:
            raise InvalidArgument(
                f"{self.where}: ensure must be 'create', 'check' or 'never', not {self.ensure!r}"
            )
        if self.to == self.topic:
            raise InvalidArgument(
                f"{self.where}: to={self.to!r} is the topic that it receives from, so each message would bring "
                "another one: name another topic"
            )
        self._check_number("batch", self.batch, 100_000)
        self._check_number("max_workers", self.max_workers, 10_000)
        self._check_classes()
        try:
            check_start(self.start, time.time())
            check_names("subscriber", self.settings, frozenset(SubscriptionSettings.__annotations__))
        except (InvalidArgument, TypeError) as error:
            raise InvalidArgument(f"{self.where}: {error}") from None

    def _check_number(self, name: str, value: object, most: int) -> None:
        if value is None:
            return
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            raise InvalidArgument(f"{self.where}: {name} must be from 1 to {most}, not {value!r}")

    def _check_classes(self) -> None:
        kinds: Sequence[object] = self.dead_letter_on
        for kind in kinds:
            if not (isinstance(kind, type) and issubclass(kind, Exception)):
                raise InvalidArgument(
                    f"{self.where}: dead_letter_on takes classes of exceptions, not {kind!r}: for example "
                    "(ValueError,)"
                )

    @property
    def topics(self) -> list[str]:
        """The topics that it needs: its own, that of its values, that of its dead letters."""
        policy = self.settings.get("dead_letter")
        names = [self.topic, self.to, None if policy is None else policy.topic]
        return [name for name in names if name is not None]

    @property
    def where(self) -> str:
        """How an error names it."""
        function = place_of(self.function)
        return f"subscriber {self.name!r} ({function})"


def is_async(function: Callable[..., object]) -> bool:
    """Returns whether calling it gives a coroutine."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004  # an object with `async def __call__`
    )
