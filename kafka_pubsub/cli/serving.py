"""Answers over HTTP for commands that run: health, and the figures of the process and of Kafka."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from kafka_pubsub.handlers.health import HealthServer, Report

__all__ = ["serve"]


def serve(address: str, report: Callable[[], Report]) -> HealthServer:
    """Returns a server of /livez, /readyz and /metrics; the latter has all subscriptions of the cluster in use."""
    from kafka_pubsub.errors import InvalidArgument
    from kafka_pubsub.handlers.health import HealthServer
    from kafka_pubsub.observe.metrics import exposition, process_readings

    read = process_readings(everything=True)
    try:
        return HealthServer(address, report, lambda accept: exposition(read(), accept))
    except InvalidArgument as error:
        raise click.BadParameter(error.message, param_hint="--http") from error
