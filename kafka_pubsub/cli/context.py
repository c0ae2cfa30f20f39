"""The state of one run of the program: Kafka's address, the form of answers, and how a `PubSub` is opened.

Rule: `open_pubsub`, `find_running` and `local_status` are fields, so that a test runs every command over
`PubSub.in_memory()`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kafka_pubsub.cli.output import Output
from kafka_pubsub.errors import FailedPrecondition, InvalidArgument

if TYPE_CHECKING:
    from kafka_pubsub.app import PubSub
    from kafka_pubsub.local import Status

__all__ = ["OpenPubSub", "Session"]

#: Address (None: the configuration names it), librdkafka settings and a config file in, an open `PubSub` out.
OpenPubSub = Callable[[str | None, Mapping[str, str], str | None], "AbstractContextManager[PubSub]"]


def _open_pubsub(
    bootstrap: str | None, config: Mapping[str, str], config_file: str | None
) -> AbstractContextManager[PubSub]:
    from kafka_pubsub.app import PubSub

    return PubSub(bootstrap, config=dict(config), config_file=config_file)


def _find_running() -> str | None:
    from kafka_pubsub.local import find_running

    return find_running()


def _local_status() -> Status:
    from kafka_pubsub.local import status

    return status()


@dataclass
class Session:
    """The shared options of one command line, which are set while click parses it."""

    open_pubsub: OpenPubSub = _open_pubsub
    find_running: Callable[[], str | None] = _find_running
    local_status: Callable[[], Status] = _local_status
    bootstrap: str | None = None
    #: librdkafka settings given with `--config`; empty: none were.
    config: dict[str, str] = field(default_factory=dict)
    #: The file given with `--config-file`; None: none was.
    config_file: str | None = None
    as_json: bool = False

    @property
    def output(self) -> Output:
        """Returns an `Output` that writes answers in the form that the options name."""
        return Output(as_json=self.as_json)

    def address(self) -> str | None:
        """Kafka's address by the rules of `PubSub`: options, environment, the embedded broker; None: nowhere."""
        from kafka_pubsub.config import Settings

        try:
            settings = Settings()
        except (ValueError, InvalidArgument):
            # `PubSub` will refuse these settings, with a better error text.
            return self.bootstrap or ""
        merged: dict[str, object] = {**settings.config, **self.settings()}
        if self.config_file is None and settings.config_file:
            from kafka_pubsub.log.kafka.config_file import join_config

            merged |= join_config(settings, self.bootstrap, self.config, None)
        configured = merged.get("bootstrap.servers")
        return (
            self.bootstrap or (str(configured) if configured else settings.bootstrap) or self.find_running()
        )

    def settings(self) -> dict[str, str]:
        """Returns the settings that the options give; one of them wins over the file's."""
        if self.config_file is None:
            return self.config
        from kafka_pubsub.log.kafka.config_file import read_config_file

        found = read_config_file(self.config_file)
        if self.bootstrap is not None:
            found.pop("bootstrap.servers", None)
        return {**found, **self.config}

    def java_settings(self) -> dict[str, str]:
        """Returns the settings that the options give, for a Java client: a file's have Java's names."""
        if self.config_file is None:
            return self.config
        from kafka_pubsub.log.kafka.config_file import read_java_file

        found = read_java_file(self.config_file)
        found.pop("bootstrap.servers", None)
        return {**found, **self.config}

    def pubsub(self) -> AbstractContextManager[PubSub]:
        """Opens a `PubSub` on the cluster that the options name."""
        address = self.address()
        if address is None:
            raise FailedPrecondition(
                "no Kafka to talk to: start the embedded one with `kafka-pubsub up`, or name yours with "
                "--bootstrap HOST:PORT (KAFKA_PUBSUB_BOOTSTRAP)"
            )
        return self.open_pubsub(address or None, self.config, self.config_file)
