"""Rules of records, each taken out; a scene of `test_records_mutations.py` must notice each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from kafka_pubsub.errors import BadRecord, RegistryUnavailable
from kafka_pubsub.model import Message
from kafka_pubsub.records import records
from kafka_pubsub.records.codec import Codec
from kafka_pubsub.records.folder import Folder
from kafka_pubsub.records.frames import SchemaId, split
from kafka_pubsub.records.records import Records, RecordWriter
from kafka_pubsub.records.registry import Registry
from kafka_pubsub.subscribe.workers import lease_runner

__all__ = ["MUTATIONS", "Patch"]

Patch = pytest.MonkeyPatch


def bad_records_come_again(patch: Patch) -> None:
    """A record that can't be read is only a nack."""
    patch.setattr(lease_runner, "BadRecord", type("Never", (Exception,), {}))


def outages_are_the_records_fault(patch: Patch) -> None:
    """A registry that is away makes records unreadable."""
    read = Records.read

    def blame(self: Records, message: Message, *how: Any) -> object:
        try:
            return read(self, message, *how)
        except RegistryUnavailable as error:
            raise BadRecord(error.message) from error

    patch.setattr(Records, "read", blame)


def each_message_asks(patch: Patch) -> None:
    """No schema is remembered, here or in the client."""
    find = Registry.find

    def anew(self: Registry, schema: SchemaId) -> Codec:
        self._codecs.clear()
        if self._client is not None:
            self._client.clear_caches()
        return find(self, schema)

    patch.setattr(Registry, "find", anew)


def each_value_asks(patch: Patch) -> None:
    """A writer asks for the last schema of each value anew."""
    encode = RecordWriter.encode

    def anew(self: RecordWriter, value: object) -> tuple[bytes, Mapping[str, str]]:
        self._source.latest(self.schema.subject)
        return encode(self, value)

    patch.setattr(RecordWriter, "encode", anew)


def publishing_registers(patch: Patch) -> None:
    """A class that the subject doesn't have is registered by its first value."""
    patch.setattr(Registry, "look_up", Registry.register)


def edits_are_not_noticed(patch: Patch) -> None:
    """A released file is read whatever stands in it now."""
    patch.setattr(Folder, "_released", lambda self, folder: {})


def the_body_goes_first(patch: Patch) -> None:
    """A zero byte wins over the header."""

    def body_first(headers: object, body: bytes) -> tuple[SchemaId, bytes, bool]:
        return split([], body) if body[:1] == b"\0" else split(headers, body)  # type: ignore[arg-type]

    patch.setattr(records, "split", body_first)


MUTATIONS: dict[str, tuple[str, Callable[[Patch], None]]] = {
    "bad_records_come_again": ("bad_record", bad_records_come_again),
    "outages_are_the_records_fault": ("outage", outages_are_the_records_fault),
    "each_message_asks": ("requests", each_message_asks),
    "each_value_asks": ("requests", each_value_asks),
    "publishing_registers": ("registered", publishing_registers),
    "edits_are_not_noticed": ("edited", edits_are_not_noticed),
    "the_body_goes_first": ("bare", the_body_goes_first),
}
