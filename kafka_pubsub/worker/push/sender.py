"""Sends messages to one endpoint, on an event loop.

Rules
1. Order per key is the subscription's: a key's next message is handed out when the one before is finished. Beside each
   other are requests of different keys, as many as `Pace` allows.
2. The stream keeps the lease of a message that waits for its turn, or whose request runs. One that has lost it
   meanwhile isn't sent: it may have been delivered elsewhere, and later ones of its key too.
3. Each address is checked when its socket is made (`addresses.py`). Redirects aren't followed, no proxy is taken from
   the environment, cookies aren't kept, and of an answer at most `MOST_READ` bytes are read.
4. The status decides, whatever becomes of the rest of an answer.
5. Of the failures of a message only the first one counts for the pace: a key that is tried again at once would fail
   more often than slow requests of all others succeed.
"""

from __future__ import annotations

import contextlib
import logging
import ssl
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import aiohttp

from kafka_pubsub.errors import FailedPrecondition, InvalidArgument
from kafka_pubsub.handlers.outcomes import DeadLetter, Retry
from kafka_pubsub.log.trouble_log import TroubleLog
from kafka_pubsub.model import Message
from kafka_pubsub.subscribe.workers.lease_runner import LeaseRunner
from kafka_pubsub.worker.push.answers import Answer, judge
from kafka_pubsub.worker.push.bodies import Posted, write_request
from kafka_pubsub.worker.push.options import PushOptions
from kafka_pubsub.worker.push.pace import Pace
from kafka_pubsub.worker.push.signature import sign, signing_key
from kafka_pubsub.worker.push.turns import Turns

__all__ = ["Sender"]

_log = logging.getLogger("kafka_pubsub.push")

#: The most bytes of an answer that are read; the connection of a longer one is closed.
MOST_READ = 64 * 1024
#: Seconds after which a failure says nothing about the endpoint: the longest backoff, so that its retry comes before.
FORGET = 600.0
#: Failures in a row that say that the endpoint doesn't work.
SEVERAL = 4


class Sender:
    """The endpoint of one connector."""

    def __init__(self, options: PushOptions) -> None:
        self._options = options
        self._host = options.host
        self._key = None if options.secret is None else signing_key(options.secret.get_secret_value())
        self._token = _Token(options)
        self._turns = Turns(Pace.first(options.concurrency))
        self._session: aiohttp.ClientSession
        self._troubles = TroubleLog(_log)
        #: The failures since the last success, the last of them, and its time.
        self._failures, self._problem, self._failed_at = 0, "", 0.0

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Opens the connections for as long as the context lasts."""
        options = self._options
        if (why := options.reach.refusal(self._host)) and why != "is no address":
            raise InvalidArgument(f"url: the address {self._host} {why}")
        connector = aiohttp.TCPConnector(
            limit=options.concurrency,
            ssl=_tls(options),
            socket_factory=options.reach.open_socket,
        )
        async with aiohttp.ClientSession(
            connector=connector,
            timeout=aiohttp.ClientTimeout(total=options.timeout),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            headers={"user-agent": "kafka_pubsub"},
        ) as self._session:
            yield

    def problem(self) -> str:
        """Returns the endpoint's trouble: several requests in a row have failed, the last one lately."""
        is_known = self._failures >= SEVERAL and time.monotonic() - self._failed_at < FORGET
        return self._problem if is_known else ""

    async def send(self, message: Message) -> None:
        """Posts a message; returns when the endpoint has taken it, and else raises what becomes of it."""
        message_id = message.message_id
        request = write_request(message, message_id, self._options.subscription, self._options.format)
        if len(request.body) > self._options.max_body:
            raise DeadLetter(
                f"the request has {len(request.body)} bytes, and max_body is {self._options.max_body}"
            )
        await self._turns.begin(lambda: self._is_over(message))
        try:
            answer = await self._post(request, message_id)
            # Before the turn ends: the next request has to wait if this answer says so.
            self._note(answer, message.delivery_attempt)
        finally:
            self._turns.end()
        if answer.ok:
            return
        if answer.is_dead:
            raise DeadLetter(answer.reason)
        raise Retry(answer.reason, delay=answer.pause)

    def _is_over(self, message: Message) -> bool:
        """Returns whether the message's lease has ended; or its stream ends, and the endpoint wants a pause."""
        sink = message._sink
        return isinstance(sink, LeaseRunner) and (sink.withdrawn or (sink.stopped and self._turns.is_paused))

    def _note(self, answer: Answer, attempt: int) -> None:
        """Takes an answer into the pace, and logs a failure once a minute."""
        # A dead letter says that the message is wrong, and the endpoint works.
        if answer.ok or answer.is_dead:
            self._failures = 0
            self._turns.note(ok=True, pause=None)
        else:
            self._failures += 1
            self._problem, self._failed_at = f"{self._host}: {answer.reason}", time.monotonic()
            self._turns.note(ok=False if attempt == 1 else None, pause=answer.pause)
        if answer.ok:
            return
        error = FailedPrecondition(answer.reason)
        self._troubles.tell(error, "push %s to %s: %s", self._options.subscription, self._host, answer.reason)

    async def _post(self, request: Posted, message_id: str) -> Answer:
        options = self._options
        headers = request.headers
        try:
            self._token.add_to(headers)
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it isn't text in UTF-8"
            return Answer(f"token_file {options.token_file} can't be read: {why}")
        if self._key is not None:
            headers |= sign(self._key, message_id, int(time.time()), request.body)
        try:
            response = await self._session.post(
                options.url, data=request.body, headers=headers, allow_redirects=False
            )
            try:
                answer = judge(response.status, response.headers, options.dead_letter_on, datetime.now(UTC))
                if not response.content.at_eof():
                    await _read_rest(response)
                return answer
            finally:
                response.release()
        except TimeoutError:
            return Answer(f"no answer within {options.timeout:g} s")
        except aiohttp.ClientConnectorCertificateError as error:
            return Answer(
                f"the certificate isn't trusted ({error.certificate_error}): set ca_file, or mend the endpoint's "
                "certificate"
            )
        except aiohttp.InvalidURL:
            return Answer("the url is none that a request can have: write https://HOST/PATH")
        except aiohttp.ClientConnectorError as error:
            return Answer(f"no connection: {error.os_error.strerror or error.os_error}")
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return Answer(f"{type(error).__name__}: {error}")


async def _read_rest(response: aiohttp.ClientResponse) -> None:
    """Reads an answer to its end, so that its connection is used again; closes that of one too long or broken."""
    left = MOST_READ
    with contextlib.suppress(aiohttp.ClientError, OSError):  # a timeout too
        while left > 0:
            if not (some := await response.content.read(left)):
                return
            left -= len(some)
    response.close()


class _Token:
    """The bearer token: of the options, or of a file that may change."""

    def __init__(self, options: PushOptions) -> None:
        self._file = None if options.token_file is None else Path(options.token_file)
        self._text = "" if options.token is None else options.token.get_secret_value()
        self._read_at = 0

    def add_to(self, headers: dict[str, str]) -> None:
        """Adds the header to those of a request, if there is a token."""
        if self._file is not None and (changed := self._file.stat().st_mtime_ns) != self._read_at:
            self._text, self._read_at = self._file.read_text("utf-8").strip(), changed
        if self._text:
            headers["authorization"] = f"Bearer {self._text}"


def _tls(options: PushOptions) -> ssl.SSLContext | bool:
    if options.ca_file is None and options.cert_file is None:
        return True
    name = "ca_file"
    try:
        context = ssl.create_default_context(cafile=options.ca_file)
        name = "cert_file"
        if options.cert_file is not None:
            # Without a password OpenSSL would ask the terminal for that of an encrypted key.
            context.load_cert_chain(options.cert_file, options.key_file, password="")
    except OSError as error:  # those of ssl too
        raise InvalidArgument(f"{name}: it can't be read: {error}") from error
    return context
