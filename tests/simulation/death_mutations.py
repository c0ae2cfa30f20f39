"""Rules of attempts, suspects and dead letters, each taken out of the client (see `retry_mutations`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from kafka_pubsub.subscribe.formats.notes import NOTHING, Doubt
from kafka_pubsub.subscribe.formats.record import RetryInfo, Why
from kafka_pubsub.subscribe.partition.crash_suspects import CrashSuspects, TrialLock
from kafka_pubsub.subscribe.partition.log_side import LogSide
from kafka_pubsub.subscribe.partition.moves import Move
from kafka_pubsub.subscribe.partition.next_move import NextMoves
from kafka_pubsub.subscribe.partition.outage import Outage
from tests.simulation import variants
from tests.simulation.plan import PlanVariant

__all__ = ["DEATH_MUTATIONS"]

Patch = pytest.MonkeyPatch


def attempts_lost(patch: Patch) -> None:
    """A message that fails keeps its number."""
    real = NextMoves._said

    def said(self: NextMoves, record: object, now: float, error: str) -> RetryInfo:
        return real(self, record, now, error)._replace(attempt=1)  # type: ignore[arg-type]

    patch.setattr(NextMoves, "_said", said)


def attempts_forgotten_in_a_crash(patch: Patch) -> None:
    """Started messages aren't noted."""
    patch.setattr(LogSide, "note", lambda self, position, gone: _unnoted(self.suspects))


def _unnoted(suspects: CrashSuspects) -> object:
    suspects.note((), 0)
    return NOTHING


def started_unnoted(patch: Patch) -> None:
    """After a crash handlers start as ever."""
    patch.setattr(CrashSuspects, "concerns", lambda self, offset: False)


def ends_uncounted(patch: Patch) -> None:
    """How many owners have ended in disorder isn't counted."""
    real = Doubt.next

    def following(self: Doubt, position: int, *, clean: bool, reach: int) -> Doubt:
        return real(self, position, clean=clean, reach=reach)._replace(twice=False)

    patch.setattr(Doubt, "next", following)


def several_trials(patch: Patch) -> None:
    """Suspects are tried together (not singly)."""
    patch.setattr(TrialLock, "take", lambda self, who: True)
    patch.setattr(CrashSuspects, "check", lambda self: None)
    patch.setattr(CrashSuspects, "wants_turn", property(lambda self: bool(self._bench)))


def culprit_forgotten(patch: Patch) -> None:
    """Who was on trial when its process died is a suspect like any other."""
    real = CrashSuspects.__init__

    def init(self: CrashSuspects, *arguments: object) -> None:
        real(self, *arguments)  # type: ignore[arg-type]
        self.culprit = None

    patch.setattr(CrashSuspects, "__init__", init)


def dead_letter_unreported(patch: Patch) -> None:
    """The log isn't told that a message's attempts are used up before its dead letter is written."""
    real = NextMoves._used_up

    def used_up(self: NextMoves, *arguments: object) -> Move:
        move = real(self, *arguments)  # type: ignore[arg-type]
        move.info = move.info._replace(why=Why.NACKED)  # type: ignore[call-arg]
        return move

    patch.setattr(NextMoves, "_used_up", used_up)


def bad_messages_are_an_outage(patch: Patch) -> None:
    """While the subscription probes, messages that have failed before are tried before all others."""
    patch.setattr(Outage, "fresh", property(lambda self: False))
    patch.setattr(Outage, "_look_up", lambda self: False)


#: Which plans show each of them within a few dozen seeds.
DEATH_MUTATIONS: Mapping[Callable[[Patch], None], PlanVariant] = {
    attempts_lost: variants.failing,
    attempts_forgotten_in_a_crash: variants.killing,
    started_unnoted: variants.killing,
    ends_uncounted: variants.killing,
    several_trials: variants.killing,
    culprit_forgotten: variants.killing,
    dead_letter_unreported: variants.not_dead_lettered,
    bad_messages_are_an_outage: variants.bad,
}
