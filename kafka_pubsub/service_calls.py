"""What a `PubSub` offers for messages that services couldn't deliver: those of the delays and of causal topics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kafka_pubsub.cluster import Cluster
from kafka_pubsub.dead_letters.model import DeadLetterResult
from kafka_pubsub.delays.dead_letters import DelayDeadLetter
from kafka_pubsub.multicast.dead_letters import MulticastDeadLetter

__all__ = ["ServiceCalls"]


class ServiceCalls:
    """Lists, replays and purges what services couldn't deliver on a cluster."""

    _cluster: Cluster

    def delay_dead_letters(
        self, *, ids: Iterable[str] | None = None, topic: str | None = None
    ) -> Iterator[DelayDeadLetter]:
        """Yields the delayed messages that no router could deliver, and that weren't replayed or purged.

        `ids` picks some, as in `letter.id`, and `topic` those that were to go there; None (the default): all.
        """
        return self._cluster.delay_dead_letters.find(ids, topic)

    def replay_delay_dead_letters(
        self, *, ids: Iterable[str] | None = None, topic: str | None = None, dry_run: bool = False
    ) -> DeadLetterResult:
        """Brings delayed messages that no router could deliver to their topics, which must exist again.

        `ids` and `topic` pick some, as in `delay_dead_letters`. Each comes home once: repeat a call that was
        interrupted. What still can't go stays, and is counted in `skipped`. With `dry_run` nothing is changed.
        """
        return self._cluster.delay_dead_letters.replay(ids, topic, dry_run=dry_run)

    def purge_delay_dead_letters(
        self, *, ids: Iterable[str] | None = None, topic: str | None = None, dry_run: bool = False
    ) -> DeadLetterResult:
        """Gives delayed messages up that no router could deliver: they aren't listed any more.

        `ids` and `topic` pick some, as in `delay_dead_letters`. With `dry_run` nothing is changed.
        """
        return self._cluster.delay_dead_letters.purge(ids, topic, dry_run=dry_run)

    def multicast_dead_letters(
        self, *, ids: Iterable[str] | None = None, topic: str | None = None
    ) -> Iterator[MulticastDeadLetter]:
        """Yields the messages that causal topics refused, and that weren't replayed or purged.

        `ids` picks some, as in `letter.id`, and `topic` those that it refused; None (the default): all.
        """
        return self._cluster.multicast_dead_letters.find(ids, topic)

    def replay_multicast_dead_letters(
        self, *, ids: Iterable[str] | None = None, topic: str | None = None, dry_run: bool = False
    ) -> DeadLetterResult:
        """Stages messages that causal topics refused for these topics again, at a new place in the order.

        `ids` and `topic` pick some, as in `multicast_dead_letters`. A sequencer brings each home once: repeat a call
        that was interrupted. What still can't go stays, and is counted in `skipped`. With `dry_run` nothing is changed.
        """
        return self._cluster.multicast_dead_letters.replay(ids, topic, dry_run=dry_run)

    def purge_multicast_dead_letters(
        self, *, ids: Iterable[str] | None = None, topic: str | None = None, dry_run: bool = False
    ) -> DeadLetterResult:
        """Gives messages up that causal topics refused: they aren't listed any more.

        `ids` and `topic` pick some, as in `multicast_dead_letters`. With `dry_run` nothing is changed.
        """
        return self._cluster.multicast_dead_letters.purge(ids, topic, dry_run=dry_run)
