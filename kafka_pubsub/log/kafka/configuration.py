"""The Kafka config: the user's settings, our defaults, and our rules, which you can't change.

Rules
1. A setting wins in this order: our rules, the user's config, our defaults.
2. A setting on which one of our promises depends (`RULES`) can't be set: `InvalidArgument` names it and says why.
3. `oauth_cb`, a function or its name, is taken once for all clients of the cluster (`tokens.py`); no other callback
   can be given.
4. A setting that librdkafka doesn't know, or a value that it can't read, is found when the backend is made and
   without a thread or a socket: `verify` shows librdkafka the settings followed by one that can't exist. If it
   complains about that last one only, it took all the others.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import cast

from confluent_kafka import KafkaException
from confluent_kafka.cimpl import Consumer

from kafka_pubsub.errors import InvalidArgument
from kafka_pubsub.log.kafka.errors import error_of
from kafka_pubsub.log.kafka.tokens import TokenCallback, Tokens, load_callback

__all__ = ["RULES", "ConfigValue", "Configuration", "GivenValue", "is_known", "is_same_as_ours", "refusal_of"]

ConfigValue = str | int | float | bool
#: A value that a user gives; `oauth_cb` is a function, see `tokens.py`.
GivenValue = ConfigValue | TokenCallback

_READS = "subscriptions stand on it"
_WRITES = "publishing without gaps or repeats stands on it"
_OURS = "kafka_pubsub sets it"

#: Settings on which our promises depend -> why they can't be set.
RULES: Mapping[str, str] = MappingProxyType(
    {
        "isolation.level": _READS,
        "enable.auto.commit": _READS,
        "auto.commit.enable": _READS,
        "auto.commit.interval.ms": _READS,
        "enable.auto.offset.store": _READS,
        "auto.offset.reset": _READS,
        "enable.partition.eof": _READS,
        "partition.assignment.strategy": _READS,
        "group.remote.assignor": _READS,
        "group.protocol": f"{_OURS}; use PubSub(group_protocol=...) or KAFKA_PUBSUB_GROUP_PROTOCOL",
        "group.id": f"{_OURS} from the subscription's name",
        "group.instance.id": _OURS,
        "enable.idempotence": _WRITES,
        "enable.gapless.guarantee": _WRITES,
        "acks": _WRITES,
        "request.required.acks": _WRITES,
        "message.timeout.ms": _WRITES,
        "delivery.timeout.ms": _WRITES,
        "message.max.bytes": f"{_OURS} from the topic's max.message.bytes",
        "queue.buffering.max.messages": "use topic.configure(flow=PublishFlow(...))",
        "queue.buffering.max.kbytes": "use topic.configure(flow=PublishFlow(...))",
        "transaction.timeout.ms": _OURS,
        "statistics.interval.ms": _OURS,
        "partitioner": "every Kafka client must find a key's partition alike",
        "transactional.id": _OURS,
        "allow.auto.create.topics": "topics are made by create_topic only",
        "client.id": f"{_OURS}, so that the cluster's tools tell clients apart",
        "default.topic.config": "its settings can be given directly",
        "log.queue": _OURS,
    }
)

#: Settings of `RULES` -> the values that say the same as our rules: a file of other tools may have them.
_SAME_AS_OURS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "isolation.level": frozenset({"read_committed"}),
        "enable.auto.commit": frozenset({"false"}),
        "auto.commit.enable": frozenset({"false"}),
        "enable.auto.offset.store": frozenset({"false"}),
        "enable.idempotence": frozenset({"true"}),
        "acks": frozenset({"all", "-1"}),
        "request.required.acks": frozenset({"all", "-1"}),
        "allow.auto.create.topics": frozenset({"false"}),
    }
)

#: The one callback that may be given.
TOKEN_CALLBACK = "oauth_cb"

_SENTINEL = "kafka_pubsub.no.such.setting"
_PROTOCOL = r"(?i:(?:sasl_)?(?:plaintext|ssl))://"
_ADDRESS = re.compile(rf"(?:{_PROTOCOL})?(?:\[[0-9A-Fa-f:.%]+\]|[^\s:/\[\]]+)(?::(\d{{1,5}}))?")
_FILES = frozenset(
    {"ssl.ca.location", "ssl.certificate.location", "ssl.key.location", "ssl.keystore.location"}
)
_ADDRESS_SETTINGS = ("bootstrap.servers", "metadata.broker.list")


class Configuration:
    """The checked settings of one cluster."""

    def __init__(self, bootstrap: str | None, config: Mapping[str, GivenValue]) -> None:
        self._user = {name: value for name, value in config.items() if name not in _ADDRESS_SETTINGS}
        self.bootstrap = _bootstrap(bootstrap, config)
        named = self._user.get(TOKEN_CALLBACK)
        if isinstance(named, str):
            self._user[TOKEN_CALLBACK] = load_callback(named)
        for name, value in self._user.items():
            _check(name, value)
        #: The source of login tokens; None: logins need none from the program.
        self.tokens: Tokens | None = None
        callback = self._user.get(TOKEN_CALLBACK)
        if callback is not None:
            self.tokens = self._user[TOKEN_CALLBACK] = Tokens(cast("TokenCallback", callback))
        self._verify()
        _check_files(self._user)
        if self._user.get("sasl.mechanism", self._user.get("sasl.mechanisms")) == "OAUTHBEARER":
            _check_tokens(self._user)

    def debug(self, more: str) -> str:
        """Returns what librdkafka is to log in detail: what the user wants, and `more`."""
        return f"{self._user['debug']},{more}" if self._user.get("debug") else more

    def merged(
        self, defaults: Mapping[str, ConfigValue], rules: Mapping[str, ConfigValue]
    ) -> dict[str, ConfigValue]:
        """Returns the settings of one client."""
        return {
            name: _plain(value)
            for name, value in {
                "bootstrap.servers": self.bootstrap,
                **defaults,
                **self._user,
                **rules,
            }.items()
        }

    def _verify(self) -> None:
        trial = {**self.merged({}, {}), "group.id": "-", _SENTINEL: "-"}
        try:
            Consumer(trial)
        except KafkaException as failure:
            said = error_of(failure).str().strip()
            if _SENTINEL not in said:
                raise InvalidArgument(f"config: {said}; the names are librdkafka's") from None
        except (TypeError, ValueError) as failure:
            raise InvalidArgument(f"config: {failure}") from None


def _check_files(config: Mapping[str, GivenValue]) -> None:
    """Raises an error that names a file that can't be read; librdkafka's names the setting only."""
    for name in sorted(_FILES & set(config)):
        try:
            Path(str(config[name])).open("rb").close()
        except IsADirectoryError:
            continue  # of CAs
        except OSError as error:
            if config[name] != "probe":
                raise InvalidArgument(f"config[{name!r}]: {config[name]}: {error.strerror}") from None


def _check_tokens(config: Mapping[str, GivenValue]) -> None:
    """Raises an error if tokens are to come from nowhere; librdkafka would wait for them."""
    unsecured = str(config.get("enable.sasl.oauthbearer.unsecure.jwt", "")).lower() == "true"
    if TOKEN_CALLBACK not in config and config.get("sasl.oauthbearer.method") != "oidc" and not unsecured:
        raise InvalidArgument(
            "config: sasl.mechanism=OAUTHBEARER needs a source of tokens: set sasl.oauthbearer.method=oidc with "
            ".client.id, .client.secret and .token.endpoint.url, or name a function of Python that gives them: "
            "`oauth_cb=MODULE:FUNCTION`"
        )


def _plain(value: GivenValue) -> ConfigValue:
    # librdkafka reads "true", Python's str(True) is "True".
    return str(value).lower() if isinstance(value, bool) else cast("ConfigValue", value)


def refusal_of(name: str) -> str | None:
    """Returns why a setting can't be set; None: it may be."""
    if name in RULES:
        return RULES[name]
    if name != TOKEN_CALLBACK and (name.endswith("_cb") or name == "logger"):
        return "callbacks are taken by kafka_pubsub, except oauth_cb"
    return None


def is_same_as_ours(name: str, value: str) -> bool:
    """Returns whether a setting that can't be set has the value that it has anyway."""
    return value.strip().lower() in _SAME_AS_OURS.get(name, ())


def is_known(name: str) -> bool:
    """Returns whether librdkafka has a setting of that name."""
    try:
        Consumer({"group.id": "-", name: "x", _SENTINEL: "-"})
    except KafkaException as error:  # of an unknown name, a wrong value, or the name that can't exist
        return f'No such configuration property: "{name}"' not in error_of(error).str()
    except (TypeError, ValueError):
        return True
    return True


def _check(name: object, value: object) -> None:
    if not isinstance(name, str) or not name:
        raise InvalidArgument(f"config: {name!r} isn't the name of a setting; names are strings")
    refused = refusal_of(name)
    if refused is not None:
        raise InvalidArgument(f"config[{name!r}] can't be set: {refused}")
    if name == TOKEN_CALLBACK:
        if not callable(value) or inspect.iscoroutinefunction(value):
            kind = "a coroutine function" if callable(value) else type(value).__name__
            raise InvalidArgument(
                f"config[{name!r}] must be a function, not {kind}: it gets the value of sasl.oauthbearer.config and "
                "returns a token and the time, in seconds since the epoch, at which it expires"
            )
        return
    if not isinstance(value, str | int | float):
        kind = type(value).__name__
        raise InvalidArgument(f"config[{name!r}] must be a string, a number or a bool, not {kind}")


def _bootstrap(bootstrap: str | None, config: Mapping[str, GivenValue]) -> str:
    given = [str(config[name]) for name in _ADDRESS_SETTINGS if name in config]
    if bootstrap is not None:
        given.insert(0, bootstrap)
    if not given or not given[0].strip():
        raise InvalidArgument(
            'no Kafka address: give PubSub("host:9092"), set KAFKA_PUBSUB_BOOTSTRAP, or start a broker with '
            "`kafka-pubsub up`"
        )
    if len(set(given)) > 1:
        raise InvalidArgument(f"two Kafka addresses, {' and '.join(map(repr, given))}: give one")
    addresses = [part.strip() for part in given[0].split(",")]
    for address in addresses:
        found = _ADDRESS.fullmatch(address)
        if found is None or not 0 < int(found[1] or 9092) < 65536:
            raise InvalidArgument(
                f"bootstrap: {address!r} isn't an address; write host:port, several with commas"
            )
    return ",".join(addresses)
