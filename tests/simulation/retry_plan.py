"""The seed's choices about a world with a retry topic: who fails and how, and what befalls requests on their way.

Theory. As in `plan`: each kind of trouble is off in many worlds, and strong in some. A message may be *poison*: it
raises always, runs out of time always, or kills its process. A world of killers alone has no other trouble, so that
exactly they must end as dead letters.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from random import Random

from kafka_pubsub.subscribe.partition.settings import Exhausted, Policy, Rules

__all__ = ["ATTEMPTS", "KINDS", "LATEST", "RetryPlan"]

#: After so many a message is a dead letter, where there are dead letters.
ATTEMPTS = 5
#: The effects of poison.
KINDS = ("raises", "hangs", "kills")
#: Seconds after its end at which a transaction shows, and after it was given up at which a commit is stored, where
#: that is late: its author's session may be over by then.
LATEST = 10.0

#: How often such an event happens, beside the steps of `plan.LIFE`.
TROUBLE = {"outage": 0.15, "unwritable": 0.2, "stranger": 0.3, "rubbish": 0.15, "usurp": 0.5}


@dataclass(frozen=True)
class RetryPlan:
    """Everything about a seed's retry topic that holds for its whole run."""

    policy: Policy
    #: Chances that a step of a transaction fails, that nobody answers to its commit, that its end shows late, that a
    #: record of it is refused by itself.
    broken_steps: float = 0.0
    unknown: float = 0.0
    late_markers: float = 0.0
    refused: float = 0.0
    #: Chance that a plain commit is given up, and stored later.
    late_commits: float = 0.0
    #: Seconds by which a process's wall clock may be wrong, ahead or behind, until it is set the next time.
    wrong_clocks: float = 0.0
    #: Chance, at each request, that the process dies right before it.
    dies: float = 0.0
    #: Chance, at each request, that others go on while it is on its way.
    meanwhile: float = 0.0
    #: Chance that a message is poison, and of which kinds.
    poison: float = 0.0
    kinds: tuple[str, ...] = ()
    #: Messages that may wait behind a parked one; messages that must fail before it is an outage; records that are
    #: deleted together.
    backlog: int = 100
    enough: int = 20
    trim: int = 10_000
    #: A key whose handlers fail for as long as others aren't through.
    stuck: bytes | None = None
    #: Whether the dead letters' topic takes nothing for as long as others aren't through.
    shut: bool = False
    #: Then: seconds for which the topic doesn't answer, before the try is given up without blaming a record; 0: it
    #: refuses.
    silent: float = 0.0
    #: Whether killers are the only trouble.
    killers_only: bool = False
    actions: dict[str, float] = field(default_factory=dict)

    @classmethod
    def draw(cls, random: Random, keys: tuple[bytes | None, ...]) -> RetryPlan:
        """The seed's choices."""
        if random.random() < 0.06:
            return cls._killers(random)
        named = [key for key in keys if key is not None]
        stuck = random.choice(named) if named and random.random() < 0.08 else None
        policy = 0 if stuck is not None else random.choice([0, ATTEMPTS, ATTEMPTS, ATTEMPTS])
        park = random.random() < 0.3
        kinds = random.choice([KINDS, *((kind,) for kind in KINDS)])
        strength = random.choice([0.0, 1.0, 1.0, 3.0])
        return cls(
            policy=Policy(policy, Exhausted.PARK if park else Exhausted.DEAD_LETTER),
            broken_steps=random.choice([0.0, 0.0, 0.02, 0.1]),
            unknown=random.choice([0.0, 0.0, 0.1]),
            late_markers=random.choice([0.0, 0.0, 0.2, 0.6]),
            refused=random.choice([0.0, 0.0, 0.05]),
            dies=random.choice([0.0, 0.0, 0.003, 0.02]),
            meanwhile=random.choice([0.0, 0.05, 0.2]),
            poison=random.choice([0.0, 0.0, 0.05, 0.2]) if policy else 0.0,
            kinds=kinds,
            backlog=random.choice([1, 3, 100]),
            enough=random.choice([4, 20, 20]),
            trim=random.choice([2, 10_000]),
            stuck=stuck,
            shut=policy > 0 and not park and random.random() < 0.1,
            silent=random.choice([0.0, 8.0, inf]),
            actions={
                "mover": random.choice([4.0, 10.0, 30.0]),
                **{name: weight * strength * random.choice([0.0, 1.0]) for name, weight in TROUBLE.items()},
            },
        )

    def rules(self, rules: Rules) -> Rules:
        """The same rules with a retry topic; where handlers hang they have less time, or a world would take hours."""
        rules = rules._replace(policy=self.policy, subscription="billing")
        hangs = self.poison and "hangs" in self.kinds
        return (
            rules._replace(ack_deadline=2.0, max_extension=min(5.0, rules.max_extension)) if hangs else rules
        )

    @classmethod
    def _killers(cls, random: Random) -> RetryPlan:
        return cls(
            policy=Policy(ATTEMPTS),
            late_markers=random.choice([0.0, 0.3]),
            poison=random.choice([0.05, 0.1]),
            kinds=("kills",),
            backlog=random.choice([3, 100]),
            killers_only=True,
            actions={"mover": 20.0},
        )
