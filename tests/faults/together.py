"""Delays and multicasts beside a round's messages: their services run, and their home topics are judged at the end.

Theory. A delayed message's publisher doesn't know its place at home, so no history has it. The driver reads the homes,
judges what it finds, and writes the places into a history as their publisher's. So the checker judges how consumers
treat delayed messages as well.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from confluent_kafka import Consumer, Message, TopicPartition

from kafka_pubsub import PubSub, Topic
from kafka_pubsub.history.history import HistoryFile
from kafka_pubsub.history.protocol import number_of
from kafka_pubsub.lane_names import lane_of
from kafka_pubsub.partition_id import PartitionId
from tests.acceptance.test_multicast import parse_place
from tests.faults import delayed, multicast_history
from tests.faults.dead_letter_reader import fingerprint_of, texts_of
from tests.faults.delayed import AtHome
from tests.faults.multicast_history import Delivered
from tests.faults.services import Services
from tests.support import until

__all__ = ["Together"]

#: Causal topics, of a partition each.
CAUSAL = 4
#: Seconds for a router to make its topics, on a busy machine.
PATIENCE = 120.0
#: Problems of a kind that are listed.
LISTED = 5


class Together:
    """The loads beside a round's own. `folder` keeps diaries, and histories in `told`."""

    def __init__(self, bootstrap: str, folder: Path, topic: Topic, partitions: int, seed: int) -> None:
        self._bootstrap, self._folder, self._topic, self._partitions = bootstrap, folder, topic, partitions
        self._causal = [f"{topic.name}-c{number}" for number in range(CAUSAL)]
        with PubSub(bootstrap) as ps:
            for name in self._causal:
                ps.create_topic(name, causal=True)
            self.services = Services(bootstrap, folder, self._causal, seed)
            # Else a publisher makes the topics of delays, with all tiers.
            until(lambda: ps.delays.routers() > 0, "a delay router", PATIENCE)
        self._found: list[AtHome] = []
        self._causal_homes: dict[str, list[Delivered]] = {name: [] for name in self._causal}
        self.problems: list[str] = []
        self.counts: dict[str, int] = {}

    def settle(self, seconds: float) -> None:
        """Waits until all that was published is at home, and judges it."""
        self.services.retire("sender")
        sent = delayed.published(self._folder)
        told = multicast_history.History.read(self._folder.glob("*.history"))
        reader, end = self._reader(), time.monotonic() + seconds
        while True:
            self._read(reader, 2.0)
            here = {each.sha for each in self._found}
            left = sum(each.sha not in here for each in sent), len(told.missing(self._causal_homes))
            if left == (0, 0) or time.monotonic() > end:
                break
        reader.close()
        for kind in ("router", "sequencer"):
            self.services.retire(kind)
        self._write_history()
        self._judge(sent, told)

    def _judge(self, sent: Sequence[delayed.Published], told: multicast_history.History) -> None:
        wrong = delayed.judge(sent, delayed.unsure(self._folder), self._found)
        self.problems += [f"delays: {each}" for each in wrong[:LISTED]]
        torn = multicast_history.judge(told, self._causal_homes)
        self.problems += [f"multicast: {each}" for each in torn[:LISTED]]
        self.problems += self.services.findings
        due = {each.sha: each.due for each in sent}
        late = sorted(each.time - due[each.sha] for each in self._found if each.sha in due)
        self.counts = {
            "delayed": len(self._found),
            "late_p50_ms": round(1000 * late[len(late) // 2]) if late else 0,
            "late_max_ms": round(1000 * late[-1]) if late else 0,
            "multicasts": len(told.published),
            "multicasts_sent": len(told.sent_at),
            "multicasts_home": sum(map(len, self._causal_homes.values())),
            "wrong": len(wrong) + len(torn),
        }

    # -- the homes ---------------------------------------------------------------------------------------------------

    def _reader(self) -> Consumer:
        consumer = Consumer(
            {"bootstrap.servers": self._bootstrap, "group.id": "none", "enable.auto.commit": False}
        )
        consumer.assign([TopicPartition(*place, 0) for place in self._places()])
        return consumer

    def _places(self) -> Iterator[tuple[str, int]]:
        for name in self._topic.lanes:
            yield from ((name, number) for number in range(self._partitions))
        yield from ((name, 0) for name in self._causal)

    def _read(self, reader: Consumer, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for record in reader.consume(500, 0.2):
                if record.error() is None:
                    self._take(record)

    def _take(self, record: Message) -> None:
        headers = texts_of(record)
        home = record.topic() or ""
        if home in self._causal_homes:
            place = parse_place(headers["ps-clock"])
            self._causal_homes[home].append(Delivered((record.value() or b"").decode(), place))
        elif "ps-id" in headers:
            key = (record.key() or b"").decode()
            place_at_home = (home, record.partition() or 0), record.offset() or 0
            stored = record.timestamp()[1] / 1000
            self._found.append(AtHome(*place_at_home, stored, key, headers["ps-id"], fingerprint_of(record)))

    def _write_history(self) -> None:
        history = HistoryFile(
            self._folder / "told" / "delayed.jsonl", role="publisher", topic=self._topic.name
        )
        for number, each in enumerate(self._found, 1):
            name, partition = each.home
            lane = lane_of(name)
            history.send(number, each.key, each.sha)
            place = number_of(PartitionId(0 if lane is None else lane[1].number, partition))
            history.stored(number, place, each.offset)
        history.close()

    def close(self) -> None:
        """Nothing is left."""
        self.services.close()
