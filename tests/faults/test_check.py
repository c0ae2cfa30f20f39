"""The check of a round finds each anomaly that is planted into histories that are well."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from kafka_pubsub.history.history import HistoryFile, fingerprint
from tests.faults.check import Event, histories, judge, prove
from tests.faults.dead_letter_reader import DeadLetter
from tests.faults.progress import Progress, place_of
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


def found(histories: Histories, *letters: DeadLetter, poison: str = "") -> set[str]:
    """The kinds of what is found."""
    judgement = judge(histories.values(), letters, poison={poison})
    return {problem.partition(":")[0] for problem in judgement.problems}


def test_what_is_well_is_well_and_counted() -> None:
    judgement = judge(well().values())
    assert judgement.problems == []
    assert judgement.counts == {
        "stored": 3,
        "unsure": 0,
        "delivered": 4,
        "again": 1,
        "acked": 3,
        "nacked": 1,
        "buried": 0,
    }
    assert judgement.stall < 1e-6


def test_what_nobody_acked_is_lost() -> None:
    told = well()
    del told["consumer-1"][4]
    assert found(told) == {"lost"}


def test_a_message_that_overtakes_one_of_its_key_in_another_lane_is_found() -> None:
    told = well()
    for events in told.values():
        for event in events:
            if event.get("offset") == 7:
                event["partition"] = 1 << 20
    assert found(told) == set()
    told["consumer-1"][3]["t"] = 20
    assert found(told) == {"overtaken"}
    told["publisher-1"] = [event for event in told["publisher-0"] if event["n"] == 2]
    told["publisher-0"] = [event for event in told["publisher-0"] if event["n"] != 2]
    assert found(told) == set(), "messages of two histories have no order"


def test_a_message_whose_publishing_nobody_confirmed_may_be_delivered() -> None:
    told = well()
    del told["publisher-0"][-1]
    judgement = judge(told.values())
    assert judgement.problems == []
    assert judgement.counts["unsure"] == 1


def poisoned() -> Histories:
    """The first message of key a was poison and was never acked."""
    told = well()
    del told["consumer-1"][1]
    return told


LETTER = DeadLetter((0, 5), 5, "attempts used up", "s0")


def test_a_dead_letter_finishes_poison() -> None:
    assert found(poisoned(), LETTER, poison="s0") == set()
    assert judge(poisoned().values(), [LETTER], poison={"s0"}).counts["buried"] == 1


def test_poison_must_be_dead_lettered_once_and_whole_and_nothing_else_may_be() -> None:
    assert found(poisoned(), poison="s0") == {"lost", "digested"}
    assert found(well(), LETTER, poison="s0") == {"digested"}
    assert found(poisoned(), LETTER, LETTER, poison="s0") == {"buried"}
    assert found(poisoned(), LETTER) == {"buried"}
    assert found(poisoned(), replace(LETTER, sha="other"), poison="s0") == {"buried"}
    assert found(poisoned(), replace(LETTER, origin=(0, 6)), poison="s0") == {"lost", "buried", "digested"}
    assert found(poisoned(), LETTER, DeadLetter((-1, -1), 0, "unreadable", "s9"), poison="s0") == {"buried"}


def test_a_partition_that_stands_still_although_it_could_go_on_is_found() -> None:
    told = well()
    for event in told["consumer-1"]:
        event["t"] += 30 * 10**9
    # The second message of key a could not begin before the first was acked.
    assert judge(told.values(), longest_stall=20.0).problems == []
    told["consumer-1"][1]["t"] = 21
    judgement = judge(told.values(), longest_stall=20.0)
    assert [problem.partition(" until")[0] for problem in judgement.problems] == [
        "stalled: partition 0: nothing for 30.0 s"
    ]
    assert round(judgement.stall, 1) == 30.0


def test_many_findings_of_a_kind_are_counted_not_listed() -> None:
    letters = [DeadLetter((1, at), 5, "attempts used up", f"x{at}") for at in range(8)]
    problems = judge(well().values(), letters).problems
    assert len(problems) == 6
    assert problems[-1] == "buried: 3 more"


def test_histories_are_read_to_where_a_kill_has_cut_them(tmp_path: Path) -> None:
    history = HistoryFile(tmp_path / "publisher-0.jsonl", role="publisher", topic="t")
    history.send(0, "a", fingerprint(b"a", b"body", {}))
    # Not closed: zeros follow, as after SIGKILL; and a line without its end, as when it came in the middle of it.
    path = tmp_path / "consumer-0.jsonl"
    path.write_bytes(b'{"event":"open","t":1}\n{"event":"deliver","t":2,"par' + bytes(100))
    told = histories(tmp_path)
    assert [event["event"] for event in told["publisher-0"]] == ["open", "send"]
    assert [event["event"] for event in told["consumer-0"]] == ["open"]
    history.close()


def test_progress_reads_on_where_histories_have_grown(tmp_path: Path) -> None:
    progress = Progress(tmp_path)
    publisher = HistoryFile(tmp_path / "publisher-0.jsonl", role="publisher", topic="t")
    consumer = HistoryFile(tmp_path / "consumer-0.jsonl", role="subscriber", topic="t", subscription="s")
    for number in range(3):
        publisher.stored(number, 1, 10 + number)
    progress.look()
    assert progress.unfinished(set()) == {place_of(1, at) for at in (10, 11, 12)}
    consumer.ack(1, 11, 1, 1)
    progress.look()
    assert progress.unfinished({place_of(1, 12)}) == {place_of(1, 10)}
    consumer.ack(1, 10, 1, 1)
    publisher.close()
    consumer.close()
    progress.look()
    assert progress.unfinished(set()) == {place_of(1, 12)}


def test_the_checker_judges_the_same_histories(tmp_path: Path) -> None:
    sha = fingerprint(b"a", b"body", {})
    publisher = HistoryFile(tmp_path / "publisher-0.jsonl", role="publisher", topic="t")
    publisher.send(0, "a", sha)
    publisher.stored(0, 0, 0)
    publisher.close()
    consumer = HistoryFile(
        tmp_path / "consumer-0.jsonl", role="subscriber", topic="t", subscription="s", process=1
    )
    consumer.assign(0, 1, (0, ()), None, 0)
    consumer.delivered(0, 0, 1, 1, sha)
    # A commit before the ack, which only the checker can see.
    consumer.commit(1, 0, 1, (1, ()), None)
    consumer.answer(1, 0, 1, accepted=True)
    consumer.ack(0, 0, 1, 1)
    consumer.handler_end(0, 0, 1)
    consumer.revoke(0, 1, lost=False)
    consumer.close()
    driver = HistoryFile(tmp_path / "driver.jsonl", role="driver", topic="t", subscription="s")
    driver.subscribe({0: 0})
    driver.close()
    assert [problem.split(": ")[:2] for problem in prove(tmp_path).problems] == [["s", "commit_early"]]
    assert judge(histories(tmp_path).values()).problems == []


def test_a_body_proves_that_it_is_whole() -> None:
    body = payload(lambda size: b"x" * size, 20)
    assert intact(body)
    assert not intact(body[:-1] + bytes([body[-1] ^ 1]))
    assert not intact(b"y" + body[1:])
