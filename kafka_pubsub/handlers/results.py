"""Publishes what a handler returns, under the key of its message, before the message is acked.

Rules
1. None is not published. Bytes go as they are, text in UTF-8, anything else by the topic's schema, or as JSON if it has
   none.
2. The message is acked only after the value is on the in-sync replicas. If that fails the message is delivered again,
   so the value may come twice, and never not at all.
3. A failed value pauses its key, which is resumed at once: the message comes again before any later one of its key.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING

from kafka_pubsub.errors import InvalidArgument, PubSubError
from kafka_pubsub.model import Message
from kafka_pubsub.payloads import encode_body

if TYPE_CHECKING:
    from kafka_pubsub.topic import Topic

__all__ = ["Results"]


class Results:
    """The topic of a handler's returned values; `where` names the handler in errors."""

    def __init__(self, topic: Topic, where: str) -> None:
        self._topic = topic
        self._where = where
        #: Whether the topic has a schema.
        self.by_schema = False

    def publish(self, message: Message, value: object) -> None:
        """Publishes a value, and waits until it is stored."""
        if value is not None:
            key = message.ordering_key or None
            self._wait(key, self._send(key, value))

    async def publish_async(self, message: Message, value: object) -> None:
        """Does the same in a coroutine."""
        if value is not None:
            key = message.ordering_key or None
            try:
                # Topics to look up, schemas and a full buffer are waited for beside the loop.
                if self._is_record(value):
                    # Of any size: only unknown topics and schemas block.
                    would_block = self._topic._would_block(b"") or not self._topic._encodes(value)
                    send = partial(self._topic.publish_record, value, ordering_key=key)
                else:
                    body = encode_body(value)
                    would_block = self._topic._would_block(body)
                    send = partial(self._topic.publish, body, ordering_key=key)
                future = await asyncio.to_thread(send) if would_block else send()
                await asyncio.wrap_future(future)
            except PubSubError:
                await asyncio.to_thread(self._resume, key)
                raise

    def publish_batch(self, messages: Sequence[Message], values: object) -> None:
        """Publishes one value for each message, and waits until all are stored."""
        if values is None:
            return
        if (
            not isinstance(values, Sequence)
            or isinstance(values, (str, bytes))
            or len(values) != len(messages)
        ):
            shown = f"{len(values)} values" if isinstance(values, Sequence) else type(values).__name__
            raise InvalidArgument(
                f"{self._where}: with to= a handler of batches returns a list with one value for each of its "
                f"{len(messages)} messages (None publishes nothing), not {shown}"
            )
        keys = [message.ordering_key or None for message in messages]
        sent = [
            (key, self._send(key, value))
            for key, value in zip(keys, values, strict=True)
            if value is not None
        ]
        for key, future in sent:
            self._wait(key, future)

    def _is_record(self, value: object) -> bool:
        return self.by_schema and not isinstance(value, (bytes, str))

    def _send(self, key: str | None, value: object) -> Future[str]:
        try:
            if self._is_record(value):
                return self._topic.publish_record(value, ordering_key=key)
            return self._topic.publish(encode_body(value), ordering_key=key)
        except PubSubError:
            self._resume(key)
            raise

    def _wait(self, key: str | None, future: Future[str]) -> None:
        try:
            future.result()
        except PubSubError:
            self._resume(key)
            raise

    def _resume(self, key: str | None) -> None:
        if key is not None:
            self._topic.resume(key)
