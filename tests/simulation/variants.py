"""Plans with more of a kind of trouble, so that a mistake about it shows within a few dozen seeds."""

from __future__ import annotations

from dataclasses import replace
from math import inf

from kafka_pubsub.subscribe.partition.settings import Backoff, Policy
from tests.simulation.plan import Plan
from tests.simulation.retry_plan import ATTEMPTS, RetryPlan

__all__ = [
    "asking",
    "bad",
    "beside",
    "crossing",
    "crowded",
    "dying",
    "eaten",
    "failing",
    "growing",
    "keeping",
    "killing",
    "late",
    "late_commits",
    "not_dead_lettered",
    "poisoned",
    "refusing",
    "silent",
    "slow",
    "stuck",
    "unannounced",
    "unknown",
    "wrong_clocks",
]


def _retry(plan: Plan) -> RetryPlan:
    return replace(plan.retry, killers_only=False, stuck=None, shut=False)


def _with(plan: Plan, weights: dict[str, float], retry: RetryPlan, rules: Policy | None = None) -> Plan:
    actions = {**plan.actions, **weights}
    policy = plan.rules.policy if rules is None else rules
    retry = replace(retry, policy=policy)
    return replace(plan, actions=actions, retry=retry, rules=plan.rules._replace(policy=policy))


def keeping(plan: Plan) -> Plan:
    """Inline callbacks keep most messages, and few may be out. Needs no retry topic."""
    return replace(
        plan,
        partitions=1,
        processes=1,
        keys=(b"a", b"b", b"c", b"d", None),
        max_messages=1,
        max_bytes=10_000_000,
        window=2000,
        read_limit=10,
        inline=True,
        taken_over=0.0,
        slow=0.0,
        conduct={"ack": 10.0, "silent": 10.0},
        actions={**plan.actions, "publish": 16.0},
    )


def asking(plan: Plan) -> Plan:
    """All acks are waited for; commits are refused, leases expire, owners change. With a retry topic or without."""
    plan = replace(
        plan,
        processes=3,
        refused=0.2,
        answer_lost=0.2,
        slow=0.4,
        run=2,
        keys=(b"a", b"a", b"a", b"b", b"c", None),
        conduct={"ack": 20.0, "ack_early": 20.0, "silent": 15.0, "nack": 5.0, "ack_crosses": 4.0},
        rules=plan.rules._replace(ack_deadline=2.0, max_extension=5.0),
        actions={**plan.actions, "join": 3.0, "evict": 1.0, "crash": 0.5, "leave": 0.5, "publish": 10.0},
    )
    return plan.asking(1.0, 0.3)


def growing(plan: Plan) -> Plan:
    """The topic grows as soon as it can, while handlers are slow; much is published. Needs no retry topic."""
    plan = replace(
        plan,
        partitions=2,
        processes=2,
        keys=tuple(b"k%d" % at for at in range(8)),
        slow=0.3,
        conduct={"ack": 30.0, "silent": 3.0, "nack": 5.0},
        rules=plan.rules._replace(ordered=True, ack_deadline=2.0, max_extension=5.0),
    )
    actions = {**plan.actions, "publish": 8.0, "callback": 40.0, "retention": 0.0, "compaction": 0.0}
    plan = replace(plan, actions=actions).growing(3)
    return replace(plan, actions={**plan.actions, "grow": 3.0})


def failing(plan: Plan) -> Plan:
    """Handlers nack and raise, processes come and go."""
    plan = replace(
        plan,
        steps=240,
        processes=3,
        conduct={"ack": 30.0, "nack": 20.0, "raise": 5.0, "silent": 3.0, "nack_later": 5.0},
        keys=(b"a", b"a", b"a", b"b", b"c", b"d", None),
        rules=plan.rules._replace(ordered=True, backoff=Backoff(0.1, 2.0)),
    )
    return _with(
        plan,
        {"mover": 20.0, "crash": 1.0, "join": 3.0, "evict": 0.5, "retention": 0.0, "compaction": 0.0},
        _retry(plan),
    )


def eaten(plan: Plan) -> Plan:
    """Main's retention is short beside the backoffs."""
    return _with(patient(plan), {"retention": 1.0}, _retry(plan))


def patient(plan: Plan) -> Plan:
    """Backoffs are long beside everything else."""
    plan = failing(plan)
    return replace(plan, rules=plan.rules._replace(backoff=Backoff(10.0, 30.0)))


def evicted(plan: Plan) -> Plan:
    """Moves wait for long; their authors are removed meanwhile, and come back. There is no other trouble."""
    plan = replace(stalling(plan), processes=2, answer_lost=0.0, slow=0.0)
    weights = {"mover": 1.0, "evict": 6.0, "stall": 0.0, "join": 3.0, "leave": 0.0, "time": 20.0}
    quiet = replace(_retry(plan), dies=0.0, unknown=0.0, late_markers=0.0, broken_steps=0.0, meanwhile=0.0)
    return _with(plan, weights, quiet)


def reading(plan: Plan) -> Plan:
    """The same as `unknown`, while there is much to be read in small portions."""
    plan = replace(unknown(plan), read_limit=3, max_bytes=10_000_000, window=2000, partitions=1, inline=False)
    return _with(
        plan, {"publish": 16.0, "fetcher": 20.0, "mover": 30.0, "crash": 0.3, "evict": 0.0}, _retry(plan)
    )


def late(plan: Plan) -> Plan:
    """Transactions show late, and their authors lose the partition before that."""
    plan = replace(
        failing(plan), partitions=1, keys=(b"a", b"a", b"b"), conduct={"ack": 20.0, "nack": 20.0}, steps=400
    )
    weights = {
        "crash": 0.0,
        "leave": 0.0,
        "evict": 4.0,
        "join": 5.0,
        "mover": 30.0,
        "time": 2.0,
        "publish": 8.0,
    }
    return _with(plan, weights, replace(_retry(plan), late_markers=0.6))


def late_commits(plan: Plan) -> Plan:
    """Plain commits are given up and stored later, while messages are relocated; processes keep their messages."""
    plan = replace(
        failing(plan), partitions=1, processes=1, keys=(b"a", b"b", b"c"), refused=0.0, answer_lost=0.0
    )
    weights = {"crash": 0.3, "evict": 0.0, "mover": 40.0, "time": 12.0}
    quiet = replace(_retry(plan), dies=0.0, unknown=0.0, broken_steps=0.0, late_commits=0.3)
    return _with(plan, weights, quiet)


def wrong_clocks(plan: Plan) -> Plan:
    """Wall clocks are wrong by hours, and are set at any time."""
    plan = failing(plan)
    return _with(plan, {"set_clock": 3.0}, replace(_retry(plan), wrong_clocks=36_000.0))


def beside(plan: Plan) -> Plan:
    """A member that lists the topic alone comes and goes."""
    plan = replace(failing(plan), partitions=4, processes=2)
    return _with(plan, {"stranger": 4.0}, _retry(plan))


def dying(plan: Plan) -> Plan:
    """Processes die before requests, and stall; backlogs are short."""
    plan = replace(failing(plan), slow=0.3)
    return _with(plan, {"stall": 1.0}, replace(_retry(plan), dies=0.02, meanwhile=0.2, backlog=1))


def unannounced(plan: Plan) -> Plan:
    """Plain commits are mostly refused, and processes die in the middle of transactions."""
    plan = replace(failing(plan), refused=0.6, partitions=1, keys=(b"a", b"b", b"c"))
    return _with(plan, {"crash": 3.0, "join": 6.0, "mover": 8.0}, replace(_retry(plan), dies=0.02))


def slow(plan: Plan) -> Plan:
    """Handlers take long and their backlogs are moved; processes die."""
    plan = replace(
        failing(plan), slow=0.8, partitions=1, keys=(b"a", b"a", b"b"), conduct={"ack": 1.0}, steps=400
    )
    weights = {"crash": 2.0, "join": 6.0, "mover": 20.0, "time": 16.0}
    return _with(plan, weights, replace(_retry(plan), backlog=1))


def crossing(plan: Plan) -> Plan:
    """Plain commits take long, and everything else goes on meanwhile."""
    plan = replace(failing(plan), partitions=1, refused=0.0, answer_lost=0.0)
    return _with(plan, {"crash": 0.3}, replace(_retry(plan), meanwhile=0.6, dies=0.0))


def unknown(plan: Plan) -> Plan:
    """Transactions' steps fail, and answers are lost."""
    plan = failing(plan)
    return _with(plan, {}, replace(_retry(plan), broken_steps=0.02, unknown=0.4))


def stalling(plan: Plan) -> Plan:
    """Processes stand still for longer than their sessions, and go on."""
    plan = replace(failing(plan), partitions=1, keys=(b"a", b"b", b"c"), steps=400, refused=0.0)
    return _with(plan, {"stall": 4.0, "join": 8.0, "crash": 0.0, "time": 12.0}, _retry(plan))


def parking(plan: Plan) -> Plan:
    """Many keys fail, their messages wait, and owners come and go."""
    keys = tuple(b"k%d" % at for at in range(12))
    plan = replace(failing(plan), partitions=1, keys=keys, conduct={"ack": 20.0, "nack": 20.0}, steps=400)
    return _with(plan, {"mover": 40.0, "crash": 2.0, "join": 6.0}, _retry(plan))


def crowded(plan: Plan) -> Plan:
    """Maps with room for a few runs; the retry partition is deleted as soon as possible."""
    plan = replace(failing(plan), capacity=560, max_messages=1000, workers=16)
    return _with(plan, {"publish": 16.0}, replace(_retry(plan), trim=2))


def stuck(plan: Plan) -> Plan:
    """A single key fails for as long as others wait, and little may be held."""
    plan = replace(failing(plan), max_bytes=10_000, window=8, max_messages=20)
    retry = replace(_retry(plan), stuck=b"a", backlog=3, enough=20, poison=0.0)
    return _with(plan, {"publish": 16.0}, retry, Policy(0))


def bad(plan: Plan) -> Plan:
    """More messages fail, for as long as others wait, than it takes for an outage."""
    plan = stuck(plan)
    return replace(
        plan, rules=plan.rules._replace(ordered=False), retry=replace(_retry(plan), stuck=b"a", enough=4)
    )


def refusing(plan: Plan) -> Plan:
    """The topic of the dead letters takes nothing for long."""
    plan = replace(failing(plan), partitions=1)
    retry = replace(_retry(plan), shut=True, poison=0.3, kinds=("raises",))
    return _with(plan, {"unwritable": 2.0}, retry, Policy(ATTEMPTS))


def silent(plan: Plan) -> Plan:
    """The topic of the dead letters doesn't answer for long."""
    plan = refusing(plan)
    return replace(plan, retry=replace(_retry(plan), shut=True, silent=inf))


def poisoned(plan: Plan) -> Plan:
    """Many messages raise always, others never fail."""
    plan = replace(failing(plan), conduct={"ack": 1.0})
    return _with(plan, {}, replace(_retry(plan), poison=0.3, kinds=("raises",)), Policy(ATTEMPTS))


def killing(plan: Plan) -> Plan:
    """Some messages kill their process; there is no other trouble."""
    plan = replace(failing(plan), steps=160)
    retry = RetryPlan(policy=Policy(ATTEMPTS), poison=0.1, kinds=("kills",), killers_only=True, actions={})
    plan = _with(plan, {"mover": 20.0}, retry, Policy(ATTEMPTS))
    return plan.of_killers()


def not_dead_lettered(plan: Plan) -> Plan:
    """Some messages kill their process, others always fail, and for long there is nowhere to dead-letter them."""
    plan = replace(failing(plan), partitions=1, steps=160)
    retry = RetryPlan(policy=Policy(ATTEMPTS), poison=0.2, kinds=("kills", "raises"), shut=True)
    plan = _with(plan, {"mover": 20.0}, retry, Policy(ATTEMPTS))
    return plan.of_killers()
