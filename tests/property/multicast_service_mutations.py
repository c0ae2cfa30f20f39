"""Rules of multicast outside of the core, each broken on purpose, with the scene that must notice."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import pytest

from kafka_pubsub.errors import FailedPrecondition, NotFound, PubSubError
from kafka_pubsub.log.memory.faults import RequestOutcome
from kafka_pubsub.model import Committed, Ending
from kafka_pubsub.multicast import batches as sequencer_batches
from kafka_pubsub.multicast import layout, multicast, publisher, read_back
from kafka_pubsub.multicast import role as sequencer_role
from kafka_pubsub.multicast import task as sequencer_task
from kafka_pubsub.multicast.arguments import target_of
from kafka_pubsub.multicast.batch import BatchMessage
from kafka_pubsub.multicast.outbox import Batch, Outbox, Outgoing, Standing
from kafka_pubsub.multicast.progress import parse_progress
from kafka_pubsub.multicast.read_back import StageLooks
from kafka_pubsub.multicast.records import decode_inbox
from kafka_pubsub.multicast.role import SequencerRole
from kafka_pubsub.multicast.routes import Target
from kafka_pubsub.multicast.task import SequencerTask
from kafka_pubsub.multicast.values import Release
from kafka_pubsub.services.sending import Sendings
from tests.unit.multicast import (
    test_dead_letters,
    test_multicast,
    test_outbox,
    test_publisher,
    test_publisher_trouble,
    test_read_back,
    test_role,
    test_routes,
    test_task,
)
from tests.unit.services import test_troubles

__all__ = ["MUTATIONS", "Mutation"]

Patch = pytest.MonkeyPatch


class _Same(str):
    """A text that equals every other."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False


# -- publishing ----------------------------------------------------------------------------------------------------


def unfenced(patch: Patch) -> None:
    """A publisher reads a stage back without having fenced its own id."""
    real = publisher.MulticastPublisher._find_out

    def find_out(self: Any, *arguments: Any) -> Any:
        transactions = self._transactions
        with Patch.context() as inner:
            inner.setattr(transactions, "fence", lambda transactional_id: None)
            return real(self, *arguments)

    patch.setattr(publisher.MulticastPublisher, "_find_out", find_out)


def trimmed_is_aborted(patch: Patch) -> None:
    """A stage whose place was trimmed is staged again."""
    real = StageLooks.find

    def find(self: StageLooks, *arguments: Any) -> Ending | None:
        found = real(self, *arguments)
        return Ending.ABORTED if found is Ending.UNKNOWN else found

    patch.setattr(StageLooks, "find", find)


def not_found_is_aborted(patch: Patch) -> None:
    """A stage isn't staged because a broker doesn't find its inbox."""
    real = StageLooks._look

    def look(self: StageLooks, name: str, stage: Any, offset: int) -> Ending | None:
        try:
            self._backend.admin.topic(stage.topic)
        except NotFound:
            return Ending.ABORTED
        return real(self, name, stage, offset)

    patch.setattr(StageLooks, "_look", look)


def any_inbox_is_read(patch: Patch) -> None:
    """A stage is looked for in an inbox that was made again."""
    patch.setattr(read_back, "participant", lambda *_: _Same())


def receipts_end_holds(patch: Patch) -> None:
    """A hold ends with a receipt only."""
    patch.setattr(publisher, "find_released", lambda *_: [])


def time_ends_holds(patch: Patch) -> None:
    """A message whose future has failed holds up nothing any more."""
    real = Outbox.expired

    def expired(self: Outbox, now: float) -> list[tuple[Outgoing, Standing]]:
        found = real(self, now)
        for message, _ in found:
            if message.batch is not None:
                self.sent(message.batch, now)
        return found

    patch.setattr(Outbox, "expired", expired)


def doubt_is_never(patch: Patch) -> None:
    """A message that may be staged counts as never delivered."""
    real = Outgoing.standing.fget  # type: ignore[attr-defined]

    def standing(self: Outgoing) -> Standing:
        found = real(self)
        return Standing.QUEUED if found is Standing.UNKNOWN else found

    patch.setattr(Outgoing, "standing", property(standing))


def first_receipt_counts(patch: Patch) -> None:
    """A batch is over with its first receipt, whatever others say of the messages that this receipt refused."""
    patch.setattr(Batch, "decided", property(lambda self: True))


# -- names, versions, inboxes --------------------------------------------------------------------------------------


def names_without_inboxes(patch: Patch) -> None:
    """A participant's name doesn't tell an inbox from the inbox that was there before."""
    patch.setattr(layout, "_ID_LENGTH", 0)


def partitions_of_the_home(patch: Patch) -> None:
    """The number of partitions is the home topic's, and not the catalog's."""
    real = target_of

    def made(field: str, record: Any, info: Any) -> Target:
        return real(field, record, info)._replace(partitions=info.partitions)

    patch.setattr(multicast, "target_of", made)


def newer_is_dead_lettered(patch: Patch) -> None:
    """A record of a newer version counts as foreign."""

    def decode(headers: Any) -> Any:
        try:
            return decode_inbox(headers)
        except FailedPrecondition:
            return None

    patch.setattr(sequencer_task, "decode_inbox", decode)


def foreign_stops(patch: Patch) -> None:
    """A record that isn't ours is refused, again and again."""
    real = sequencer_task._read

    def read(offset: int, record: Any) -> Any:
        found = real(offset, record)
        return found._replace(refused="it isn't ours") if found.said is None else found

    patch.setattr(sequencer_task, "_read", read)


def any_position_counts(patch: Patch) -> None:
    """A position counts for whatever inbox has the name now."""

    def parse(offset: int, text: str) -> Any:
        return parse_progress(offset, text)._replace(inbox_id=_Same())

    patch.setattr(sequencer_role, "parse_progress", parse)


def any_inbox_is_served(patch: Patch) -> None:
    """A sequencer reads an inbox that isn't the catalog's."""
    real = SequencerRole.begin

    def begin(self: SequencerRole, *arguments: Any) -> Any:
        admin = self.backend.admin
        look = admin.topic
        with Patch.context() as inner:
            inner.setattr(admin, "topic", lambda name: look(name)._replace(topic_id=_Same()))
            inner.setattr(self, "_ids", {})
            return real(self, *arguments)

    patch.setattr(SequencerRole, "begin", begin)


def lost_records_unseen(patch: Patch) -> None:
    """An inbox that has lost records which were handled is read on."""
    patch.setattr(SequencerRole, "_has_lost_records", lambda *_: False)


def trimmed_to_the_position(patch: Patch) -> None:
    """An inbox is trimmed up to the position, and not only below the oldest message that waits."""

    def trimmable(self: SequencerRole, positions: Any) -> dict[int, int]:
        return {topic: _position(to) for topic, to in positions.items()}

    patch.setattr(SequencerRole, "trimmable", trimmable)


def _position(to: Committed) -> int:
    return parse_progress(to.offset or 0, to.metadata).checkpoint.position


# -- topics that are away, and topics that are gone ------------------------------------------------------------------


def away_is_refused(patch: Patch) -> None:
    """A topic that is away refuses the record, which becomes a dead letter."""
    patch.setattr(sequencer_task, "OF_THE_RECORD", PubSubError)


def all_go_together(patch: Patch) -> None:
    """A partition that failed doesn't go alone."""
    patch.setattr(Sendings, "set_apart", lambda self, share: None)


def first_by_name_speaks(patch: Patch) -> None:
    """The first destination by name writes the receipt of a refused batch, even if this destination is gone."""

    def speaks(self: SequencerTask, refused: Any, staged: Any) -> bool:
        return bool(self._name == min(staged.stage.destinations))

    patch.setattr(SequencerTask, "_speaks_for_all", speaks)


def unlisted_proposes(patch: Patch) -> None:
    """A sequencer goes on for an inbox that the catalog doesn't list any more."""
    patch.setattr(SequencerTask, "_check_listed", lambda self: None)


def refusals_untold(patch: Patch) -> None:
    """A receipt doesn't say which messages its destination refused."""
    real = SequencerTask._deliver

    def deliver(self: SequencerTask, *arguments: Any) -> dict[int, str]:
        real(self, *arguments)
        return {}

    patch.setattr(SequencerTask, "_deliver", deliver)


# -- at home -------------------------------------------------------------------------------------------------------


def time_of_publishing(patch: Patch) -> None:
    """At home a record has its publisher's time."""
    real = sequencer_batches._finish

    def finish(release: Release, stage: Any, messages: list[BatchMessage]) -> list[BatchMessage]:
        made = real(release, stage, messages)
        return [new._replace(time=old.time) for new, old in zip(made, messages, strict=True)]

    patch.setattr(sequencer_batches, "_finish", finish)


def replayed_one_by_one(patch: Patch) -> None:
    """Replayed messages have the participants of their own handles only."""
    from kafka_pubsub.multicast import dead_letters

    real = dead_letters._Letters.at_home

    def at_home(self: Any, record: Any) -> Any:
        self._handles = {"b": set(dead_letters._handles_of(record))}
        return real(self, record)

    patch.setattr(dead_letters._Letters, "at_home", at_home)


class Mutation(NamedTuple):
    """A broken rule, and the test that must notice, with its parameters."""

    breaks: Callable[[Patch], None]
    scene: Callable[..., None]


MUTATIONS = [
    Mutation(
        unfenced,
        partial(
            test_publisher_trouble.test_a_stage_whose_ending_isnt_known_is_staged_once,
            ending=RequestOutcome.REFUSED,
        ),
    ),
    Mutation(
        trimmed_is_aborted,
        partial(
            test_read_back.test_a_stage_that_was_trimmed_before_it_was_read_back_is_not_staged_again,
            trimmed="ab",
        ),
    ),
    Mutation(
        not_found_is_aborted, test_read_back.test_an_inbox_that_is_not_found_for_a_moment_is_asked_again
    ),
    Mutation(
        any_inbox_is_read,
        test_read_back.test_a_stage_is_looked_for_in_the_inbox_to_which_it_was_written,
    ),
    Mutation(receipts_end_holds, test_publisher.test_a_receipt_that_is_lost_holds_up_nothing_for_long),
    Mutation(time_ends_holds, test_outbox.test_what_has_waited_too_long_is_never_staged),
    Mutation(
        doubt_is_never,
        test_publisher.test_futures_fail_in_time_while_it_is_looked_whether_a_message_is_staged,
    ),
    Mutation(
        first_receipt_counts,
        test_outbox.test_a_message_has_its_outcome_with_the_first_receipt_of_a_destination_that_took_it,
    ),
    Mutation(
        names_without_inboxes,
        test_routes.test_what_names_an_earlier_inbox_is_dead_lettered_and_refused_elsewhere,
    ),
    Mutation(
        partitions_of_the_home,
        test_routes.test_a_partition_that_another_tool_adds_changes_nothing,
    ),
    Mutation(newer_is_dead_lettered, test_task.test_a_record_of_a_newer_version_is_waited_for),
    Mutation(foreign_stops, test_multicast.test_a_record_of_an_inbox_that_isnt_ours_is_passed_over),
    Mutation(any_position_counts, test_role.test_a_position_of_another_inbox_counts_for_nothing),
    Mutation(
        any_inbox_is_served,
        test_routes.test_an_inbox_that_was_made_again_is_named_and_others_go_on,
    ),
    Mutation(
        lost_records_unseen,
        partial(test_task.test_an_inbox_that_has_lost_records_is_not_read, grown=30),
    ),
    Mutation(
        trimmed_to_the_position,
        test_task.test_an_inbox_is_not_trimmed_above_a_message_that_waits,
    ),
    Mutation(
        away_is_refused,
        partial(test_task.test_a_topic_that_is_away_holds_up_its_own_messages_only, topic="b"),
    ),
    Mutation(
        all_go_together,
        test_troubles.test_a_partition_that_failed_goes_alone_for_a_while_and_then_with_the_others,
    ),
    Mutation(
        first_by_name_speaks,
        partial(
            test_routes.test_the_first_destination_that_is_left_tells_the_publisher_that_another_is_gone,
            gone="a",
        ),
    ),
    Mutation(
        unlisted_proposes,
        test_role.test_a_sequencer_proposes_nothing_for_an_inbox_that_the_catalog_does_not_list,
    ),
    Mutation(
        refusals_untold,
        test_task.test_a_release_that_every_destination_refuses_fails_the_future_with_the_reasons,
    ),
    Mutation(
        time_of_publishing,
        test_multicast.test_a_record_has_the_time_of_its_release_and_a_message_that_of_its_publisher,
    ),
    Mutation(
        replayed_one_by_one,
        test_dead_letters.test_a_replayed_message_doesnt_pass_one_that_waits_for_the_topic_of_its_handle,
    ),
]
