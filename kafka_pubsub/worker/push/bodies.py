"""A message as the body and headers of a request, in two forms.

Forms
- `cloudevents`: the body as it is; all else in headers, as CloudEvents 1.0 has it ("binary mode"). An
  attribute whose name may be one of CloudEvents is the header `ce-NAME`; any other is `x-attribute-NAME`.
- `google`: the JSON with which Google Pub/Sub pushes, the body in base64.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Literal, NamedTuple
from urllib.parse import quote

from kafka_pubsub.model import Message, published_at

__all__ = ["Form", "Posted", "write_request"]

Form = Literal["cloudevents", "google"]

#: The names that CloudEvents gives a meaning.
_TAKEN = frozenset(
    {"id", "source", "specversion", "type", "time", "subject", "datacontenttype", "dataschema"}
)
#: The attributes that replace a message's own headers.
_OWN = {"ce_source": "ce-source", "ce_type": "ce-type"}
_EXTENSION = re.compile(r"[a-z0-9]{1,20}")
#: The characters that a header's value may hold as they are: printable ASCII without space, quote and percent.
_PLAIN = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"%')
_ALL_PLAIN = re.compile(f"[{re.escape(_PLAIN)}]*")


class Posted(NamedTuple):
    """A request."""

    headers: dict[str, str]
    body: bytes


def write_request(message: Message, message_id: str, subscription: str, form: Form) -> Posted:
    """Returns the request that delivers a message of a subscription."""
    if form == "google":
        return _as_google(message, message_id, subscription)
    return _as_cloudevents(message, message_id, subscription)


def _as_cloudevents(message: Message, message_id: str, subscription: str) -> Posted:
    headers = {
        **_usual(message.topic, subscription),
        "ce-id": _escaped(message_id),
        "ce-time": _time(message),
        "ce-deliveryattempt": str(message.delivery_attempt),
    }
    if (key := message.ordering_key) is not None:
        headers["ce-partitionkey"] = _escaped(key)
    for name, value in message.attributes.items():
        if name == "content-type":
            headers[name] = _media_type(value)
        elif (given := _OWN.get(name)) is not None:
            headers[given] = _escaped(value)
        else:
            headers.setdefault(_header(name), _escaped(value))
    return Posted(headers, message.data)


@lru_cache(maxsize=1024)
def _usual(topic: str, subscription: str) -> Mapping[str, str]:
    """Returns the headers that messages have in common, unless their attributes say otherwise."""
    return {
        "content-type": _media_type(""),
        "ce-specversion": "1.0",
        "ce-source": _escaped(f"/kafka/{topic}"),
        "ce-type": "kafka_pubsub.message",
        "ce-subscription": _escaped(subscription),
    }


def _media_type(text: str) -> str:
    return text if text.isascii() and text.isprintable() and "/" in text else "application/octet-stream"


def _header(name: str) -> str:
    plain = name.removeprefix("ce_")
    if _EXTENSION.fullmatch(plain) and plain not in _TAKEN:
        return f"ce-{plain}"
    return f"x-attribute-{quote(name, safe='')}".lower()


def _escaped(value: str) -> str:
    """Returns a value as a header may hold it: the rest as percent signs and the bytes of UTF-8."""
    return value if _ALL_PLAIN.fullmatch(value) else quote(value, safe=_PLAIN, errors="surrogatepass")


def _as_google(message: Message, message_id: str, subscription: str) -> Posted:
    at = _time(message)
    inner: dict[str, object] = {
        "data": base64.b64encode(message.data).decode(),
        "attributes": dict(message.attributes),
        "messageId": message_id,
        "message_id": message_id,
        "publishTime": at,
        "publish_time": at,
    }
    if message.ordering_key is not None:
        inner["orderingKey"] = message.ordering_key
    outer = {"message": inner, "subscription": subscription, "deliveryAttempt": message.delivery_attempt}
    return Posted({"content-type": "application/json"}, json.dumps(outer).encode())


def _time(message: Message) -> str:
    seconds, milliseconds = divmod(max(published_at(message._record), 0), 1000)
    return f"{_second(seconds)}.{milliseconds:03}Z"


@lru_cache(maxsize=64)
def _second(seconds: int) -> str:
    """Returns a second since 1970 as a time of UTC; messages that are pushed together share a few."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
