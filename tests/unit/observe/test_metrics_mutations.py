"""Each rule of metrics and spans is needed: without it a scene fails that passes with it."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from kafka_pubsub.log.memory import MemoryBackend, MemoryCluster
from kafka_pubsub.model import TopicPartition
from kafka_pubsub.observe import tracing
from kafka_pubsub.observe.kafka_view import KafkaView
from kafka_pubsub.subscribe.retry_topic.open_transactions import OpenTransactions
from tests.support import until
from tests.unit import test_counters
from tests.unit.observe import test_kafka_view, test_logs, test_tracing, test_workers
from tests.unit.observe.metrics_mutations import MUTATIONS, Patch

one_asks = test_workers.test_one_process_asks_kafka_and_the_others_tell_their_counts_alone


@contextlib.contextmanager
def spans() -> Iterator[test_tracing.Spans]:
    found = test_tracing.Spans()
    tracing.instrument(found.provider)
    try:
        yield found
    finally:
        tracing.uninstrument()


def link() -> None:
    with spans() as found:
        test_tracing.test_a_message_has_a_span_of_its_send_and_a_linked_one_of_its_delivery(found)


def redelivery() -> None:
    with spans() as found:
        test_tracing.test_a_redelivery_is_a_new_span_that_links_to_the_first(found)


def in_folder(test: Callable[[Path], None]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        test(Path(folder))


def hanging() -> None:
    """Only the first scrape waits for a broker that hangs."""
    view = KafkaView(clusters=_hang)  # type: ignore[arg-type]
    view.readings()
    began = time.monotonic()
    view.readings()
    assert time.monotonic() - began < 0.5


def _hang() -> list[object]:
    time.sleep(1)
    return []


def hanging_question() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(test_kafka_view, "until", partial(until, patience=2.0))
        test_kafka_view.test_a_question_that_hangs_delays_no_other_and_is_asked_once(patch)


def soon(test: Callable[[], None]) -> None:
    """Runs a test that waits for less long than it does elsewhere, so that a failure comes soon."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(test_kafka_view, "until", partial(until, patience=5.0))
        test()


def refusal() -> None:
    with pytest.MonkeyPatch.context() as patch:
        test_kafka_view.test_a_process_without_the_rights_of_a_monitor_says_so_once(patch)


def without_partitions() -> None:
    cluster = MemoryCluster()
    backend = MemoryBackend(cluster=cluster)
    backend.admin.create_topic("retry", 1, None, {})
    cluster.append("retry", 0, b"read")
    cluster.append("retry", 0, b"open", transaction="foreign")
    now = 0.0
    looks = OpenTransactions(backend, lambda: now)
    for _ in range(30):
        now += 1.0
        looks.look("billing", {TopicPartition("retry", 0): 1})
    assert looks.seconds > 20
    looks.look("billing", {})
    assert looks.seconds == 0


SCENES: dict[str, Callable[[], None]] = {
    "ended": test_counters.test_the_counters_of_a_part_that_has_ended_stay_and_its_gauges_go,
    "broken": test_counters.test_a_part_that_fails_is_left_out,
    "silent": lambda: in_folder(
        test_workers.test_a_process_that_does_not_answer_counts_as_before_and_is_told
    ),
    "workers": lambda: in_folder(
        test_workers.test_counters_add_up_and_of_what_kafka_knows_the_highest_counts
    ),
    "hanging": hanging,
    "link": link,
    "redelivery": redelivery,
    "never scraped": lambda: in_folder(test_workers.test_a_process_that_was_never_scraped_counts),
    "after the last scrape": lambda: in_folder(
        test_workers.test_what_a_process_counted_after_the_last_scrape_stays_too
    ),
    "the first asks": lambda: in_folder(partial(one_asks, view=True)),
    "the others don't ask": lambda: in_folder(partial(one_asks, view=False)),
    "hanging question": hanging_question,
    "refusal": refusal,
    "without partitions": without_partitions,
    "parked": lambda: soon(test_kafka_view.test_a_parked_message_is_not_overdue),
    "running retry": lambda: soon(test_kafka_view.test_a_message_whose_retry_runs_is_not_overdue),
    "extras": test_logs.test_an_extra_changes_no_field_of_the_formatter,
    "odd extras": test_logs.test_an_extra_that_json_cannot_have_loses_no_line,
}


@pytest.mark.parametrize("scene", list(SCENES.values()), ids=list(SCENES))
def test_a_scene_passes_with_all_rules(scene: Callable[[], None]) -> None:
    scene()


@pytest.mark.parametrize("mutation", list(MUTATIONS), ids=lambda each: each.__name__)
def test_a_rule_that_is_taken_out_is_noticed(
    mutation: Callable[[Patch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutation(monkeypatch)
    with pytest.raises((AssertionError, RuntimeError, ValueError)):
        SCENES[MUTATIONS[mutation]]()
