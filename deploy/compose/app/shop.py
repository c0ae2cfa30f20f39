"""An app with one handler, which says what it got: `docker compose logs -f worker-1 worker-2`."""

from __future__ import annotations

from pydantic import BaseModel

from kafka_pubsub import App, DeadLetterPolicy, RetryPolicy


class Order(BaseModel):
    """What an order has."""

    user: str
    number: int


app = App()
orders = app.topic("orders", Order, key=lambda order: order.user)
retry = RetryPolicy(min_backoff=1, max_backoff=60)
dead = DeadLetterPolicy(topic="orders-dead", max_attempts=5)


@app.subscriber("billing", topic="orders", message_ordering=True, retry=retry, dead_letter=dead)
def charge(order: Order) -> None:
    """Charges an order."""
    print(f"charged {order.user} {order.number}")
