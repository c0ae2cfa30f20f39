"""Rules of the delays outside of the core, each broken on purpose, with the scene that must notice."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from kafka_pubsub.delays import drained, homes, messages, plan, role
from kafka_pubsub.delays.away import AwayHomes
from kafka_pubsub.delays.growth import ALONE
from kafka_pubsub.delays.progress import IngestProgress, parse_ingest
from kafka_pubsub.delays.records import parts_of
from kafka_pubsub.delays.steps import Steps
from kafka_pubsub.errors import BrokerUnavailable, NotFound, PermissionDenied
from kafka_pubsub.log.memory import MemoryBackend
from kafka_pubsub.services.trimming import Trimming
from tests.property.multicast_service_mutations import Mutation
from tests.unit.delays import (
    test_growth_end,
    test_homes,
    test_role_beginnings,
    test_role_growing,
    test_ticks,
)
from tests.unit.services import test_troubles

__all__ = ["MUTATIONS"]

Patch = pytest.MonkeyPatch


def fewer_tiers(patch: Patch) -> None:
    """A router that has found fewer tiers than were read begins all the same."""

    def parse(position: int, text: str) -> IngestProgress:
        return parse_ingest(position, text)._replace(tiers=0)

    patch.setattr(role, "parse_ingest", parse)


def guesses(patch: Patch) -> None:
    """Where the broker has forgotten the positions, a router begins as if nothing had been handled."""
    patch.setattr(role, "_lost", lambda *_: "")


def nothing_is_trimmed(patch: Patch) -> None:
    """What was handled stays until retention deletes it, so beginning again delivers it again."""
    patch.setattr(Trimming, "_trim", lambda self: None)


def brokers_say_gone(patch: Patch) -> None:
    """What a broker says of a home topic makes dead letters."""
    real = homes.Homes.find

    def find(self: Any, home: str) -> homes.Home:
        found = real(self, home)
        try:
            self._backend.admin.topic(found.name)
        except NotFound as error:
            return homes.Home(found.name, refused=str(error))
        return found

    patch.setattr(homes.Homes, "find", find)


def any_topic_of_the_name(patch: Patch) -> None:
    """A message goes to whichever topic has the name."""
    patch.setattr(homes, "parts_of", lambda home: (parts_of(home)[0], ""))


def causal_as_others(patch: Patch) -> None:
    """A router writes to causal topics, beside their sequencer."""
    real = homes.Homes._understand

    def understand(self: Any, home: str) -> homes.Home:
        found = real(self, home)
        return found._replace(refused="") if "is causal" in found.refused else found

    patch.setattr(homes.Homes, "_understand", understand)


def newer_is_dead(patch: Patch) -> None:
    """A record of a newer version is a dead letter."""
    patch.setattr(messages, "_refuse_newer", lambda record: None)


def away_stops_all(patch: Patch) -> None:
    """A home that has refused a message is tried again with everything that is due."""
    patch.setattr(AwayHomes, "fail", lambda self, number, record: None)


def away_is_refused(patch: Patch) -> None:
    """What a home doesn't take is a dead letter, whatever the reason."""
    patch.setattr(role, "OF_THE_RECORD", Exception)


def never_tried_again(patch: Patch) -> None:
    """A home that has refused a message isn't tried again."""
    patch.setattr(AwayHomes, "_ask", lambda self, away: None)


def walks_alone(patch: Patch) -> None:
    """Partitions that share keys don't wait for each other."""
    patch.setattr(Steps, "of", lambda self, partition, reached, due: ALONE)


def unaware(patch: Patch) -> None:
    """A router that doesn't know of the growth begins a partition whose commit names it."""

    def parse(position: int, text: str) -> IngestProgress:
        return parse_ingest(position, text)._replace(partitions=0)

    patch.setattr(role, "parse_ingest", parse)


def ends_at_once(patch: Patch) -> None:
    """A growth is over as soon as it is asked for, whatever from before waits."""
    patch.setattr(plan, "find_remains", lambda backend, growth, grown: "")


def publishers_know_at_once(patch: Patch) -> None:
    """What a publisher that hasn't learnt of the growth stores in a former partition isn't from before."""
    real = drained.find_remains
    patch.setattr(
        plan, "find_remains", lambda backend, growth, grown: real(backend, growth, grown - drained.LEARN)
    )


def _begins_again(ps: Any, backend: MemoryBackend) -> None:
    class Quiet:
        text = "begins again at the start of what is left"

        def at_level(self, *_: object) -> Any:
            return pytest.MonkeyPatch.context()

    test_role_beginnings.test_where_what_was_handled_is_deleted_nearly_nothing_comes_twice(
        ps,
        backend,
        Quiet(),  # type: ignore[arg-type]
    )


_NOT_FOUND = NotFound("topic 'orders' not found: a broker that has just started")
_away = partial(
    test_troubles.test_a_home_topic_that_takes_no_messages_stops_no_other_one_in_its_partition,
    error=BrokerUnavailable("no leader"),
)

MUTATIONS = [
    Mutation(fewer_tiers, test_ticks.test_a_router_with_fewer_tiers_than_were_read_refuses),
    Mutation(guesses, test_role_beginnings.test_a_router_refuses_to_guess_and_names_the_command),
    Mutation(nothing_is_trimmed, _begins_again),
    Mutation(
        brokers_say_gone,
        partial(test_homes.test_what_a_broker_says_of_a_home_topic_makes_no_dead_letter, error=_NOT_FOUND),
    ),
    Mutation(
        any_topic_of_the_name,
        test_homes.test_a_topic_that_was_made_again_gets_its_own_messages_and_none_of_the_one_before,
    ),
    Mutation(
        causal_as_others,
        test_homes.test_a_topic_that_was_made_again_as_a_causal_one_gets_messages_from_its_sequencer_only,
    ),
    Mutation(
        newer_is_dead,
        partial(
            test_homes.test_a_record_of_a_newer_version_is_waited_for_and_never_a_dead_letter,
            topic="_kafka_pubsub.delay.01",
        ),
    ),
    Mutation(away_stops_all, _away),
    Mutation(away_is_refused, _away),
    Mutation(
        never_tried_again,
        partial(
            test_troubles.test_a_home_topic_that_takes_no_messages_stops_no_other_partition,
            away=test_troubles.Away("bad", PermissionDenied("no right")),
        ),
    ),
    Mutation(
        walks_alone,
        partial(
            test_role_growing.test_a_partition_that_stands_still_holds_up_the_keys_that_it_shares,
            still="added",
        ),
    ),
    Mutation(
        ends_at_once,
        test_growth_end.test_a_growth_is_over_when_nothing_from_before_waits_and_another_one_is_possible,
    ),
    Mutation(publishers_know_at_once, test_growth_end.test_publishers_have_time_to_learn),
    Mutation(unaware, test_role_growing.test_a_router_that_does_not_know_of_the_growth_begins_nothing),
]
