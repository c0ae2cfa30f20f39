"""Rules of a push, each taken out; a scene of `test_push_mutations.py` must notice each."""

from __future__ import annotations

import hmac
import socket
from collections.abc import Callable, Collection, Mapping
from datetime import datetime

import aiohttp
import pytest

from kafka_pubsub.worker.push import answers, sender
from kafka_pubsub.worker.push.addresses import Reach
from kafka_pubsub.worker.push.answers import Answer
from kafka_pubsub.worker.push.pace import Pace

__all__ = ["MUTATIONS", "Patch"]

Patch = pytest.MonkeyPatch


def names_are_trusted(patch: Patch) -> None:
    """An address is checked only in the URL, and not where a name leads."""
    patch.setattr(Reach, "open_socket", lambda self, found: socket.socket(*found[:3]))


def mapped_address_passes(patch: Patch) -> None:
    """An address of IPv4 inside of IPv6 is judged as IPv6."""
    patch.setattr("kafka_pubsub.worker.push.addresses._inner", lambda address: address)


def rest_of_the_answer_decides(patch: Patch) -> None:
    """An answer whose rest doesn't come is a failure."""

    async def read(response: aiohttp.ClientResponse) -> None:
        await response.content.read()

    patch.setattr(sender, "_read_rest", read)


def each_failure_slows(patch: Patch) -> None:
    """Half as many requests run after each failure."""
    patch.setattr(Pace, "failed", lambda self: self._replace(now=max(1, self.now // 2)))


def redirect_is_success(patch: Patch) -> None:
    """A redirect acks."""
    judge = answers.judge

    def kind(status: int, headers: Mapping[str, str], dead: Collection[int], now: datetime) -> Answer:
        return Answer() if status < 400 else judge(status, headers, dead, now)

    patch.setattr(sender, "judge", kind)


def pause_is_ignored(patch: Patch) -> None:
    """An endpoint that asks for a pause gets the next request at once."""
    patch.setattr(Pace, "paused", lambda self, seconds, now: self)


def signature_without_its_time(patch: Patch) -> None:
    """The signature is good for ever."""
    digest = hmac.digest

    def timeless(key: bytes, signed: bytes, kind: object) -> bytes:
        message_id, _, body = signed.split(b".", 2)
        return digest(key, message_id + b"." + body, "sha256")

    patch.setattr(hmac, "digest", timeless)


def later_failures_slow(patch: Patch) -> None:
    """Each failure of a message counts for the pace."""
    note = sender.Sender._note
    patch.setattr(sender.Sender, "_note", lambda self, answer, attempt: note(self, answer, 1))


MUTATIONS: dict[Callable[[Patch], None], str] = {
    names_are_trusted: "name_of_a_private_address",
    mapped_address_passes: "addresses_in_other_forms",
    rest_of_the_answer_decides: "stalling_answer",
    each_failure_slows: "key_that_fails",
    later_failures_slow: "key_that_fails_at_once",
    redirect_is_success: "redirect",
    pause_is_ignored: "busy_endpoint",
    signature_without_its_time: "published_signature",
}
