"""Members that come, go, die and stand still while messages flow, judged by their histories.

Every test ends with the checker: nothing lost, no key out of order, no two handlers of a key at a time, every
redelivery with a cause, no commit past the acks, and every body as it was published.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_pubsub.local.pytest_plugin import RunningKafka
from tests.checker.judgement import Judgement
from tests.integration.processes.company import PATIENCE, Company, Member
from tests.support import until

pytestmark = pytest.mark.timeout(600)

#: Messages a second: as many as a busy machine with other tenants keeps up with, and more than a member could take.
RATE = 1000
#: Seconds after which the group has given a silent member up: its session is 6 s.
BEYOND_SESSION = 9.0


@pytest.fixture
def company(kafka: RunningKafka, tmp_path: Path) -> Iterator[Company]:
    with Company(kafka.bootstrap, tmp_path) as company:
        yield company


def proven(judgement: Judgement) -> dict[str, int]:
    """All promises were kept; returns the figures."""
    assert judgement.ok, judgement.text
    return judgement.counts


def busy(company: Company, *members: Member) -> bool:
    """Whether each of them has acked some hundred messages."""
    return all(len(list(company.told("ack", member))) > 200 for member in members)


def test_members_come_and_go_in_good_order(company: Company) -> None:
    first = company.hire()
    company.publish(RATE)
    others = [company.hire() for _ in range(3)]
    until(lambda: busy(company, *others), "the others have work", PATIENCE)
    company.dismiss(first, others[0])
    until(lambda: len(company.partitions(*others[1:])) == 4, "two have all partitions", PATIENCE)
    company.enough()
    company.settle()
    counts = proven(company.close())
    assert counts["redelivered_nack"] > 100
    assert counts["ownerships"] >= 8
    assert "redelivered_crash" not in counts
    assert "redelivered_lost" not in counts


def test_members_are_killed(company: Company) -> None:
    members = [company.hire() for _ in range(4)]
    company.publish(RATE)
    until(lambda: busy(company, *members), "all members have work", PATIENCE)
    company.kill(members[0], members[2])
    until(
        lambda: len(company.partitions(members[1], members[3])) == 4,
        "the others have all partitions",
        PATIENCE,
    )
    company.enough()
    company.settle()
    counts = proven(company.close())
    # Messages in flight or uncommitted, of two members that got 250 messages a second each and commit every 0.1 s.
    assert 0 < counts["redelivered_crash"] < 1000


def test_a_member_that_stood_still_acts_on_nothing(company: Company) -> None:
    stopped, other = company.hire(seconds=0.03), company.hire(seconds=0.03)
    company.publish(RATE)
    until(lambda: busy(company, stopped, other), "both members have work", PATIENCE)
    company.stop(stopped)
    time.sleep(BEYOND_SESSION)
    company.go_on(stopped)
    company.enough()
    company.settle()
    counts = proven(company.close())
    assert counts["redelivered_stop"] > 0
    assert any(event["lost"] for event in company.told("revoke", stopped))
    assert any(company.told("ack", other))


def test_a_callback_outlives_a_revoke_and_its_partition_comes_back(company: Company) -> None:
    owner = company.hire(nacks=0)
    for number in range(8):
        company.topic.publish(b"slow", ordering_key=f"slow-{number}", attributes={"takes": "15"})
        company.topic.publish(b"next", ordering_key=f"slow-{number}")
    company.topic.flush(PATIENCE)
    until(lambda: len(list(company.told("deliver", owner))) >= 8, "the slow handlers run", PATIENCE)
    guest = company.hire(nacks=0)
    until(lambda: any(company.told("assign", guest)), "some partitions went", PATIENCE)
    company.dismiss(guest)
    company.settle()
    counts = proven(company.close())
    assigned = [event["partition"] for event in company.told("assign", owner)]
    assert len(assigned) >= len(set(assigned)) * 2, "each partition went and came back"
    assert counts["messages"] == 16


def test_a_member_dies_inside_a_move(company: Company) -> None:
    victim = company.hire(dies=3)
    company.publish(RATE)
    company.store_dead_letter(victim)
    successor = company.hire()
    company.enough()
    company.settle()
    counts = proven(company.close())
    assert counts["moves"] > 0
    assert any(company.told("assign", successor))
