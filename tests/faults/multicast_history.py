"""Judges what multicasting processes wrote down, and what lies in the home topics, by what multicast promises."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

__all__ = ["Delivered", "History", "Place", "judge"]

Place = tuple[int, str, int]


class Delivered(NamedTuple):
    """A record of a home topic."""

    message: str
    place: Place


class Published(NamedTuple):
    """A call of `publish_multi`. `after`: messages that its process had been told of over the socket."""

    at: float
    sender: str
    number: int
    topics: Sequence[str]
    after: Sequence[str]


@dataclass
class History:
    """What the processes did: by message the call, when its future resolved, and the timestamp that it gave."""

    published: dict[str, Published] = field(default_factory=dict)
    sent_at: dict[str, float] = field(default_factory=dict)
    places: dict[str, Place] = field(default_factory=dict)

    @staticmethod
    def read(files: Iterable[Path]) -> History:
        """Reads the files of all processes; a killed one may have left a part of a line."""
        found = History()
        for path in files:
            for text in path.read_bytes().split(b"\n"):
                if not text.endswith(b"}"):
                    continue
                line = json.loads(text)
                if "sent" in line:
                    found.sent_at[line["sent"]] = line["at"]
                    clock, topic, number = line["place"]
                    found.places[line["sent"]] = (clock, topic, number)
                else:
                    call = (line["at"], line["sender"], line["number"], line["topics"], line["after"])
                    found.published[line["publish"]] = Published(*call)
        return found

    def missing(self, homes: Mapping[str, Sequence[Delivered]]) -> list[str]:
        """Returns the messages that aren't at all their topics, although they are sent or at one of them."""
        there = {name: {each.message for each in home} for name, home in homes.items()}
        wanted = set(self.sent_at).union(*there.values())
        return [
            message
            for message in sorted(wanted & set(self.published))
            if not all(message in there[name] for name in self.published[message].topics)
        ]


def judge(history: History, homes: Mapping[str, Sequence[Delivered]]) -> list[str]:
    """Returns the promises that were broken; empty if none was.

    1. A message is at all its topics or at none, at no other one, and once; it is at all if its future resolved.
    2. It has one timestamp at all of them, which its future gave; each home is in the order of the timestamps. So two
       topics have their common messages in a single order.
    3. A message that was published when the future of another had resolved comes behind it, and so does one whose
       process was told of the other over the socket, and one that its sender published later.
    """
    problems = [f"{message} isn't at all its topics" for message in history.missing(homes)]
    places = dict(history.places)
    for name, home in homes.items():
        for one, two in pairwise(home):
            if not one.place < two.place:
                problems.append(
                    f"{name}: {two.message} at {two.place} comes behind {one.message} at {one.place}"
                )
        at = {each.message: number for number, each in enumerate(home)}
        numbers: dict[str, int] = {}
        for message, place in home:
            call = history.published.get(message)
            if call is None or name not in call.topics:
                problems.append(f"{name}: {message} wasn't published to it")
                continue
            if places.setdefault(message, place) != place:
                problems.append(f"{name}: {message} has two timestamps, {place} and {places[message]}")
            if call.number <= numbers.get(call.sender, 0):
                problems.append(f"{name}: {message} comes behind what its sender published later, or twice")
            numbers[call.sender] = call.number
            problems += [
                f"{name}: {message} comes before its cause {cause}"
                for cause in call.after
                if at.get(cause, -1) > at[message]
            ]
        problems += _overtaken(history, name, home)
    return problems


def _overtaken(history: History, name: str, home: Sequence[Delivered]) -> list[str]:
    """A message that was sent before another was published lies behind it."""
    found, earliest, which = [], math.inf, ""
    for message, _ in reversed(home):
        call = history.published.get(message)
        if call is not None and earliest < call.at:
            found.append(f"{name}: {message} was published when {which} was sent, and comes before it")
        if (sent := history.sent_at.get(message, math.inf)) < earliest:
            earliest, which = sent, message
    return found
