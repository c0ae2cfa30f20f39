"""What handlers need on the cluster is made, or checked, or neither."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from kafka_pubsub import AlreadyExists, App, DeadLetterPolicy, FailedPrecondition, NotFound, PubSub


def app_of(ps: PubSub, **options: Any) -> App:
    app = App(pubsub=ps)

    @app.subscriber("billing", **{"topic": "orders", **options})
    def handle(body: bytes) -> None: ...

    return app


def started(app: App) -> None:
    app.start()
    app.stop()


def test_create_makes_topics_and_subscription_and_changes_nothing_later(pubsub: PubSub) -> None:
    app = app_of(pubsub, to="invoices", dead_letter=DeadLetterPolicy(topic="dead"), message_ordering=True)
    for _ in range(2):
        started(app)
    assert {topic.name for topic in pubsub.list_topics()} == {"orders", "invoices", "dead"}
    options = pubsub.subscription("billing").options
    assert options.message_ordering
    assert options.dead_letter == DeadLetterPolicy(topic="dead")


def test_a_subscription_with_other_settings_is_refused(pubsub: PubSub) -> None:
    started(app_of(pubsub))
    with pytest.raises(AlreadyExists, match="ack_deadline"):
        started(app_of(pubsub, ack_deadline=77))


def test_check_names_all_that_is_missing(pubsub: PubSub) -> None:
    app = app_of(pubsub, ensure="check", to="invoices", dead_letter=DeadLetterPolicy(topic="dead"))
    with pytest.raises(NotFound, match=r"'orders' .*'invoices' .*'dead' .*'billing' .* ensure='create'"):
        app.start()
    assert pubsub.list_topics() == []


def test_check_takes_what_is_there(pubsub: PubSub) -> None:
    started(app_of(pubsub))
    started(app_of(pubsub, ensure="check"))


def test_never_makes_and_checks_nothing(pubsub: PubSub) -> None:
    with pytest.raises(NotFound, match="billing"):
        app_of(pubsub, ensure="never").start()
    started(app_of(pubsub))
    started(app_of(pubsub, ensure="never", dead_letter_on=(ValueError,)))


def test_dead_letters_need_a_topic(pubsub: PubSub) -> None:
    with pytest.raises(FailedPrecondition, match=r"dead_letter_on .* give dead_letter=DeadLetterPolicy"):
        app_of(pubsub, dead_letter_on=(ValueError,)).start()


def test_values_need_a_topic_that_takes_keys(pubsub: PubSub) -> None:
    pubsub.create_topic("invoices", message_ordering=False)
    with pytest.raises(FailedPrecondition, match="to='invoices' refuses ordering keys"):
        app_of(pubsub, to="invoices").start()


def test_a_subscription_on_another_topic_is_named(pubsub: PubSub) -> None:
    pubsub.create_topic("other")
    pubsub.create_topic("orders")
    pubsub.create_subscription("billing", "other")
    with pytest.raises(FailedPrecondition, match="subscription 'billing' is on topic 'other', not 'orders'"):
        app_of(pubsub, ensure="check").start()


def test_processes_that_start_together_make_the_same_things_once(pubsub: PubSub) -> None:
    apps, errors = [app_of(pubsub, to="invoices") for _ in range(6)], list[Exception]()

    def start(app: App) -> None:
        try:
            app.start()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=start, args=(app,)) for app in apps]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for app in apps:
        app.stop()
    assert errors == []
    assert len(pubsub.list_subscriptions()) == 1
