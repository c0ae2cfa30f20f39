"""Schemas in a registry that has Confluent's REST interface, asked with confluent-kafka's client.

Rules
1. A number stands for the same schema for ever, so each is asked for once: no message costs a request. A number that
   the registry doesn't have is remembered for a while, so that a stream of foreign bytes asks seldom.
2. An error names the address, without its password, and comes within 5 seconds (`timeout` of the settings, if that is
   more), whatever a question needs: names to look up, a token, the schemas that a schema refers to. A question that
   was given up goes on in its thread, and what it still finds is known. No lock is held while the registry is asked,
   except that of the number that is asked for. While a registry is away it is asked once a second at most; whatever
   was asked for before is still known.
3. Only a declaration registers (`records.py`): publishing and reading never change the registry.
"""

from __future__ import annotations

import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import unquote

from kafka_pubsub.errors import (
    BadRecord,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    PermissionDenied,
    PubSubError,
    RegistryUnavailable,
    SchemaError,
)
from kafka_pubsub.records.codec import Codec, Format
from kafka_pubsub.records.frames import SchemaId
from kafka_pubsub.records.parsing import parse_schema
from kafka_pubsub.records.source import Registered

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

__all__ = ["Registry", "RegistryConfig"]

#: Settings of confluent-kafka's client, such as `basic.auth.user.info` and `ssl.ca.location`.
RegistryConfig = Mapping[str, str | int | float | bool]

T = TypeVar("T")

#: Settings of the client: an answer, or an error, within 5 seconds (rule 2).
_PATIENCE: Final[RegistryConfig] = {"max.retries": 1, "retries.wait.ms": 200}
#: Seconds for a request, shared by all addresses; and for a whole question.
_REQUEST_S = 2.0
_QUESTION_S = 5.0
#: Seconds for which an unknown number, and an outage, are remembered; and how many schemas and unknown numbers are.
_UNKNOWN_S, _AWAY_S = 30.0, 1.0
_MOST = 1000

_FORMATS: Final[Mapping[str, Format]] = {"AVRO": "avro", "JSON": "json", "PROTOBUF": "protobuf"}
_KINDS: Final[Mapping[Format, str]] = {format_: kind for kind, format_ in _FORMATS.items()}
#: A login in an address, and whatever looks like one in a wrong address.
_LOGIN = re.compile(r"^(\w+://)(.*)@([^@]*)$")
_HIDDEN = re.compile(r"\S*@")
#: Registries in memory, by their addresses: all clients of a process share one.
_MOCKS: dict[str, SchemaRegistryClient] = {}


class Registry:
    """A schema registry. `config` needs `url`, one address or several with commas between them."""

    numbers_alone = True

    def __init__(self, config: RegistryConfig, *, now: Callable[[], float] = time.monotonic) -> None:
        url = str(config.get("url") or "")
        if not url.startswith(("http://", "https://", "mock://")):
            shown = _HIDDEN.sub("", url)
            raise InvalidArgument(
                f"schemas: {shown!r} isn't a registry's address: begin it with https:// or http://, or name a folder"
            )
        timeout = _REQUEST_S / (url.count(",") + 1)
        self._config = {**_PATIENCE, "timeout": timeout, **_without_login(config, url)}
        given = config.get("timeout")
        self._limit = max(_QUESTION_S, given) if isinstance(given, int | float) else _QUESTION_S
        self._name = f"registry {self._config['url']}"
        self._now = now
        # Guards the client and the changes of what is known.
        self._lock = threading.Lock()
        # The schemas that are being asked for: threads that want the same one wait for the answer.
        self._asking: dict[SchemaId, threading.Lock] = {}
        self._client: SchemaRegistryClient | None = None
        self._codecs: OrderedDict[SchemaId, Codec] = OrderedDict()
        # Until when, and the error, which is made anew each time: one that is raised again grows by its tracebacks.
        self._unknown: OrderedDict[SchemaId, tuple[float, type[PubSubError], str]] = OrderedDict()
        self._away: tuple[float, str] | None = None

    def __str__(self) -> str:
        return self._name

    def subject_of(self, topic: str) -> str:
        """Returns the subject that Confluent's clients use for a topic's values."""
        return f"{topic}-value"

    def knows(self, schema: SchemaId) -> bool:
        """Returns whether the registry was asked before."""
        return schema in self._codecs

    def find(self, schema: SchemaId) -> Codec:
        """Returns the schema that a message names."""
        known = self._codecs.get(schema)
        if known is not None:
            return known
        if schema.subject is not None:
            raise FailedPrecondition(
                f"schema {schema} lies in a folder, and the schemas are asked from {self}: name the folder"
            )
        with self._asking.setdefault(schema, threading.Lock()):
            try:
                return self._codecs.get(schema) or self._ask_for(schema)
            finally:
                self._asking.pop(schema, None)

    def _ask_for(self, schema: SchemaId) -> Codec:
        forgotten, kind, text = self._unknown.get(schema, (0.0, BadRecord, ""))
        if self._now() < forgotten:
            raise kind(text)

        def ask(client: SchemaRegistryClient) -> Codec:
            codec = _codec(client, _schema_of(client, schema))
            self._remember(self._codecs, schema, codec)
            return codec

        try:
            return self._ask(f"schema {schema}", ask)
        except (NotFound, SchemaError) as error:
            self._remember_error(schema, BadRecord, error.message, _UNKNOWN_S)
            raise BadRecord(error.message) from error
        except (FailedPrecondition, PermissionDenied) as error:
            self._remember_error(schema, type(error), error.message, _AWAY_S)
            raise

    def _remember_error(self, schema: SchemaId, kind: type[PubSubError], text: str, seconds: float) -> None:
        self._remember(self._unknown, schema, (self._now() + seconds, kind, text))

    def latest(self, subject: str) -> Registered:
        """Returns the last schema of a subject."""

        def ask(client: SchemaRegistryClient) -> Registered:
            # The client would tell its first answer for ever.
            client.clear_latest_caches()
            answer = client.get_latest_version(subject)
            return self._known(Registered(_id_of(client, answer.schema_id), _codec(client, answer.schema)))

        return self._ask(f"subject {subject!r}", ask)

    def look_up(self, subject: str, codec: Codec) -> Registered:
        """Returns the number of a schema of the subject."""

        def ask(client: SchemaRegistryClient) -> Registered:
            answer = client.lookup_schema(subject, _written(codec), normalize_schemas=True)
            return self._known(Registered(_id_of(client, answer.schema_id), codec))

        return self._ask(f"subject {subject!r}", ask)

    def register(self, subject: str, codec: Codec) -> Registered:
        """Adds a schema to the subject if it isn't there."""

        def ask(client: SchemaRegistryClient) -> Registered:
            number = client.register_schema(subject, _written(codec), normalize_schemas=True)
            return self._known(Registered(_id_of(client, number), codec))

        return self._ask(f"subject {subject!r}", ask)

    def subjects(self) -> list[str]:
        """Returns the names of all subjects."""
        return self._ask("subjects", lambda client: sorted(client.get_subjects()))

    def numbers(self, subject: str) -> list[int]:
        """Returns the numbers of a subject's versions; raises `NotFound` if it has none."""
        return self._ask(f"subject {subject!r}", lambda client: sorted(client.get_versions(subject)))

    def read(self, subject: str, number: int) -> tuple[Format, str]:
        """Returns the format and the text of a subject's version."""

        def ask(client: SchemaRegistryClient) -> tuple[Format, str]:
            return _text_of(client, client.get_version(subject, number).schema)

        return self._ask(f"version {number} of subject {subject!r}", ask)

    def check(self, subject: str, codec: Codec, number: int) -> bool:
        """Returns whether a schema is compatible with a version, as the registry goes by for the subject."""

        def ask(client: SchemaRegistryClient) -> bool:
            return bool(client.test_compatibility(subject, _written(codec), number))

        return self._ask(f"subject {subject!r}", ask)

    def compatibility(self, subject: str) -> str:
        """Returns by which compatibility the registry goes for a subject, such as BACKWARD or NONE."""

        def ask(client: SchemaRegistryClient) -> str:
            try:
                return str(client.get_compatibility(subject))
            except Exception as error:
                if getattr(error, "http_status_code", 0) != 404:
                    raise
                return str(client.get_compatibility())

        return self._ask(f"compatibility of subject {subject!r}", ask)

    def close(self) -> None:
        """Closes the connection; the next question would open another."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None and client not in _MOCKS.values():
            client.close()

    def _known(self, found: Registered) -> Registered:
        self._remember(self._codecs, found.id, found.codec)
        return found

    def _remember(self, known: OrderedDict[SchemaId, T], schema: SchemaId, value: T) -> None:
        with self._lock:
            known[schema] = value
            while len(known) > _MOST:
                known.popitem(last=False)

    def _ask(self, about: str, question: Callable[[SchemaRegistryClient], T]) -> T:
        with self._lock:
            away = self._away
            if away is not None and self._now() < away[0]:
                raise RegistryUnavailable(away[1])
            client = self._client = self._client or _new_client(self._config)
        try:
            found = _within(self._limit, lambda: question(client))
        except PubSubError:
            raise
        except Exception as error:
            refused = self._explain(about, error)
            if isinstance(refused, RegistryUnavailable):
                self._away = self._now() + _AWAY_S, refused.message
            raise refused from error
        self._away = None
        return found

    def _explain(self, about: str, error: Exception) -> PubSubError:
        status = getattr(error, "http_status_code", 0)
        said = " ".join((str(getattr(error, "error_message", "") or error) or type(error).__name__).split())
        where = f"{self}, {about}: "
        if status == 404 and 40400 <= (getattr(error, "error_code", 0) or 0) < 40500:
            return NotFound(f"{where}it isn't there ({said[:300]})")
        if status == 404:
            return RegistryUnavailable(
                f"{where}no registry answers there ({said[:300]}): check the address and its path, which is "
                "/apis/ccompat/v7 with Apicurio"
            )
        if status in (401, 403):
            return PermissionDenied(
                f"{where}the registry refuses it ({said}): check basic.auth.user.info of `schemas`"
            )
        if status == 409:
            return SchemaError(
                f"{where}the schema isn't compatible with those that are there: {said[:1000]}. "
                "`kafka-pubsub schema check` compares before anything is changed"
            )
        if status == 422:
            return SchemaError(f"{where}the registry takes it for no schema: {said[:1000]}")
        if status and status < 500 and status not in (408, 429):
            return FailedPrecondition(f"{where}it answers {status}: {said[:1000]}")
        return RegistryUnavailable(
            f"{where}it doesn't answer ({said[:300]}): check the address and whether it runs. What needs only schemas "
            "that are known goes on"
        )


def _within(seconds: float, call: Callable[[], T]) -> T:
    """Returns the result of a call; raises `TimeoutError` after `seconds`, and the call goes on in its thread."""
    answer: Future[T] = Future()

    def work() -> None:
        try:
            answer.set_result(call())
        except BaseException as error:  # the caller raises it
            answer.set_exception(error)

    threading.Thread(target=work, name="kafka_pubsub-registry", daemon=True).start()
    try:
        return answer.result(seconds)
    except TimeoutError as error:
        raise TimeoutError(f"no whole answer within {seconds:g} s") from error


def _new_client(config: RegistryConfig) -> SchemaRegistryClient:
    try:
        from confluent_kafka.schema_registry import SchemaRegistryClient
    except ImportError as error:
        raise FailedPrecondition(
            f"schemas: a registry is asked with confluent-kafka's client, and {error.name} is missing: pip install "
            "'kafka-pubsub-orderly[schema]'"
        ) from error
    try:
        url = str(config["url"])
        if not url.startswith("mock://"):
            return SchemaRegistryClient(dict(config))
        if url not in _MOCKS:
            _MOCKS[url] = SchemaRegistryClient.new_client({"url": url})
        return _MOCKS[url]
    except (ValueError, TypeError, OSError) as error:
        # The client's error may show a login, and a traceback would show the error.
        raise InvalidArgument(f"schemas: {_HIDDEN.sub('', str(error))}") from None


def _without_login(config: RegistryConfig, url: str) -> RegistryConfig:
    """Returns the settings with a login of the address in a setting of its own, so that no log shows it."""
    found = [_LOGIN.fullmatch(each.strip()) for each in url.split(",")]
    logins = {match[2] for match in found if match}
    if "@" not in url:
        return config
    if len(logins) != 1 or None in found or "basic.auth.user.info" in config:
        raise InvalidArgument(
            "schemas: give the login once, as basic.auth.user.info, and addresses without it"
        )
    addresses = ",".join(match[1] + match[3] for match in found if match)
    return {**config, "url": addresses, "basic.auth.user.info": unquote(logins.pop())}


def _id_of(client: SchemaRegistryClient, number: int | None) -> SchemaId:
    if number is None:
        raise _no_answer(client, "id of the schema")
    return SchemaId(number)


def _schema_of(client: SchemaRegistryClient, schema: SchemaId) -> Schema:
    return client.get_schema(schema.number) if schema.guid is None else client.get_schema_by_guid(schema.guid)


def _no_answer(client: SchemaRegistryClient, missing: str) -> Exception:
    """Returns the error of an answer of something else, such as a gateway's; it says nothing about a record."""
    client.clear_caches()  # the client would give this answer for ever
    return ValueError(f"the answer has no {missing}")


def _text_of(client: SchemaRegistryClient, schema: Schema | None) -> tuple[Format, str]:
    """Returns the format and the text of a schema of the registry."""
    if schema is None or schema.schema_str is None:
        raise _no_answer(client, "schema")
    format_ = _FORMATS.get(schema.schema_type or "AVRO")
    if format_ is None:
        raise SchemaError(
            f"the registry's schema is {schema.schema_type}, which isn't Avro, JSON Schema or Protobuf"
        )
    return format_, schema.schema_str


def _codec(client: SchemaRegistryClient, schema: Schema | None) -> Codec:
    """Returns a schema of the registry, with those to which it refers."""
    format_, text = _text_of(client, schema)
    references: dict[str, str] = {}
    if schema is not None:
        _collect(client, schema, references)
    return parse_schema(format_, text, references)


def _collect(client: SchemaRegistryClient, schema: Schema, found: dict[str, str]) -> None:
    """Adds the schemas to which one refers, each before those that refer to it."""
    for each in schema.references or ():
        name = str(each.name)
        if name in found:
            continue
        if len(found) >= 100:
            raise SchemaError("the registry's schema refers to more than 100 others")
        version = client.get_version(
            each.subject or "", each.version if each.version is not None else "latest"
        )
        _, text = _text_of(client, version.schema)
        found[name] = ""  # a schema that refers to itself, on whatever way, is read once
        _collect(client, version.schema, found)
        del found[name]
        found[name] = text


def _written(codec: Codec) -> Schema:
    from confluent_kafka.schema_registry import Schema

    return Schema(codec.text, _KINDS[codec.format])
