"""Anomalies, each planted into a valid history: the events of a broken client, or of a broken log.

A plant changes a story and returns True, or finds no place for itself and returns False. Beside each plant are the
names that the checker must give; it may find more, since a single anomaly often breaks several promises.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.checker.reading import Event
from tests.checker.story import LEASE, MESSAGE, OWNER, Story, acked, find, same, stand_in, successors, wall

__all__ = ["ANOMALIES", "Story"]

SECOND = 1_000_000_000

# The plants


def lost_at_the_end(story: Story) -> bool:
    publisher = story.role("publisher")[0]
    offset = max([event["offset"] for event in publisher if event["event"] == "stored"], default=-1) + 1000
    t = publisher[-1]["t"]
    publisher[-1:-1] = [
        {"event": "send", "t": t, "n": 10**6, "key": None, "sha": "00000000000000aa"},
        {"event": "stored", "t": t, "n": 10**6, "partition": 0, "offset": offset},
    ]
    return True


def never_delivered(story: Story) -> bool:
    messages = list(story.keys())
    story.chance.shuffle(messages)
    for message in messages[:1]:
        for events in story.role("subscriber"):
            events[:] = [e for e in events if (e.get("partition"), e.get("offset")) != message]
        return True
    return False


def ack_dropped(story: Story) -> bool:
    for events, _, ack, _ in acked(story):
        delivery = events[ack]
        commit = find(events, ack, delivery, "commit", *OWNER)
        if commit >= 0 and find(events, ack, delivery, "replay", "offset") < 0:
            del events[ack]
            return True
    return False


def overtaken(story: Story) -> bool:
    for events, _, ack, _, then in successors(story):
        events.insert(then + 1, {**events[ack], "t": events[then]["t"]})
        del events[ack]
        return True
    return False


def two_callbacks(story: Story) -> bool:
    for events, _, _, end, then in successors(story):
        events.insert(then + 1, {**events[end], "t": events[then]["t"]})
        del events[end]
        return True
    return False


def two_owners(story: Story) -> bool:
    for events, at, _, end in acked(story):
        if story.keys().get((events[at]["partition"], events[at]["offset"])) and events[0]["ordered"]:
            if events[end]["t"] - events[at]["t"] < 10 or _troubled(story, events):
                continue
            story.files[next(iter(story.files)).with_name("stand-in.jsonl")] = stand_in(story, events, at)
            return True
    return False


def _troubled(story: Story, events: list[Event]) -> bool:
    driver = story.role("driver")[0]
    lost = any(event["event"] == "revoke" and event["lost"] for event in events)
    return lost or any(event.get("of") == events[0]["pid"] for event in driver)


def delivered_twice(story: Story) -> bool:
    for events, at, ack, end in acked(story):
        if end < ack:
            events[end + 1 : end + 1] = [{**events[i], "t": events[end]["t"]} for i in (at, end)]
            return True
    return False


def delivered_after_ack(story: Story) -> bool:
    for events, at, ack, end in acked(story):
        last = max(ack, end)
        events[last + 1 : last + 1] = [{**events[i], "t": events[last]["t"]} for i in (at, end)]
        return True
    return False


def durable_too_early(story: Story) -> bool:
    for events, _, ack, _ in acked(story):
        events.insert(ack + 1, {**events[ack], "event": "durable_ack"})
        return True
    return False


def redelivered_after_durable(story: Story) -> bool:
    """The new owner reads nothing of the committed state."""
    for events, at in story.spots("assign"):
        begun = events[at]
        goes_on = any(event["event"] == "assign" and same(event, begun, OWNER) for event in events[:at])
        if not begun["main"][0] or begun["retry"] != [0, []] or goes_on:
            continue
        for other, delivery, ack, _ in acked(story):
            done = other[delivery]
            answer = find(other, find(other, ack, done, "commit", *OWNER), done, "answer", *OWNER)
            if answer < 0 or not other[answer]["accepted"] or done["partition"] != begun["partition"]:
                continue
            if other is events:  # who has acked it knows that by itself
                continue
            if done["offset"] < begun["main"][0] and wall(other, answer) < wall(events, at):
                begun["main"] = [0, []]
                events.insert(at + 1, {**done, "t": begun["t"], "epoch": begun["epoch"]})
                return True
    return False


def commit_past_unacked(story: Story) -> bool:
    for events, at in story.spots("deliver"):
        delivery = events[at]
        commit = find(events, at, delivery, "commit", *OWNER)
        judgements = [find(events, at, delivery, kind, *MESSAGE) for kind in ("ack", "expire", "deliver")]
        first = min([judgement for judgement in judgements if judgement >= 0], default=len(events))
        if (
            at < commit < first
            and "retry" not in delivery
            and events[commit]["main"][0] <= delivery["offset"]
        ):
            moved = [
                e
                for e in events[:commit]
                if e["event"] in ("relocate", "dead_letter") and same(e, delivery, OWNER)
            ]
            if not moved:
                events[commit]["main"] = [delivery["offset"] + 1, []]
                return True
    return False


def commit_goes_back(story: Story) -> bool:
    for events, at in story.spots("commit"):
        answer = find(events, at, events[at], "answer", "n", *OWNER)
        after = find(events, answer, events[at], "commit", *OWNER)
        between = find(events, answer, events[at], "assign", "partition")
        if answer < 0 or not events[answer]["accepted"] or answer < between < after:
            continue
        if after >= 0 and events[at]["main"][0] > 0:
            events[after]["main"] = [0, []]
            return True
    return False


def two_commits(story: Story) -> bool:
    for events, at in story.spots("commit"):
        events.insert(at + 1, {**events[at], "n": 10**6})
        return True
    return False


def unheard_state(story: Story) -> bool:
    for events, at in story.spots("assign"):
        events[at]["main"] = [events[at]["main"][0], [7001, 7002]]
        return True
    return False


def former_owner_commits(story: Story) -> bool:
    """The log takes a commit of somebody who was revoked, after the next owner has read its state."""
    for events, at in story.spots("revoke"):
        mine = events[at]
        clock = mine["t"] + events[0]["wall"] - events[0]["t"]
        for other in story.role("subscriber"):
            shift = other[0]["wall"] - other[0]["t"]
            taken = [
                e
                for e in other
                if e["event"] == "assign" and e["partition"] == mine["partition"] and e["t"] + shift > clock
            ]
            back = find(events, at, mine, "assign", "partition")
            before = [e for e in events[:at] if e["event"] == "assign" and same(e, mine, OWNER)]
            if other is events or not taken or back >= 0 or mine["lost"] or not before:
                continue
            if (
                any(e["event"] == "commit" and same(e, mine, OWNER) for e in events)
                or taken[0]["main"] != before[-1]["main"]
            ):
                continue
            t = taken[0]["t"] + shift + 1 - (events[0]["wall"] - events[0]["t"])
            position, runs = taken[0]["main"]
            commit = {
                "event": "commit",
                "t": t,
                "n": 10**6,
                "partition": mine["partition"],
                "epoch": mine["epoch"],
            }
            later = [i for i in range(at + 1, len(events)) if events[i]["t"] > t]
            place = later[0] if later else len(events)
            events[place:place] = [
                {**commit, "main": [position, [*runs, 7001, 7002]]},
                {**commit, "event": "answer", "accepted": True},
            ]
            return True
    return False


def never_assigned(story: Story) -> bool:
    for events, at in story.spots("assign"):
        if find(events, at, events[at], "deliver", *OWNER) >= 0:
            events[:] = (
                [e for e in events if e["event"] != "assign" or not same(e, events[at], OWNER)]
                if at
                else events
            )
            return True
    return False


def other_bytes(story: Story) -> bool:
    reported = story.keys()
    for events, at in story.spots("deliver"):
        if (events[at]["partition"], events[at]["offset"]) not in reported:
            continue  # a published message is known by its deliveries only
        events[at]["sha"] = "0123456789abcdef"
        return True
    return False


def never_sent(story: Story) -> bool:
    for events, at in story.spots("deliver"):
        more = {**events[at], "offset": 10_000, "sha": "0123456789abcdef"}
        events.insert(at, more)
        return True
    return False


def attempts_forgotten(story: Story) -> bool:
    for events, at in story.spots("nack"):
        again = find(events, at, events[at], "deliver", *MESSAGE)
        if again >= 0 and events[again]["attempt"] > events[at]["attempt"]:
            events[again]["attempt"] = events[at]["attempt"]
            return True
    return False


def before_its_time(story: Story) -> bool:
    for events, at in story.spots("relocate"):
        answer = find(events, at, events[at], "answer", "n", *OWNER)
        if answer < 0 or not events[answer]["accepted"]:
            continue
        places = dict(events[answer]["placed"])
        for move in events[at]["moves"]:
            if any(
                e["event"] == "deliver"
                and e["partition"] == events[at]["partition"]
                and (e["offset"], e.get("retry")) == (move[0], places[move[0]])
                for other in story.role("subscriber")
                for e in other
            ):
                move[3] = 10**13
                return True
    return False


def delivered_after_its_rejection(story: Story) -> bool:
    for events, at in story.spots("nack"):
        mine = events[at]
        begun = [i for i in range(at) if events[i]["event"] == "deliver" and same(events[i], mine, LEASE)]
        if not mine.get("rejected") or not begun or "batch" in events[begun[-1]]:
            continue
        end = find(events, begun[-1], mine, "handler_end", *MESSAGE)
        moved = find(events, at, mine, "relocate", *OWNER)
        if end >= 0 and (moved < 0 or end < moved):
            last = max(at, end)
            again = {**events[begun[-1]], "t": events[last]["t"], "attempt": mine["attempt"] + 1}
            events.insert(last + 1, again)
            return True
    return False


def rejected_and_moved_to_be_delivered(story: Story) -> bool:
    for events, at in story.spots("relocate"):
        for move in events[at]["moves"]:
            if move[4] == "rejected":
                move[4] = "nack"
                return True
    return False


def moved_while_held(story: Story) -> bool:
    for events, at, ack, _ in acked(story):
        mine = events[at]
        moves = [[mine["offset"], mine.get("retry"), 2, 0, "nack"]]
        events.insert(
            ack,
            {
                "event": "relocate",
                "t": events[ack]["t"],
                "n": 10**6,
                "partition": mine["partition"],
                "epoch": mine["epoch"],
                "moves": moves,
            },
        )
        return True
    return False


def late_ack_counts(story: Story) -> bool:
    for events, at in story.spots("nack"):
        again = find(events, at, events[at], "deliver", *MESSAGE)
        if again >= 0:
            events.insert(again + 1, {**events[at], "event": "ack", "t": events[again]["t"]})
            return True
    return False


def never_committed(story: Story) -> bool:
    """An owner stops committing, stays for ten seconds, and goes in good order; another may have read its commits."""
    last = [events for events in story.role("subscriber") if events[-1]["event"] == "close"]
    for events in sorted(last, key=lambda events: -(events[-1]["t"] + events[0]["wall"] - events[0]["t"])):
        acks = [at for at, event in enumerate(events) if event["event"] == "ack"]
        if not acks or any(event["event"] in ("assign", "expire") for event in events[acks[-1] :]):
            continue
        mine = events[acks[-1]]
        revoke = find(events, acks[-1], mine, "revoke", *OWNER)
        crossed = find(events, 0, mine, "expire", *LEASE) >= 0  # such an ack may not count
        # a commit that the log kept waiting and then refused is an excuse
        excused = any(event["event"] == "answer" and not event["accepted"] for event in events[acks[-1] :])
        if revoke < 0 or events[revoke]["lost"] or crossed or excused:
            continue
        gone = {event["n"] for event in events[acks[-1] :] if event["event"] == "commit"}
        events[acks[-1] :] = [e for e in events[acks[-1] :] if e.get("n") not in gone]
        for event in events[acks[-1] + 1 :]:
            event["t"] += 10 * SECOND
        return True
    return False


def nobody_killed_it(story: Story) -> bool:
    for events in story.role("subscriber"):
        if events[-1]["event"] == "close":
            del events[-1]
            return True
    return False


def not_an_event(story: Story) -> bool:
    events = story.role("subscriber")[0]
    broken: list[Any] = [{"event": "dleiver", "t": events[0]["t"]}, {"event": "ack", "t": events[0]["t"]}, 17]
    events.insert(story.chance.randrange(1, len(events) + 1), story.chance.choice(broken))
    return True


def published_out_of_order(story: Story) -> bool:
    keys, publisher = story.keys(), story.role("publisher")[0]
    numbers = {(e["partition"], e["offset"]): e["n"] for e in publisher if e["event"] == "stored"}
    pairs = [(a, b) for a in keys for b in keys if keys[a] is not None and keys[a] == keys[b] and a < b]
    if not pairs:
        return False
    a, b = story.chance.choice(pairs)
    swapped = {numbers[a]: numbers[b], numbers[b]: numbers[a]}
    for event in publisher:
        if "n" in event:
            event["n"] = swapped.get(event["n"], event["n"])
    return True


Anomaly = Callable[[Story], bool]

#: Each with the names of which the checker must give at least one.
ANOMALIES: dict[str, tuple[Anomaly, frozenset[str]]] = {
    plant.__name__: (plant, frozenset(kinds.split()))
    for plant, kinds in [
        (lost_at_the_end, "lost"),
        (never_delivered, "order lost commit_early stray"),
        (ack_dropped, "lost commit_early order duplicate"),
        (overtaken, "order"),
        (two_callbacks, "overlap"),
        (two_owners, "overlap"),
        (delivered_twice, "duplicate"),
        (delivered_after_ack, "after_ack"),
        (durable_too_early, "durable_ack"),
        (redelivered_after_durable, "after_durable"),
        (commit_past_unacked, "commit_early"),
        (commit_goes_back, "commit_back"),
        (two_commits, "in_flight"),
        (unheard_state, "state"),
        (former_owner_commits, "fence"),
        (never_assigned, "unowned"),
        (other_bytes, "payload"),
        (never_sent, "phantom"),
        (attempts_forgotten, "attempt"),
        (before_its_time, "early"),
        (delivered_after_its_rejection, "rejected"),
        (rejected_and_moved_to_be_delivered, "rejected"),
        (moved_while_held, "relocation"),
        (late_ack_counts, "stray"),
        (never_committed, "lag state"),
        (nobody_killed_it, "vanished"),
        (not_an_event, "malformed"),
        (published_out_of_order, "publish_order"),
    ]
}
