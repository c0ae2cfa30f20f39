"""The login tokens that a program gives: its `oauth_cb`, called once for all clients of a cluster.

Theory. librdkafka asks for a token when a client is made, and again at four fifths of its life; a process has dozens of
clients. If the function raises, a client's constructor waits for 10 s and loses the error.

Rules
1. A token is kept until `_FRESH` of its life is over, so that all clients share it. librdkafka asks later than that.
2. The first token is asked for before the first client is made (`first`), so its error reaches the caller at once.
3. If a later call fails, the kept token goes on as long as it is valid, and librdkafka asks again. Streams go on.
4. No text of ours has the token in it.
"""

from __future__ import annotations

import importlib
import logging
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Final, cast

from kafka_pubsub.errors import DeadlineExceeded, InvalidArgument, PermissionDenied, PubSubError

__all__ = ["Token", "TokenCallback", "Tokens", "load_callback"]

_LOGGER = logging.getLogger("kafka_pubsub.kafka")

#: A token, when it expires (seconds since the epoch), and if it has them its principal and extensions.
Token = tuple[str, float] | tuple[str, float, str] | tuple[str, float, str, Mapping[str, str]]
TokenCallback = Callable[[str], Token]

#: The part of a token's life after which a new one is asked for.
_FRESH: Final = 0.7
#: Seconds that must be left of a token that is used although a new one couldn't be had.
_LEAST: Final = 0.5
#: Seconds for the first token: a login that hangs is an error within 5 s.
FIRST_S: Final = 4.5
#: Seconds between two warnings.
_REPEAT: Final = 60.0

#: A text of another form may be a secret in a wrong place: it isn't quoted.
_TARGET: Final = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*", re.ASCII)
_EXPECTED: Final = "a tuple of the token and the time, in seconds since the epoch, at which it expires"


def load_callback(target: str) -> TokenCallback:
    """Imports the function that a text names, MODULE:FUNCTION, from the path or the working directory.

    Raises `InvalidArgument`, which says what is wrong.
    """
    if not _TARGET.fullmatch(target):
        raise InvalidArgument(
            "config['oauth_cb'] must be a function, not any text: write its name as MODULE:FUNCTION, such as "
            "logins:login"
        )
    module, _, name = target.partition(":")
    here = os.getcwd()
    if here not in sys.path:
        sys.path.append(here)
    try:
        found: object = importlib.import_module(module)
    except Exception as error:
        raise InvalidArgument(
            f"config['oauth_cb']: module {module!r} doesn't import from {here} or the path: {_said(error)}"
        ) from error
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is None:
        raise InvalidArgument(f"config['oauth_cb']: module {module!r} has no {name!r}")
    # `Configuration` refuses what is no function.
    return cast("TokenCallback", found)


class Tokens:
    """Gives librdkafka the tokens of a function; it is called with the value of `sasl.oauthbearer.config`."""

    def __init__(self, callback: TokenCallback, *, clock: Callable[[], float] = time.time) -> None:
        self._callback = callback
        self._clock = clock
        self._lock = threading.Lock()
        # The last token and when it was got; None: there was none yet.
        self._token: Token | None = None
        self._got = 0.0
        self._warned = float("-inf")

    def first(self, text: str, seconds: float = FIRST_S) -> None:
        """Asks for the first token; raises why there is none within `seconds`."""
        if self._token is not None:
            return
        failures: list[Exception] = []

        def ask() -> None:
            try:
                self(text)
            except Exception as error:
                failures.append(error)

        asking = threading.Thread(target=ask, name="kafka_pubsub-token", daemon=True)
        asking.start()
        asking.join(seconds)
        if asking.is_alive():
            raise DeadlineExceeded(
                f"config['oauth_cb'] has given no token for {seconds:g} s: look at what it asks, with a time limit"
            )
        for error in failures:
            if isinstance(error, PubSubError):
                raise error
            raise PermissionDenied(
                f"config['oauth_cb'] raised {_said(error)}: without a token no broker can be logged in to"
            ) from error

    def __call__(self, text: str) -> Token:
        """Returns a token: that of the other clients while it is fresh."""
        with self._lock:
            now = self._clock()
            token = self._token
            if token is not None and now < self._got + _FRESH * (token[1] - self._got):
                return token
            try:
                self._token = _checked(self._callback(text), now)
            except Exception as error:
                if token is not None:
                    self._warn(error, token[1] - now)
                if token is None or token[1] - now < _LEAST:
                    raise
                return token
            self._got = now
            return self._token

    def _warn(self, error: Exception, left: float) -> None:
        now = time.monotonic()
        if now >= self._warned + _REPEAT:
            self._warned = now
            _LOGGER.warning(
                "config['oauth_cb'] raised %s: the token at hand is valid for %.0f s; it is called again, and "
                "publishing and receiving wait once the token has expired",
                _said(error),
                max(left, 0),
            )


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:200]


def _checked(token: object, now: float) -> Token:
    if not isinstance(token, tuple) or not 2 <= len(token) <= 4:
        raise InvalidArgument(f"config['oauth_cb'] must return {_EXPECTED}, not {type(token).__name__}")
    text, expires = token[:2]
    if not isinstance(text, str) or not isinstance(expires, int | float) or not text:
        kinds = f"({type(text).__name__}, {type(expires).__name__})"
        raise InvalidArgument(f"config['oauth_cb'] must return {_EXPECTED}, not {kinds}")
    if expires <= now:
        raise InvalidArgument(
            f"config['oauth_cb'] returned a token that expired {now - expires:.0f} s ago: return the time at which it "
            "expires, in seconds since the epoch, and look at this machine's clock"
        )
    return token
