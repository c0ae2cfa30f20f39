"""Sends messages to one endpoint, on an event loop.

Rules
1. Order per key is the subscription's: a key's next message is handed out when the one before is finished. Beside each
   other are requests of different keys, as many as `Pace` allows.
2. A message that waits for its turn, or whose request runs, keeps its lease.
3. An address is checked after its name was resolved (`addresses.py`). Redirects aren't followed, no proxy is taken from
   the environment, cookies aren't kept, and of an answer at most `MOST_READ` bytes are read.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from socket import AddressFamily

import aiohttp
from aiohttp.abc import ResolveResult

from kafka_pubsub.errors import FailedPrecondition, InvalidArgument
from kafka_pubsub.handlers.outcomes import DeadLetter, Retry
from kafka_pubsub.log.trouble_log import TroubleLog
from kafka_pubsub.model import Message
from kafka_pubsub.worker.push.addresses import refusal
from kafka_pubsub.worker.push.answers import Answer, judge
from kafka_pubsub.worker.push.bodies import Posted, write_request
from kafka_pubsub.worker.push.options import PushOptions
from kafka_pubsub.worker.push.pace import Pace
from kafka_pubsub.worker.push.signature import sign, signing_key

__all__ = ["Sender"]

_log = logging.getLogger("kafka_pubsub.push")

#: The most bytes of an answer that are read; the connection of a longer one is closed.
MOST_READ = 64 * 1024
#: Seconds of lease beyond the request's own, and between two renewals while a message waits.
SPARE, RENEW = 30.0, 10.0


class Sender:
    """The endpoint of one connector."""

    def __init__(self, options: PushOptions) -> None:
        self._options = options
        self._host = options.host
        self._key = None if options.secret is None else signing_key(options.secret.get_secret_value())
        self._token = _Token(options)
        self._pace = Pace.first(options.concurrency)
        self._running = 0
        self._changed: asyncio.Condition
        self._session: aiohttp.ClientSession
        self._troubles = TroubleLog(_log)

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Opens the connections for as long as the context lasts."""
        options = self._options
        if why := _literal_refusal(self._host, allow_private=options.allow_private):
            raise InvalidArgument(f"url: the address {self._host} {why}")
        connector = aiohttp.TCPConnector(
            limit=options.concurrency,
            ssl=_tls(options),
            resolver=CheckedResolver(allow_private=options.allow_private),
        )
        self._changed = asyncio.Condition()
        async with aiohttp.ClientSession(
            connector=connector,
            timeout=aiohttp.ClientTimeout(total=options.timeout),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            headers={"user-agent": "kafka_pubsub"},
        ) as self._session:
            yield

    async def send(self, message: Message) -> None:
        """Posts a message; returns when the endpoint has taken it, and else raises an outcome."""
        request = write_request(message, self._options.subscription, self._options.format)
        if len(request.body) > self._options.max_body:
            raise DeadLetter(
                f"the request has {len(request.body)} bytes, and max_body is {self._options.max_body}"
            )
        await self._wait_for_turn(message)
        try:
            message.extend(self._options.timeout + SPARE)
            answer = await self._post(request, message.message_id)
        finally:
            await self._end_turn()
        await self._note(answer)
        if answer.is_dead:
            raise DeadLetter(answer.reason)
        if not answer.ok:
            raise Retry(answer.reason, delay=answer.pause)

    async def _wait_for_turn(self, message: Message) -> None:
        renew_at = time.monotonic() + RENEW
        async with self._changed:
            while not self._pace.may_begin(self._running, now := time.monotonic()):
                if now >= renew_at:
                    message.extend(RENEW + SPARE)
                    renew_at = now + RENEW
                until = min(
                    renew_at, max(now, self._pace.pause_until) if self._pace.pause_until > now else renew_at
                )
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._changed.wait(), max(0.001, until - now))
            self._running += 1

    async def _end_turn(self) -> None:
        async with self._changed:
            self._running -= 1
            self._changed.notify()

    async def _note(self, answer: Answer) -> None:
        """Takes an answer into the pace, and warns of a failure once a minute."""
        async with self._changed:
            before = self._pace.now
            self._pace = self._pace.succeeded() if answer.ok else self._pace.failed()
            if answer.pause is not None:
                self._pace = self._pace.paused(answer.pause, time.monotonic())
            self._changed.notify(max(1, self._pace.now - before))
        if not answer.ok:
            error = FailedPrecondition(answer.reason)
            self._troubles.tell(
                error, "push %s to %s: %s", self._options.subscription, self._host, answer.reason
            )

    async def _post(self, request: Posted, message_id: str) -> Answer:
        options = self._options
        headers = {**request.headers, **self._token.header()}
        if self._key is not None:
            headers |= sign(self._key, message_id, int(time.time()), request.body)
        try:
            async with self._session.post(
                options.url, data=request.body, headers=headers, allow_redirects=False
            ) as response:
                answer = judge(
                    response.status,
                    response.headers.get("retry-after"),
                    response.headers.get("location"),
                    options.dead_letter_on,
                    datetime.now(UTC),
                )
                await response.content.read(MOST_READ)
                if not response.content.at_eof():
                    response.close()
                return answer
        except TimeoutError:
            return Answer(f"no answer within {options.timeout:g} s")
        except aiohttp.ClientConnectorCertificateError as error:
            why = error.certificate_error
            return Answer(
                f"the certificate isn't trusted ({why}): set ca_file, or mend the endpoint's certificate"
            )
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return Answer(f"{type(error).__name__}: {error}")


class CheckedResolver(aiohttp.ThreadedResolver):
    """Resolves names to addresses that may be reached."""

    def __init__(self, *, allow_private: bool) -> None:
        super().__init__()
        self._allow_private = allow_private

    async def resolve(
        self, host: str, port: int = 0, family: AddressFamily = AddressFamily.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Returns the addresses that may be reached; raises `OSError` if there is none."""
        found = await super().resolve(host, port, family)
        refused = {each["host"]: refusal(each["host"], allow_private=self._allow_private) for each in found}
        good = [each for each in found if not refused[each["host"]]]
        if not good:
            address, why = next(iter(refused.items()))
            raise OSError(f"{host} has the address {address}, which {why}")
        return good


class _Token:
    """The bearer token: of the options, or of a file that may change."""

    def __init__(self, options: PushOptions) -> None:
        self._file = None if options.token_file is None else Path(options.token_file)
        self._text = "" if options.token is None else options.token.get_secret_value()
        self._read_at = 0

    def header(self) -> dict[str, str]:
        """Returns the header for a request; nothing without a token."""
        if self._file is not None and (changed := self._file.stat().st_mtime_ns) != self._read_at:
            self._text, self._read_at = self._file.read_text("utf-8").strip(), changed
        return {"authorization": f"Bearer {self._text}"} if self._text else {}


def _literal_refusal(host: str, *, allow_private: bool) -> str:
    """Returns why an address in the URL itself may not be reached; empty: it may, or the host is a name."""
    why = refusal(host, allow_private=allow_private)
    return "" if why == "is no address" else why


def _tls(options: PushOptions) -> ssl.SSLContext | bool:
    if options.ca_file is None and options.cert_file is None:
        return True
    try:
        context = ssl.create_default_context(cafile=options.ca_file)
        if options.cert_file is not None:
            context.load_cert_chain(options.cert_file, options.key_file)
    except (OSError, ssl.SSLError) as error:
        name = "cert_file" if options.cert_file is not None else "ca_file"
        raise InvalidArgument(f"{name}: it can't be read: {error}") from error
    return context
