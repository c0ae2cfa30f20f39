"""Handlers that run: of a key one at a time, in a process without exception, between processes unless explained."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tests.checker.ownership import Ownership
from tests.checker.reading import History
from tests.checker.report import Report, Violation
from tests.checker.times import Times

__all__ = ["Handler", "Running"]

Key = tuple[int, int]


@dataclass(eq=False, slots=True)
class Handler:
    """A delivery whose handler hasn't ended."""

    history: History
    owner: Ownership
    offset: int
    since: int
    batch: int | None
    expired: bool = False
    #: Unexplained handlers elsewhere that began before this one's end was read, with their times.
    rivals: list[tuple[Handler, int]] = field(default_factory=list)


class Running:
    """All handlers that run now, by partition and key."""

    def __init__(self, times: Times, report: Report, found: Callable[[str, str, Key], None]) -> None:
        self._times, self._report, self._found = times, report, found
        self._by_key: dict[Key, list[Handler]] = {}

    def begins(self, key: Key, callback: Handler) -> None:
        """A handler begins; looks who else holds the key."""
        others = self._by_key.get(key)
        if others is None:
            self._by_key[key] = [callback]
            return
        for other in list(others):
            if other.history is not callback.history:
                self._across(others, other, callback)
            elif callback.batch is None or other.batch != callback.batch:
                text = f"{key[0]}:{callback.offset} begins while {other.offset} of the same key is with its callback"
                self._found("overlap", text, (key[0], callback.offset))
        others.append(callback)

    def _across(self, others: list[Handler], older: Handler, newer: Handler) -> None:
        now = newer.since
        dies = self._times.dies(older.history)
        if dies <= now + self._times.skew:
            if dies < now - self._times.skew:
                others.remove(older)
            return
        why = "expire" if older.expired else self._times.gone(older.owner, now)
        if not why and newer.owner.superseded is not None and self._times.excused(newer.owner, now):
            why = "late owner"
        if why:
            self._report.overlaps[why] += 1
        else:
            older.rivals.append((newer, now))

    def expires(self, key: Key, history: History, offset: int) -> None:
        """The lease is over, its handler still runs."""
        for callback in self._by_key.get(key, ()):
            if callback.history is history and callback.offset == offset:
                callback.expired = True

    def ends(self, key: Key, history: History, offset: int, time: int) -> bool:
        """False if no such handler runs."""
        callbacks = self._by_key.get(key, [])
        for callback in callbacks:
            if callback.history is history and callback.offset == offset:
                callbacks.remove(callback)
                if not callbacks:
                    del self._by_key[key]
                if callback.rivals:
                    self._judge(key, callback, time)
                return True
        return False

    def _judge(self, key: Key, callback: Handler, ended: int) -> None:
        for rival, since in callback.rivals:
            skew = 0 if rival.history.host == callback.history.host else self._times.skew
            if ended > since + skew:
                text = (
                    f"{key[0]}:{rival.offset} began in {rival.history.name} while {callback.offset} of the same key "
                    f"was with its callback in {callback.history.name}"
                )
                about = [(key[0], callback.offset), (key[0], rival.offset)]
                self._report.add(Violation("overlap", text, None, about))

    def finish(self) -> None:
        """Handlers without an end ran as long as their processes lived."""
        for key, callbacks in self._by_key.items():
            for callback in callbacks:
                if callback.rivals:
                    self._judge(key, callback, self._times.dies(callback.history))
