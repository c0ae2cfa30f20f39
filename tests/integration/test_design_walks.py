"""docs/design.md draws how a call goes from file to file: here each picture is compared with a trace."""

from __future__ import annotations

import re
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from kafka_pubsub import Message, PubSub, RetryPolicy
from tests.support import until
from tests.unit.house.repository import PACKAGE, ROOT

#: Files that a walk may have at most, by the title of its picture.
LIMITS = {
    "From `Topic.publish` to librdkafka": 8,
    "From poll to callback": 10,
    "From ack to commit": 12,
    "From nack to the retry topic, and back": 18,
}

_PACKAGE = f"{PACKAGE}/"


def picture(title: str) -> tuple[dict[str, str], list[tuple[str, str]]]:
    """The file of each box, and the arrows between boxes."""
    text = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    drawn = re.search(rf"^## {re.escape(title)}\n.*?```mermaid\n(.*?)```", text, re.MULTILINE | re.DOTALL)
    assert drawn, f"docs/design.md has no picture {title!r}"
    boxes = dict(re.findall(r"(\w+)\[\"(?:[^\"]*<br>)?([\w/]+\.py)\"\]", drawn[1]))
    plain = re.sub(r"\[\"[^\"]*\"\]", "", drawn[1])
    arrows = re.findall(r"(\w+) --(?: \"[^\"]*\" --)?> (\w+)", plain)
    return boxes, arrows


def paths(title: str) -> list[list[str]]:
    """All ways through the picture, as files."""
    boxes, arrows = picture(title)
    ends = {end for _, end in arrows}
    ways = [[box] for box in boxes if box not in ends]
    found = []
    while ways:
        way = ways.pop()
        further = [end for start, end in arrows if start == way[-1]]
        ways += [[*way, end] for end in further]
        if not further:
            found.append([boxes[box] for box in way])
    return found


class Trace:
    """The files of the package in the order in which all threads called into them."""

    def __init__(self) -> None:
        self.files: list[str] = []
        self.on = False

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        if self.on and event == "call":
            name = frame.f_code.co_filename
            if name.startswith(_PACKAGE):
                self.files.append(name[len(_PACKAGE) :])

    def missing(self, way: Sequence[str]) -> Sequence[str]:
        """The part of the way that wasn't called in its order."""
        calls = iter(list(self.files))
        for at, name in enumerate(way):
            if name not in calls:
                return way[at:]
        return ()


@pytest.fixture
def trace() -> Iterator[Trace]:
    found = Trace()
    threading.setprofile(found)
    sys.setprofile(found)
    yield found
    sys.setprofile(None)
    threading.setprofile(None)


@pytest.fixture
def pubsub(trace: Trace, kafka: Any) -> Iterator[PubSub]:
    with PubSub(kafka.bootstrap) as found:
        yield found


def run(pubsub: PubSub, trace: Trace, name: str, count: int, *, slow: bool, nacks: int = 0) -> None:
    """Publishes messages and takes them, traced from the first publish to the last commit."""
    trace.files.clear()
    topic = pubsub.create_topic(name, partitions=1, message_ordering=True)
    retry = RetryPolicy(min_backoff=0.1, max_backoff=0.1)
    subscription = pubsub.create_subscription(f"{name}-all", topic=name, message_ordering=True, retry=retry)
    done: list[int] = []

    def take(message: Message) -> None:
        if slow:
            time.sleep(0.02)  # a callback that is too slow for the thread that reads
        if message.delivery_attempt <= nacks:
            message.nack()
        else:
            message.ack()
            done.append(message.offset)

    trace.on = True
    with subscription.pull(take):
        for number in range(count):
            topic.publish(b"%d" % number, ordering_key=f"key {number}").result(30)
        until(lambda: len(done) >= count, patience=60)
    trace.on = False


@pytest.mark.parametrize("title", LIMITS)
def test_a_picture_is_small_and_its_files_exist(title: str) -> None:
    boxes, _ = picture(title)
    assert 2 <= len(boxes) <= 12
    assert len(set(boxes.values())) <= LIMITS[title]
    assert [name for name in boxes.values() if not (Path(PACKAGE) / name).is_file()] == []


def test_each_way_is_gone_in_its_order(pubsub: PubSub, trace: Trace) -> None:
    name = f"walks-{uuid.uuid4().hex[:8]}"
    # A single message, so that few files are called more than once; and some that are quick enough to be taken inline.
    run(pubsub, trace, f"{name}-slow", 1, slow=True, nacks=1)
    left = {title: [way for way in paths(title) if trace.missing(way)] for title in LIMITS}
    run(pubsub, trace, f"{name}-quick", 20, slow=False)
    wrong = [
        (title, trace.missing(way)) for title, ways in left.items() for way in ways if trace.missing(way)
    ]
    assert wrong == []
