"""A written history, read back as lists of events, with ways to find a place in it."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

from tests.checker.reading import Event

__all__ = ["LEASE", "MESSAGE", "OWNER", "Story", "acked", "find", "same", "stand_in", "successors", "wall"]


class Story:
    """The files of a history as lists of events, to be changed."""

    def __init__(self, paths: list[Path], chance: random.Random) -> None:
        self.chance = chance
        self.files = {
            path: [json.loads(line) for line in path.read_bytes().split(b"\0")[0].splitlines() if line]
            for path in paths
        }

    def save(self) -> list[Path]:
        """Writes the files anew."""
        for path, events in self.files.items():
            path.write_text("".join(json.dumps(event, separators=(",", ":")) + "\n" for event in events))
        return list(self.files)

    def role(self, role: str) -> list[list[Event]]:
        """Files of one role, in random order."""
        found = [events for events in self.files.values() if events[0]["role"] == role]
        self.chance.shuffle(found)
        return found

    def spots(self, kind: str) -> Iterator[tuple[list[Event], int]]:
        """Every event of a kind, in random order: its file, and its place there."""
        spots = [
            (events, at)
            for events in self.role("subscriber")
            for at, event in enumerate(events)
            if event["event"] == kind
        ]
        self.chance.shuffle(spots)
        return iter(spots)

    def keys(self) -> dict[tuple[int, int], str | None]:
        """The key of each message."""
        sent, keys = {}, {}
        for event in self.role("publisher")[0]:
            if event["event"] == "send":
                sent[event["n"]] = event["key"]
            elif event["event"] == "stored":
                keys[event["partition"], event["offset"]] = sent[event["n"]]
        return keys


def find(events: list[Event], begin: int, like: Event, kind: str, *fields: str) -> int:
    """The next event of a kind that agrees with another event; -1 if there is none."""
    for at in range(begin + 1, len(events)):
        if events[at]["event"] == kind and all(events[at].get(field) == like[field] for field in fields):
            return at
    return -1


LEASE = ("partition", "offset", "epoch", "attempt")
MESSAGE = ("partition", "offset", "epoch")
OWNER = ("partition", "epoch")


def acked(story: Story) -> Iterator[tuple[list[Event], int, int, int]]:
    """Deliveries that were acked, and not expired: file, delivery, ack, end."""
    for events, at in story.spots("deliver"):
        event = events[at]
        ack = find(events, at, event, "ack", *LEASE)
        end = find(events, at, event, "handler_end", *MESSAGE)
        if (
            0 <= at < ack
            and end >= 0
            and find(events, at, event, "expire", *LEASE) < 0
            and "batch" not in event
        ):
            yield events, at, ack, end


def stand_in(story: Story, events: list[Event], at: int) -> list[Event]:
    """Another process's file, in which partition and message of a delivery turn up as well."""
    delivery = events[at]
    begin = max(i for i in range(at) if events[i]["event"] == "assign" and same(events[i], delivery, OWNER))
    head = {**events[0], "pid": 9999, "process": 9999}
    now = delivery["t"]
    return [
        head,
        {**events[begin], "t": now, "epoch": 1},
        {**delivery, "t": now + 1, "epoch": 1},
        {
            "event": "handler_end",
            "t": now + 2,
            "partition": delivery["partition"],
            "offset": delivery["offset"],
            "epoch": 1,
        },
        {"event": "close", "t": now + 3},
    ]


def same(one: Event, other: Event, fields: tuple[str, ...]) -> bool:
    return all(one[field] == other[field] for field in fields)


def successors(story: Story) -> Iterator[tuple[list[Event], int, int, int, int]]:
    """Two messages of a key, in turn in the same ownership: file, delivery, ack, end, next delivery."""
    keys = story.keys()
    for events, at, ack, end in acked(story):
        mine = events[at]
        key = keys.get((mine["partition"], mine["offset"]))
        if key is None or not events[0]["ordered"]:
            continue
        for then in range(min(ack, end) + 1, len(events)):
            other = events[then]
            if then <= max(ack, end) and other["event"] == "deliver":
                continue
            if other["event"] in ("commit", "assign", "revoke"):
                break
            if other["event"] == "deliver" and same(other, mine, OWNER) and other["offset"] != mine["offset"]:
                if (
                    keys.get((other["partition"], other["offset"])) == key
                    and other["offset"] > mine["offset"]
                ):
                    yield events, at, ack, end, then
                break


def wall(events: list[Event], at: int) -> int:
    """When it happened."""
    return int(events[at]["t"] - events[0]["t"] + events[0]["wall"])
