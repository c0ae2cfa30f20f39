"""What a declaration refuses at once, with the place of the handler."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_pubsub import App, InvalidArgument


def handle(body: bytes) -> None:
    """Does nothing."""


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"ensure": "maybe"}, "ensure must be 'create', 'check' or 'never', not 'maybe'"),
        ({"batch": 0}, "batch must be from 1 to 100000, not 0"),
        ({"batch": True}, "batch must be from 1 to 100000, not True"),
        ({"batch": "10"}, "batch must be from 1 to 100000, not '10'"),
        ({"max_workers": 20_000}, "max_workers must be from 1 to 10000, not 20000"),
        (
            {"dead_letter_on": (ValueError("x"),)},
            r"dead_letter_on takes classes of exceptions, not ValueError\('x'\)",
        ),
        ({"dead_letter_on": ("ValueError",)}, "dead_letter_on takes classes of exceptions"),
        ({"to": "orders"}, "to='orders' is the topic that it receives from"),
        ({"to": ""}, "to must be a name, not ''"),
        ({"topic": ""}, "topic must be a name, not ''"),
        ({"topic": 7}, "topic must be a name, not 7"),
        ({"start": "oldest"}, 'start must be "latest", "earliest"'),
        ({"retries": 3}, "unexpected keyword argument 'retries'. Did you mean 'retry'"),
        ({"ack_dedline": 3}, "unexpected keyword argument 'ack_dedline'. Did you mean 'ack_deadline'"),
    ],
)
def test_a_wrong_option_names_the_subscriber_and_what_is_allowed(options: dict[str, Any], text: str) -> None:
    with pytest.raises(
        InvalidArgument, match=rf"subscriber 'billing' \(handle\(\) in .*test_handler.py:\d+\): .*{text}"
    ):
        App().subscriber("billing", **{"topic": "orders", **options})(handle)


def test_a_handler_must_be_a_function() -> None:
    with pytest.raises(InvalidArgument, match="the handler must be a function, not 3"):
        App().subscriber("billing", topic="orders")(3)  # type: ignore[type-var]


def test_two_subscribers_of_one_name_are_refused_with_both_places() -> None:
    app = App()
    app.subscriber("billing", topic="orders")(handle)

    def other(body: bytes) -> None: ...

    with pytest.raises(InvalidArgument, match=r"\(other\(\) in .*\(handle\(\) in .* has that name already"):
        app.subscriber("billing", topic="orders")(other)


def test_the_decorated_function_stays_what_it_was() -> None:
    assert App().subscriber("billing", topic="orders")(handle) is handle
