"""Names of `PubSub` that became parts of `ps.delays` and `ps.multicast`: they work in this version, and warn."""

from __future__ import annotations

from kafka_pubsub.aio.services import CausalTopics, Delays
from kafka_pubsub.flat_names import Renamed

__all__ = ["FlatNames"]


class FlatNames:
    """The old names."""

    delayed_messages = Renamed("delays", Delays.waiting)
    cancel_delayed = Renamed("delays", Delays.cancel)
    delay_dead_letters = Renamed("delays", Delays.dead_letters)
    replay_delay_dead_letters = Renamed("delays", Delays.replay)
    purge_delay_dead_letters = Renamed("delays", Delays.purge)
    delay_routers = Renamed("delays", Delays.routers)
    multicast_status = Renamed("multicast", CausalTopics.status)
    multicast_dead_letters = Renamed("multicast", CausalTopics.dead_letters)
    replay_multicast_dead_letters = Renamed("multicast", CausalTopics.replay)
    purge_multicast_dead_letters = Renamed("multicast", CausalTopics.purge)
    sequencers = Renamed("multicast", CausalTopics.sequencers)
