"""The schemas of a subject: asked from a registry by confluent-kafka's client, or read from a folder.

Rule: only drivers ask, because the client needs librdkafka, which executors don't have.
"""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafka_pubsub.errors import (
    BrokerUnavailable,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    PermissionDenied,
    PubSubError,
    SchemaError,
)

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import SchemaRegistryClient

__all__ = ["registered", "schemas_in"]

_KINDS = {401: PermissionDenied, 403: PermissionDenied, 404: NotFound}
#: Seconds for one request.
_PATIENCE = 20


def registered(registry: str, subject: str, *, config: Mapping[str, Any] | None = None) -> dict[int, str]:
    """Reads the schemas of a subject (`orders-value`) from a registry, by number: the `writers` for `decoded`.

    `registry` is the address of Confluent's interface, which Apicurio has as well (http://HOST:8080/apis/ccompat/v7).
    `config` are settings of confluent-kafka's `SchemaRegistryClient`, e.g. basic.auth.user.info or ssl.ca.location
    (default: none).

    Example:
        writers = registered("http://registry:8081", "orders-value")
    """
    if not registry.startswith(("http://", "https://")):
        raise InvalidArgument(f"registry {registry!r} isn't an address: begin it with https:// or http://")
    try:
        from confluent_kafka.schema_registry import SchemaRegistryClient
    except ImportError as error:
        raise FailedPrecondition(
            f"a registry is asked with confluent-kafka's client, and {error.name} is missing: pip install "
            "'kafka-pubsub-orderly[registry]'"
        ) from error
    try:
        with SchemaRegistryClient({"url": registry, "timeout": _PATIENCE, **(config or {})}) as client:
            return _schemas(client, subject)
    except PubSubError:
        raise
    except Exception as error:
        kind = _KINDS.get(getattr(error, "http_status_code", 0), BrokerUnavailable)
        raise kind(f"registry {registry}, subject {subject!r}: {error}") from error


def schemas_in(folder: str | PathLike[str], subject: str) -> dict[str, str]:
    """Reads the schemas of a subject from a folder (`FOLDER/orders/v1.avsc`): the `writers` for `decoded` by a header.

    Each has the text that the header `record-schema` of its messages has, such as `orders/1`.

    Example:
        writers = schemas_in("schemas", "orders")
    """
    from kafka_pubsub.records.folder import Folder

    found = Folder(Path(folder))
    return {f"{subject}/{number}": found.read(subject, number)[1] for number in found.numbers(subject)}


def _schemas(client: SchemaRegistryClient, subject: str) -> dict[int, str]:
    found = {}
    for number in client.get_versions(subject):
        told = client.get_version(subject, number)
        if told.schema_id is None or told.schema is None:
            raise SchemaError(
                f"version {number} of subject {subject!r} has no schema in the registry's answer"
            )
        if told.schema.references:
            raise SchemaError(
                f"version {number} of subject {subject!r} refers to other schemas: give it as one schema"
            )
        found[told.schema_id] = str(told.schema.schema_str)
    return found
