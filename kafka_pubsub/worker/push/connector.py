"""The connector class `push`."""

from __future__ import annotations

from kafka_pubsub.handlers.app import App
from kafka_pubsub.worker.connectors import Connector
from kafka_pubsub.worker.push.options import PushOptions
from kafka_pubsub.worker.push.sender import Sender

__all__ = ["Push"]


class Push(Connector[PushOptions]):
    """Delivers a subscription by HTTP, each key's messages in their order."""

    options_type = PushOptions

    def __init__(self, options: PushOptions) -> None:
        super().__init__(options)
        self._sender = Sender(options)

    def problem(self) -> str:
        """Returns the endpoint's trouble: several requests in a row have failed."""
        return self._sender.problem()

    def declare(self, app: App) -> None:
        """Declares a handler that posts each message to the endpoint."""
        options, sender = self.options, self._sender
        app.lifespan(sender.open)
        subscriber = app.subscriber(
            options.subscription, topic=options.topic, max_workers=options.concurrency, message_ordering=True
        )
        subscriber(sender.send)
