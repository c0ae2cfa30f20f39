"""The parts of made histories: the log as it is, and the members' knowledge of the log."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from kafka_pubsub.history.history import HistoryFile
from kafka_pubsub.model import Run

__all__ = [
    "MS",
    "START",
    "Held",
    "Host",
    "Member",
    "Owner",
    "Partition",
    "Plan",
    "Standing",
    "Unanswered",
    "standing",
]

MS = 1_000_000
START = 1_700_000_000_000_000_000
Standing = tuple[int, list[Run]]


@dataclass(frozen=True)
class Plan:
    """The sizes of a made history."""

    seed: int
    partitions: int = 2
    keys: int = 4
    messages: int = 30
    members: int = 3
    hosts: int = 1
    skew: float = 0.4
    #: How often something goes wrong, of 1.
    faults: float = 0.1
    ordered: bool = True


@dataclass(frozen=True)
class Host:
    name: str
    booted: int
    wrong_by: int


@dataclass
class Partition:
    """The log's knowledge."""

    main: list[str | None] = field(default_factory=list)  # keys; "" where nothing lies
    shas: list[str] = field(default_factory=list)
    retry: list[tuple[int, int, int | None] | None] = field(default_factory=list)  # origin, attempt, due
    #: Messages in `retry` that were given up.
    rejected: set[int] = field(default_factory=set)
    stored: tuple[Standing, Standing] = ((0, []), (0, []))
    owner: Owner | None = None


@dataclass(eq=False)
class Held:
    offset: int
    attempt: int
    batch: int | None = None
    open: bool = True
    running: bool = True


@dataclass
class Unanswered:
    """A commit on its way."""

    number: int
    standing: tuple[Standing, Standing]
    moves: list[tuple[int, int | None, int, int | None, str]]
    dead: list[int]
    since: int


def standing(done: set[int], exists: Iterable[int], end: int) -> Standing:
    """The position and runs that call exactly `done` finished."""
    open_ = sorted(set(exists) - done)
    position = open_[0] if open_ else end
    runs = [
        (a + 1, b)
        for a, b in zip(open_, [*open_[1:], end], strict=False)
        if b > a + 1 and any(at in done for at in range(a + 1, b))
    ]
    return position, runs


@dataclass(eq=False)
class Owner:
    """A single epoch of a partition in a single member."""

    member: Member
    number: int
    epoch: int
    main_done: set[int] = field(default_factory=set)
    retry_done: set[int] = field(default_factory=set)
    finished: set[int] = field(default_factory=set)
    places: dict[int, int] = field(default_factory=dict)
    attempts: dict[int, int] = field(default_factory=dict)
    due: dict[int, int | None] = field(default_factory=dict)
    failed: set[int] = field(default_factory=set)
    #: Given up by their handlers, and not moved yet.
    rejected: set[int] = field(default_factory=set)
    held: list[Held] = field(default_factory=list)
    move_request: Unanswered | None = None
    last: tuple[Standing, Standing] = ((0, []), (0, []))
    dirty_since: int | None = None


@dataclass(eq=False)
class Member:
    pid: int
    file: HistoryFile
    #: Nanoseconds by which its wall clock is wrong.
    wrong_by: int
    epochs: int = 0
    commits: int = 0
    batches: int = 0
    owned: dict[int, Owner] = field(default_factory=dict)
    resting: dict[int, Owner] = field(default_factory=dict)
    old: list[Owner] = field(default_factory=list)
    stopped: bool = False

    def busy(self, number: int, key: str | None, log: Partition) -> bool:
        """Whether a handler of the key runs here, under whatever epoch."""
        owners = [*self.owned.values(), *self.resting.values(), *self.old]
        return any(
            held.running and log.main[held.offset] == key
            for owner in owners
            if owner.number == number
            for held in owner.held
        )
