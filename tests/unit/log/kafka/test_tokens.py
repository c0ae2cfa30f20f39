"""Tokens of the program's own `oauth_cb`: shared by all clients, and kept while a new one can't be had."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any

import pytest

from kafka_pubsub.errors import DeadlineExceeded, InvalidArgument, PermissionDenied
from kafka_pubsub.log.kafka.client_factory import ClientFactory
from kafka_pubsub.log.kafka.configuration import Configuration
from kafka_pubsub.log.kafka.tokens import Token, Tokens

LIFE = 100.0


class Login:
    """A source of tokens with a clock of its own, which fails on demand."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.calls = 0
        self.failure: Exception | None = None
        self.tokens = Tokens(self.give, clock=lambda: self.now)

    def give(self, text: str) -> Token:
        self.calls += 1
        if self.failure is not None:
            raise self.failure
        return f"token {self.calls} {text}", self.now + LIFE


def test_a_token_is_shared_until_most_of_its_life_is_over() -> None:
    login = Login()
    assert login.tokens("x")[0] == "token 1 x"
    login.now += 0.6 * LIFE
    assert login.tokens("x")[0] == "token 1 x"
    login.now += 0.15 * LIFE  # before librdkafka asks, at four fifths
    assert login.tokens("x") == ("token 2 x", login.now + LIFE)


def test_a_failure_leaves_the_valid_token_and_warns_once(caplog: pytest.LogCaptureFixture) -> None:
    login = Login()
    first = login.tokens("")
    login.now += 0.8 * LIFE
    login.failure = RuntimeError("the login server is down")
    with caplog.at_level(logging.WARNING):
        assert login.tokens("") == login.tokens("") == first
    (line,) = caplog.messages
    assert "config['oauth_cb'] raised RuntimeError: the login server is down" in line
    assert "token 1" not in line
    login.now += 0.2 * LIFE
    with pytest.raises(RuntimeError):
        login.tokens("")
    login.failure = None
    assert login.tokens("") == ("token 5 ", login.now + LIFE)


def test_the_first_failure_reaches_the_caller_at_once() -> None:
    def fails(_: str) -> Token:
        raise RuntimeError("no token today")

    handles = ClientFactory(
        Configuration("127.0.0.1:1", {"sasl.mechanism": "OAUTHBEARER", "oauth_cb": fails})
    )
    with pytest.raises(PermissionDenied, match=r"config\['oauth_cb'\] raised RuntimeError: no token today"):
        handles.admin()


def test_a_login_that_hangs_is_reported() -> None:
    def hangs(_: str) -> Token:
        threading.Event().wait()
        return "", 0.0

    with pytest.raises(DeadlineExceeded, match=r"config\['oauth_cb'\] has given no token for 0.05 s"):
        Tokens(hangs).first("", 0.05)


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        ("secret", "not str"),
        (("secret",), "not tuple"),
        ((b"secret", 2000.0), r"not \(bytes, float\)"),
        (("secret", "soon"), r"not \(str, str\)"),
        (("secret", 900.0), "a token that expired 100 s ago"),
    ],
)
def test_what_is_no_token_is_refused_and_not_quoted(returned: Any, said: str) -> None:
    with pytest.raises(InvalidArgument, match=said) as caught:
        Tokens(lambda _: returned, clock=lambda: 1000.0).first("")
    assert "secret" not in caught.value.message


@pytest.mark.parametrize("given", ["secret", 5, asyncio.sleep])
def test_only_a_function_can_give_tokens(given: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"config\['oauth_cb'\] must be a function, not ") as caught:
        Configuration("h:1", {"oauth_cb": given})
    assert "secret" not in caught.value.message
