"""Spans for OpenTelemetry (extra `tracing`): for each send, each delivery to a callback, each `receive`.

Theory. `instrument` puts other classes and callbacks in the place of the plain ones, for handles and streams that are
made afterwards. Without it, and where the program has set no SDK, nothing is in the way of a message.

Rules
1. What goes wrong in a tracer or an exporter never reaches the program: the message goes its way without a span.
2. A delivery links to the context that the message carries (`traceparent`); with `parent` that is the span's parent
   instead. A redelivery also links to the first delivery's span, if that was in this process and not too long ago.
3. Names are those of OpenTelemetry's semantic conventions; ours begin with `kafka_pubsub.`.
"""

from __future__ import annotations

import logging
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, cast

from kafka_pubsub import subscriber, topic
from kafka_pubsub.config import SubscriptionRecord
from kafka_pubsub.errors import FailedPrecondition
from kafka_pubsub.model import Message, StoredRecord
from kafka_pubsub.publish.future import PublishFuture
from kafka_pubsub.publish.many import PublishFutures, PublishItem
from kafka_pubsub.subscribe.partition.settings import REJECTED
from kafka_pubsub.subscribe.workers.lease_runner import ACKED, NACKED
from kafka_pubsub.topic import Topic

if TYPE_CHECKING:
    from contextvars import Token

    from opentelemetry.context import Context
    from opentelemetry.trace import Link, Span, SpanContext, Tracer, TracerProvider

__all__ = ["Instrumentor", "instrument", "uninstrument"]

_log = logging.getLogger("kafka_pubsub.tracing")

#: First deliveries that are remembered, of messages that weren't acked.
REMEMBERED: Final = 10_000

#: Spans of sends that wait for the broker's answer. Beyond that a span ends when its message is queued: thousands of
#: open ones would cost each message twice as much.
MOST_OPEN: Final = 100

SYSTEM: Final = "messaging.system"
OPERATION: Final = "messaging.operation.name"
OPERATION_TYPE: Final = "messaging.operation.type"
DESTINATION: Final = "messaging.destination.name"
GROUP: Final = "messaging.consumer.group.name"
PARTITION: Final = "messaging.destination.partition.id"
OFFSET: Final = "messaging.kafka.offset"
KEY: Final = "messaging.kafka.message.key"
MESSAGE_ID: Final = "messaging.message.id"
BODY_SIZE: Final = "messaging.message.body.size"
BATCH: Final = "messaging.batch.message_count"
ERROR: Final = "error.type"
ATTEMPT: Final = "kafka_pubsub.delivery_attempt"
#: How a delivery has ended: `ack`, `nack`, `dead_letter`, or `open` if the callback left the message leased.
OUTCOME: Final = "kafka_pubsub.outcome"

Attributes = dict[str, str | int]
#: A span, and what makes the one before the current one again.
_Begun = tuple["Span", "Token[Context]"]

_TRACEPARENT = re.compile(rb"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?")


def instrument(tracer_provider: TracerProvider | None = None, *, parent: bool = False) -> None:
    """Makes spans from now on: `send {topic}` for a publish, `process {topic}` for a delivery.

    A call of `receive` that returns messages has a span `receive {topic}`.

    `tracer_provider`: the one to use; None, the default, is the program's global one. Set that before this call:
    without an SDK there is nothing to record, and nothing is changed. `parent`: True makes the sender's span the parent
    of the delivery's, in one trace; False, the default, links to it. Call it before you make handles of topics and open
    streams.
    """
    try:
        from opentelemetry import trace
    except ImportError:
        raise FailedPrecondition(
            "tracing needs opentelemetry-api: pip install 'kafka-pubsub-orderly[tracing]'"
        ) from None
    provider = trace.get_tracer_provider() if tracer_provider is None else tracer_provider
    if isinstance(provider, (trace.ProxyTracerProvider, trace.NoOpTracerProvider)):
        _log.info(
            "no OpenTelemetry SDK is set, so there are no spans: set one before kafka_pubsub is instrumented"
        )
        return
    tracing = _Tracing(trace.get_tracer("kafka_pubsub", tracer_provider=provider), parent=parent)

    class TracedTopic(_TracedTopic):
        __slots__ = ()

    TracedTopic.tracing = tracing
    topic.use(TracedTopic)
    subscriber.trace(tracing)


def uninstrument() -> None:
    """Makes no spans for handles and streams that are made from now on."""
    topic.use(Topic)
    subscriber.trace(None)


class Instrumentor:
    """What `opentelemetry-instrument` calls, through the entry point `opentelemetry_instrumentor`."""

    def instrument(self, **options: object) -> None:
        """Calls `instrument` with the `tracer_provider` and `parent` among the options, if they are there."""
        provider = cast("TracerProvider | None", options.get("tracer_provider"))
        instrument(provider, parent=bool(options.get("parent")))

    def uninstrument(self, **_: object) -> None:
        """Calls `uninstrument`."""
        uninstrument()


class _Tracing:
    """Makes the spans."""

    def __init__(self, tracer: Tracer, *, parent: bool) -> None:
        from opentelemetry import context, propagate, trace

        self._tracer, self._parent = tracer, parent
        self._context, self._propagate, self._trace = context, propagate, trace
        #: The first deliveries of messages that will come again, by subscription and message.
        self._first: OrderedDict[tuple[str, str], SpanContext] = OrderedDict()
        self._failed = False
        #: The spans of sends that wait for an answer, by their number in memory.
        self.open: dict[int, Span] = {}

    # -- sending -------------------------------------------------------------------------------------------------

    def send(self, name: str, attributes: Attributes) -> Span | None:
        """Begins the span of a publish; None: that failed."""
        try:
            common: Attributes = {
                SYSTEM: "kafka",
                OPERATION: "send",
                OPERATION_TYPE: "send",
                DESTINATION: name,
                **attributes,
            }
            return self._tracer.start_span(
                f"send {name}", kind=self._trace.SpanKind.PRODUCER, attributes=common
            )
        except Exception as error:
            self._told(error)
            return None

    def carried(self, span: Span | None, attributes: Mapping[str, str] | None) -> Mapping[str, str] | None:
        """Returns the message's attributes with the span's context."""
        if span is None:
            return attributes
        try:
            context = span.get_span_context()
            carrier = {
                "traceparent": f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
            }
            if context.trace_state:
                carrier["tracestate"] = context.trace_state.to_header()
            return carrier if attributes is None else {**carrier, **attributes}
        except Exception as error:
            self._told(error)
            return attributes

    def sent(self, span: Span, future: Future[str]) -> None:
        """Ends the span of a publish, whose future is done."""
        self.open.pop(id(span), None)
        error = future.exception()
        try:
            if error is None:
                message_id = future.result()
                place = message_id.rsplit(":", 2)
                span.set_attributes({MESSAGE_ID: message_id, PARTITION: place[-2]})
        except Exception as wrong:
            self._told(wrong)
        self.end(span, error)

    def end(self, span: Span | None, error: BaseException | None = None) -> None:
        """Ends a span, as failed with an `error`."""
        if span is None:
            return
        try:
            if error is not None:
                span.set_attribute(ERROR, type(error).__qualname__)
                span.set_status(self._trace.Status(self._trace.StatusCode.ERROR, str(error)))
            span.end()
        except Exception as wrong:
            self._told(wrong)

    # -- receiving -----------------------------------------------------------------------------------------------

    def around(
        self, callback: Callable[[Message], object], record: SubscriptionRecord
    ) -> Callable[[Message], object]:
        """Returns a callback with a span around."""
        common, name = _common(record), f"process {record.topic}"

        def traced(message: Message) -> object:
            begun = self._begin(message, record, common, name)
            error: BaseException | None = None
            try:
                return callback(message)
            except BaseException as raised:
                error = raised
                raise
            finally:
                if begun is not None:
                    self._finish(begun, message, record, error)

        return traced

    def around_coroutine(
        self, callback: Callable[[Message], Awaitable[object]], record: SubscriptionRecord
    ) -> Callable[[Message], Awaitable[object]]:
        """Returns a coroutine function with a span around."""
        common, name = _common(record), f"process {record.topic}"

        async def traced(message: Message) -> object:
            begun = self._begin(message, record, common, name)
            error: BaseException | None = None
            try:
                return await callback(message)
            except BaseException as raised:
                error = raised
                raise
            finally:
                if begun is not None:
                    self._finish(begun, message, record, error)

        return traced

    def around_batch(
        self, callback: Callable[[list[Message]], object], record: SubscriptionRecord
    ) -> Callable[[list[Message]], object]:
        """Returns a callback of batches with one span around each batch."""
        common, name = _common(record), f"process {record.topic}"

        def traced(messages: list[Message]) -> object:
            begun = self._begin_batch(messages, record, common, name)
            error: BaseException | None = None
            try:
                return callback(messages)
            except BaseException as raised:
                error = raised
                raise
            finally:
                if begun is not None:
                    self._finish_batch(begun, messages, record, error)

        return traced

    def received(self, messages: Sequence[Message], record: SubscriptionRecord, since: int) -> None:
        """Makes the span of a `receive` that has returned messages."""
        try:
            attributes: Attributes = {
                **_common(record),
                OPERATION: "receive",
                OPERATION_TYPE: "receive",
                BATCH: len(messages),
            }
            links = [link for each in messages for link in self._links(each, record, carried=True)]
            kind = self._trace.SpanKind.CLIENT
            name = f"receive {record.topic}"
            span = self._tracer.start_span(
                name, kind=kind, attributes=attributes, links=links, start_time=since
            )
            span.end()
        except Exception as wrong:
            self._told(wrong)

    def _begin(
        self, message: Message, record: SubscriptionRecord, common: Attributes, name: str
    ) -> _Begun | None:
        """Begins the span of a delivery, which is the current one from now on; None: that failed."""
        try:
            # One dict at once: each call for an attribute costs a microsecond. The outcome is changed if it is another.
            attributes: Attributes = {
                **common,
                PARTITION: str(message.partition),
                OFFSET: message.offset,
                MESSAGE_ID: message.message_id,
                ATTEMPT: message.delivery_attempt,
                OUTCOME: "ack",
            }
            if (key := message.key) is not None:
                attributes[KEY] = key.decode("utf-8", "replace")
            parent = self._propagate.extract(message.attributes) if self._parent else None
            return self._attach(name, parent, attributes, self._links(message, record))
        except Exception as wrong:
            self._told(wrong)
            return None

    def _begin_batch(
        self, messages: Sequence[Message], record: SubscriptionRecord, common: Attributes, name: str
    ) -> _Begun | None:
        try:
            attributes: Attributes = {**common, BATCH: len(messages), OUTCOME: "ack"}
            links = [link for each in messages for link in self._links(each, record, carried=True)]
            return self._attach(name, None, attributes, links)
        except Exception as wrong:
            self._told(wrong)
            return None

    def _attach(
        self, name: str, parent: Context | None, attributes: Attributes, links: Sequence[Link]
    ) -> _Begun:
        kind = self._trace.SpanKind.CONSUMER
        span = self._tracer.start_span(name, context=parent, kind=kind, attributes=attributes, links=links)
        return span, self._context.attach(self._trace.set_span_in_context(span))

    def _links(
        self, message: Message, record: SubscriptionRecord, *, carried: bool | None = None
    ) -> list[Link]:
        """Returns links to the message's own context, unless that is the parent, and to its first delivery."""
        links = []
        if carried or (carried is None and not self._parent):
            context = self._carried_by(message)
            if context is not None:
                links.append(self._trace.Link(context))
        if message.delivery_attempt > 1:
            first = self._first.get((record.name, message.message_id))
            if first is not None:
                links.append(self._trace.Link(first, {"kafka_pubsub.link": "first delivery"}))
        return links

    def _carried_by(self, message: Message) -> SpanContext | None:
        """Returns the context in a message's `traceparent`; by hand: the library's way takes five times as long."""
        for name, value in message._record.headers() or ():
            if name == "traceparent" and value is not None:
                found = _TRACEPARENT.fullmatch(value)
                if found is None:
                    return None
                trace_id, span_id, flags = found.groups()
                context = self._trace.SpanContext(
                    int(trace_id, 16), int(span_id, 16), True, self._trace.TraceFlags(int(flags, 16))
                )
                return context if context.is_valid else None
        return None

    def _finish(
        self, begun: _Begun, message: Message, record: SubscriptionRecord, error: BaseException | None
    ) -> None:
        span, token = begun
        self._context.detach(token)
        try:
            outcome = _outcome(message, error)
            if outcome != "ack":
                span.set_attribute(OUTCOME, outcome)
            if outcome != "ack" or message.delivery_attempt > 1:
                self._remember(span, message, record, outcome)
        except Exception as wrong:
            self._told(wrong)
        self.end(span, error)

    def _finish_batch(
        self,
        begun: _Begun,
        messages: Sequence[Message],
        record: SubscriptionRecord,
        error: BaseException | None,
    ) -> None:
        span, token = begun
        self._context.detach(token)
        try:
            outcomes = [_outcome(each, error) for each in messages]
            span.set_attribute(OUTCOME, outcomes[0] if len(set(outcomes)) == 1 else "mixed")
            for message, outcome in zip(messages, outcomes, strict=True):
                self._remember(span, message, record, outcome)
        except Exception as wrong:
            self._told(wrong)
        self.end(span, error)

    def _remember(self, span: Span, message: Message, record: SubscriptionRecord, outcome: str) -> None:
        """Remembers the first delivery of a message that comes again, until it is acked."""
        key = record.name, message.message_id
        if outcome == "ack":
            self._first.pop(key, None)
        elif key not in self._first:
            self._first[key] = span.get_span_context()
            if len(self._first) > REMEMBERED:
                self._first.popitem(last=False)

    def _told(self, error: Exception) -> None:
        level = logging.DEBUG if self._failed else logging.WARNING
        self._failed = True
        _log.log(level, "a span couldn't be made; messages go on without: %s", error, exc_info=error)


def _common(record: SubscriptionRecord) -> Attributes:
    """Returns the attributes of all deliveries of a subscription."""
    return {
        SYSTEM: "kafka",
        OPERATION: "process",
        OPERATION_TYPE: "process",
        DESTINATION: record.topic,
        GROUP: record.name,
    }


def _outcome(message: Message, error: BaseException | None) -> str:
    if message._state == ACKED:
        return "ack"
    if message._state == NACKED:
        return "dead_letter" if getattr(message._sink, "_delay", None) == REJECTED else "nack"
    return "open" if error is None else "nack"


class _TracedFuture(PublishFuture):
    """The future of a message with a span, which its report ends. `ending`: unset while there is none."""

    __slots__ = ("ending",)

    #: What ends the span, and the span: the thread that takes it out ends it.
    ending: tuple[_Tracing, list[Span]]

    def __call__(self, error: object, record: StoredRecord) -> None:
        super().__call__(error, record)
        self.end_span()

    def end_span(self) -> None:
        """Ends the span, once; the publisher and the report may both try."""
        tracing, spans = getattr(self, "ending", (None, None))
        if tracing is not None and spans:
            with suppress(IndexError):
                tracing.sent(spans.pop(), self)


class _TracedTopic(Topic):
    """A handle that makes spans."""

    __slots__ = ()
    tracing: _Tracing

    def publish(
        self,
        data: bytes,
        *,
        ordering_key: str | None = None,
        attributes: Mapping[str, str] | None = None,
        delay: float | timedelta | None = None,
        deliver_at: datetime | None = None,
        priority: int | None = None,
        durable: bool | None = None,
    ) -> Future[str]:
        said = _said(data, ordering_key)
        tracing = self.tracing
        span = tracing.send(self._name, said)
        publisher = self._publishers.get(self._name)
        if publisher is not None:
            publisher.future_kind = _TracedFuture
        try:
            future = super().publish(
                data,
                ordering_key=ordering_key,
                attributes=tracing.carried(span, attributes),
                delay=delay,
                deliver_at=deliver_at,
                priority=priority,
                durable=durable,
            )
        except BaseException as error:
            tracing.end(span, error)
            raise
        if span is not None:
            self._end_with(future, span)
        return future

    def _end_with(self, future: Future[str], span: Span) -> None:
        """Ends the span when the future is done: in its report, or by a callback, which costs a change of threads."""
        tracing = self.tracing
        if len(tracing.open) >= MOST_OPEN:
            tracing.end(span)
            return
        tracing.open[id(span)] = span
        if isinstance(future, _TracedFuture):
            future.ending = tracing, [span]
            if future.done():
                future.end_span()
        else:
            future.add_done_callback(lambda done: tracing.sent(span, done))

    def publish_many(self, items: Iterable[bytes | PublishItem]) -> PublishFutures:
        tracing, listed = self.tracing, list(items)
        span = tracing.send(self._name, {BATCH: len(listed)})
        try:
            return super().publish_many(_carrying(listed, tracing.carried(span, None)))
        except BaseException as error:
            tracing.end(span, error)
            span = None
            raise
        finally:
            # The answers come later: a callback for each message would cost more than all else.
            tracing.end(span)


def _said(data: object, ordering_key: object) -> Attributes:
    """Returns the attributes of a message; the publish itself says which argument is wrong."""
    said: Attributes = {BODY_SIZE: len(data)} if isinstance(data, bytes) else {}
    if isinstance(ordering_key, str):
        said[KEY] = ordering_key
    return said


def _carrying(
    items: Iterable[bytes | PublishItem], carried: Mapping[str, str] | None
) -> Iterable[bytes | PublishItem]:
    return [_carry(each, carried) for each in items] if carried else items


def _carry(item: bytes | PublishItem, carried: Mapping[str, str]) -> bytes | PublishItem:
    if isinstance(item, bytes):
        return {"data": item, "attributes": carried}
    try:
        return {**item, "attributes": {**carried, **(item.get("attributes") or {})}}
    except (TypeError, AttributeError):
        return item  # the publish itself says what is wrong
