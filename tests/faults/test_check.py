"""The check of a round finds each anomaly that is planted into histories that are well."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_pubsub.observe.history import HistoryFile, fingerprint
from tests.faults.check import Event, histories, judge, prove
from tests.faults.morgue import DeadLetter
from tests.faults.publisher import intact, payload

Histories = dict[str, list[Event]]


def well() -> Histories:
    """Key a: two messages, the first nacked once and then taken by another process; key b: one."""

    def at(time: int, event: str, partition: int, offset: int, **more: object) -> Event:
        return {"event": event, "t": time, "partition": partition, "offset": offset, "epoch": 1, **more}

    return {
        "publisher-0": [
            {"event": "send", "t": 1, "n": 0, "key": "a", "sha": "s0"},
            {"event": "send", "t": 2, "n": 1, "key": "b", "sha": "s1"},
            {"event": "send", "t": 3, "n": 2, "key": "a", "sha": "s2"},
            at(4, "stored", 0, 5, n=0),
            at(5, "stored", 0, 6, n=1),
            at(6, "stored", 0, 7, n=2),
        ],
        "consumer-0": [
            at(10, "deliver", 0, 5, sha="s0"),
            at(11, "deliver", 0, 6, sha="s1"),
            at(12, "nack", 0, 5),
            at(13, "handler_end", 0, 5),
            at(14, "ack", 0, 6),
            at(15, "handler_end", 0, 6),
        ],
        "consumer-1": [
            at(20, "deliver", 0, 5, sha="s0"),
            at(21, "ack", 0, 5),
            at(22, "handler_end", 0, 5),
            at(23, "deliver", 0, 7, sha="s2"),
            at(24, "ack", 0, 7),
            at(25, "handler_end", 0, 7),
        ],
    }


def test_what_is_well_is_well_and_counted() -> None:
    verdict = judge(well())
    assert verdict.problems == []
    assert verdict.counts == {
        "stored": 3,
        "unsure": 0,
        "delivered": 4,
        "again": 1,
        "acked": 3,
        "nacked": 1,
        "buried": 0,
    }
    assert verdict.stall < 1e-6


def lose(histories: Histories) -> None:
    del histories["consumer-1"][4]


def overtake(histories: Histories) -> None:
    histories["consumer-1"][3]["t"] = 16


def overtake_in_silence(histories: Histories) -> None:
    """The first of the key is acked by nobody before the second comes."""
    histories["consumer-1"][1]["t"] = 30


def overlap(histories: Histories) -> None:
    events = histories["consumer-1"]
    events.insert(5, events.pop(2))


def damage(histories: Histories) -> None:
    histories["consumer-0"][1]["sha"] = "other"


def invent(histories: Histories) -> None:
    histories["consumer-1"].append(
        {"event": "deliver", "t": 40, "partition": 0, "offset": 99, "epoch": 1, "sha": "s99"}
    )


@pytest.mark.parametrize(
    ("plant", "kinds"),
    [
        (lose, {"lost"}),
        (overtake, {"order"}),
        (overtake_in_silence, {"order"}),
        (overlap, {"overlap"}),
        (damage, {"damaged"}),
        (invent, {"foreign"}),
    ],
)
def test_an_anomaly_is_found_and_called_by_its_name(
    plant: Callable[[Histories], None], kinds: set[str]
) -> None:
    histories = copy.deepcopy(well())
    plant(histories)
    assert {problem.partition(":")[0] for problem in judge(histories).problems} == kinds


def test_a_message_whose_publishing_nobody_confirmed_may_be_delivered() -> None:
    histories = well()
    del histories["publisher-0"][-1]
    verdict = judge(histories)
    assert verdict.problems == []
    assert verdict.counts["unsure"] == 1


def poisoned() -> Histories:
    """The first message of key a was poison and was never acked."""
    histories = well()
    del histories["consumer-1"][1]
    return histories


LETTER = DeadLetter((0, 5), 5, "attempts used up", "s0")


def bury(histories: Histories, *letters: DeadLetter, poison: bool = True) -> set[str]:
    """The kinds of what is found."""
    verdict = judge(histories, letters, is_poison=lambda name, number: poison and number == 0)
    return {problem.partition(":")[0] for problem in verdict.problems}


def test_a_dead_letter_finishes_poison() -> None:
    assert bury(poisoned(), LETTER) == set()
    assert judge(poisoned(), [LETTER], is_poison=lambda name, number: number == 0).counts["buried"] == 1


def test_poison_must_be_buried_once_and_whole_and_nothing_else_may_be() -> None:
    assert bury(poisoned()) >= {"lost", "digested"}
    assert bury(well(), LETTER) == {"digested"}
    assert bury(poisoned(), LETTER, LETTER) == {"buried"}
    assert bury(poisoned(), LETTER, poison=False) == {"buried"}
    assert bury(poisoned(), replace(LETTER, sha="other")) == {"buried"}
    assert bury(poisoned(), LETTER, DeadLetter((-1, -1), 0, "unreadable", "s9")) == {"buried"}


def test_the_successor_of_a_dead_letter_waits_for_its_end() -> None:
    histories = poisoned()
    histories["consumer-1"][2]["t"] = 19
    assert bury(histories, LETTER) == {"order"}


def test_a_partition_that_stands_still_although_it_could_go_on_is_found() -> None:
    histories = well()
    for event in histories["consumer-1"]:
        event["t"] += 30 * 10**9
    verdict = judge(histories, longest_stall=20.0)
    # The second message of key a could not begin before the first was acked.
    assert verdict.problems == []
    histories["consumer-1"][1]["t"] = 21
    verdict = judge(histories, longest_stall=20.0)
    assert [problem.partition(" until")[0] for problem in verdict.problems] == [
        "stalled: partition 0 stood still for 30.0 s"
    ]
    assert round(verdict.stall, 1) == 30.0


def test_many_findings_of_a_kind_are_counted_not_listed() -> None:
    histories = well()
    for _ in range(8):
        invent(histories)
        histories["consumer-1"][-1]["offset"] += len(histories["consumer-1"])
    found = [problem for problem in judge(histories).problems if problem.startswith("foreign")]
    assert len(found) == 6
    assert found[-1] == "foreign: 3 more"


def test_histories_are_read_to_where_a_kill_has_cut_them(tmp_path: Path) -> None:
    history = HistoryFile(tmp_path / "publisher-0.jsonl", role="publisher", topic="t")
    history.send(0, "a", fingerprint(b"a", b"body", {}))
    # Not closed: zeros follow, as after SIGKILL; and a line without its end, as when it came in the middle of it.
    path = tmp_path / "consumer-0.jsonl"
    path.write_bytes(b'{"event":"open","t":1}\n{"event":"deliver","t":2,"par' + bytes(100))
    found = histories(tmp_path)
    assert [event["event"] for event in found["publisher-0"]] == ["open", "send"]
    assert [event["event"] for event in found["consumer-0"]] == ["open"]
    history.close()


def consume(folder: Path, *, assigned: bool) -> None:
    """One message, published, delivered and acked; the consumer's owning its partition is told or not."""
    sha = fingerprint(b"a", b"body", {})
    publisher = HistoryFile(folder / "publisher-0.jsonl", role="publisher", topic="t")
    publisher.send(0, "a", sha)
    publisher.stored(0, 0, 0)
    publisher.close()
    consumer = HistoryFile(
        folder / "consumer-0.jsonl", role="subscriber", topic="t", subscription="s", process=1
    )
    if assigned:
        consumer.assign(0, 1, (0, ()), None, 0)
    consumer.delivered(0, 0, 1, 1, sha)
    if assigned:
        # A commit before the ack, which only the checker can see.
        consumer.commit(1, 0, 1, (1, ()), None)
        consumer.answer(1, 0, 1, accepted=True)
    consumer.ack(0, 0, 1, 1)
    consumer.handler_end(0, 0, 1)
    if assigned:
        consumer.revoke(0, 1, lost=False)
    consumer.close()
    driver = HistoryFile(folder / "driver.jsonl", role="driver", topic="t", subscription="s")
    driver.subscribe({0: 0})
    driver.close()


def test_the_checker_judges_everything_once_assignments_are_told(tmp_path: Path) -> None:
    consume(tmp_path, assigned=True)
    assert {problem.partition(":")[0] for problem in prove(tmp_path)} == {"commit_early"}
    assert judge(histories(tmp_path)).problems == []


def test_until_then_it_finds_processes_that_vanished_and_nothing_that_it_cannot_know(tmp_path: Path) -> None:
    consume(tmp_path, assigned=False)
    assert prove(tmp_path) == []
    path = tmp_path / "consumer-0.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    assert {problem.partition(":")[0] for problem in prove(tmp_path)} == {"vanished"}


def test_a_body_proves_that_it_is_whole() -> None:
    body = payload(lambda size: b"x" * size, 20)
    assert intact(body)
    assert not intact(body[:-1] + bytes([body[-1] ^ 1]))
    assert not intact(b"y" + body[1:])
