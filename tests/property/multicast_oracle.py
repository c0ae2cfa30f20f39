"""The contents of a home topic, by the definition of the order: no queue, no clock, no state, but the whole inbox.

A message is final once all its participants have proposed; it is at home once no message that isn't final can get a
lower timestamp. Messages at home lie there in the order of the timestamps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kafka_pubsub.multicast.values import Proposal, Refuse, Release, Said, Stage, Timestamp
from tests.property.multicast_world import Topic, World
from tests.property.multicast_world import place as place_in_order

__all__ = ["home_of", "run_beside_oracle"]


def home_of(
    topic: str, inbox: Sequence[Said], position: int, released: Mapping[str, Timestamp]
) -> list[Release | Refuse]:
    """Returns a topic's messages at home when its inbox was taken up to `position`.

    `released`: timestamps of messages that were released, because proposals for a topic released may be in no log.
    """
    stages = {each.message: each for each in inbox[:position] if isinstance(each, Stage)}
    proposals: dict[str, dict[str, Proposal]] = {message: {} for message in stages}
    for at, each in enumerate(inbox):
        own = isinstance(each, Proposal) and each.timestamp.topic == topic
        if isinstance(each, Proposal) and each.message in stages and (each.cause if own else at) < position:
            proposals[each.message][each.timestamp.topic] = each
    for message, stage in stages.items():
        if not proposals[message] and stage.participants == (topic,) and message in released:
            names = list(stages)
            after = any(
                stages[name].deletes.partition("@")[0] == topic and not stage.deletes
                for name in names[: names.index(message)]
            )
            proposals[message][topic] = Proposal(message, released[message], after)
    ready: list[Release | Refuse] = []
    open_from: list[Timestamp] = []
    for message, stage in stages.items():
        said = proposals[message]
        place = max((each.timestamp for each in said.values()), default=None)
        if place is None:
            continue
        if len(said) < len(stage.participants):
            open_from += [place] if topic in said else []
            continue
        deleted = {name for name, each in said.items() if each.deleted}
        if gone := tuple(name for name in stage.destinations if name in deleted):
            ready.append(Refuse(message, place, gone))
        else:
            ready.append(Release(message, place, tuple(name for name in stage.handles if name in deleted)))
    first = min(open_from, default=None)
    at_home = [each for each in ready if first is None or place_in_order(each) < first]
    at_home = [
        each for each in at_home if isinstance(each, Refuse) or topic in stages[each.message].destinations
    ]
    return sorted(at_home, key=place_in_order)


class JudgedWorld(World):
    """A world in which each home is compared with the oracle's after each record."""

    def take(self, topic: Topic) -> None:
        super().take(topic)
        position = topic.checkpoint.position
        assert topic.home == home_of(topic.name, topic.inbox, position, self.timestamps), (
            "not what it must hold"
        )


def run_beside_oracle(seed: int, **settings: Any) -> None:
    """Plays a schedule; a home holds exactly the oracle's messages after each record."""
    world = JudgedWorld(seed, **settings)
    world.play()
    world.check()
