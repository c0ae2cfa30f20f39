"""The names that topics and subscriptions may have, and the names derived from them.

Rules
1. Kafka must accept the name: characters of `[a-zA-Z0-9._-]`, not `.` or `..`, at most 249 characters.
2. Names that begin with `_` are reserved for the cluster and for us, names that begin with `ps-` for us.
3. Derived names must fit and must not collide. They are `T.sub.S.retry` (the retry topic), `T.lane.p7` (a lane),
   `T.lane.p7.sub.S.retry` and `T.inbox`; a topic may not have such a name, or contain `.lane.`. A subscription's name
   may not contain `.sub.` or begin with `sub.`, so the last `.sub.` of a derived name always separates the topic's name
   from the subscription's.
4. Kafka's metrics don't distinguish `.` and `_`, so Kafka refuses `a.b` beside `a_b`. We refuse it too, before we make
   anything. This holds for subscriptions as well, because their names are parts of topics' names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches

from kafka_pubsub.errors import InvalidArgument
from kafka_pubsub.lane_names import LANE_INFIX, LANE_ROOM

__all__ = [
    "MAX_KAFKA_NAME",
    "MAX_TOPIC_NAME",
    "check_new_topic_name",
    "check_subscription_name",
    "check_topic_name",
    "inbox_topic",
    "look_alike",
    "not_found",
    "retry_topic",
]

#: The most characters in a Kafka topic's name: the 255 of a file name, less what Kafka appends for a partition.
MAX_KAFKA_NAME = 249

#: The most characters in the name of a topic that this client makes: the name of a lane must fit, the longest derived
#: name that contains no other name.
MAX_TOPIC_NAME = MAX_KAFKA_NAME - LANE_ROOM

#: How alike a name must be that was meant: two letters of six may have changed places.
_NEAR = 0.75

_ALLOWED = re.compile(r"[a-zA-Z0-9._-]+")
_DERIVED = re.compile(r".+\.sub\..+\.retry|.+\.inbox")
_RESERVED_PREFIXES = ("_", "ps-")


def retry_topic(topic: str, subscription: str) -> str:
    """Returns the name of a subscription's retry topic; raises `InvalidArgument` if it is too long."""
    name = f"{topic}.sub.{subscription}.retry"
    if len(name) > MAX_KAFKA_NAME:
        room = MAX_KAFKA_NAME - len(".sub..retry")
        raise InvalidArgument(
            f"subscription name: topic and subscription together have {len(topic) + len(subscription)} "
            f"characters, at most {room} are possible, because the retry topic "
            f"`TOPIC.sub.SUBSCRIPTION.retry` must fit Kafka's {MAX_KAFKA_NAME}: choose a shorter name"
        )
    return name


def inbox_topic(topic: str) -> str:
    """Returns the name of a causal topic's inbox, which is never longer than that of a lane."""
    return f"{topic}.inbox"


def check_topic_name(name: object) -> str:
    """Returns the name if a topic (adopted or not) may have it; raises `InvalidArgument` otherwise."""
    text = _check_kafka_name(name, "topic", MAX_KAFKA_NAME, "")
    if LANE_INFIX in text or _DERIVED.fullmatch(text):
        raise InvalidArgument(
            f"topic name {text!r} is reserved: names like `T.sub.S.retry`, `T.lane.p7` and `T.inbox` belong to "
            "the topics that are derived from T; choose another name"
        )
    return text


def check_new_topic_name(name: object) -> str:
    """Does the same for a topic that is to be made: the names of its lanes must fit as well."""
    text = check_topic_name(name)
    if len(text) > MAX_TOPIC_NAME:
        raise InvalidArgument(
            f"topic name has {len(text)} characters, at most {MAX_TOPIC_NAME} are allowed, because names derived "
            f"from it (`NAME.lane.p7`) must fit Kafka's {MAX_KAFKA_NAME}: choose a shorter name"
        )
    return text


def check_subscription_name(name: object) -> str:
    """Returns the name if a subscription may have it; raises `InvalidArgument` otherwise."""
    longest = MAX_KAFKA_NAME - len("t.sub..retry")
    text = _check_kafka_name(name, "subscription", longest, " (its retry topic's name must fit Kafka's 249)")
    if ".sub." in text or text.startswith("sub."):
        raise InvalidArgument(
            f"subscription name {text!r} contains `.sub.` or begins with `sub.`, which separates topic and "
            "subscription in derived names; choose another name"
        )
    return text


def look_alike(name: str, others: Iterable[str]) -> str | None:
    """Returns a different name among `others` that Kafka can't tell from `name` (`.` against `_`), or None."""
    plain = name.replace(".", "_")
    return next((other for other in others if other != name and other.replace(".", "_") == plain), None)


def not_found(what: str, name: str, others: Iterable[str]) -> str:
    """Returns how an error says that there is no `what` of this name, with a name among `others` that was meant."""
    near = get_close_matches(name, [other for other in others if other != name], 1, _NEAR)
    return f"{what} {name!r} not found" + (f"; did you mean {near[0]!r}?" if near else ":")


def _check_kafka_name(name: object, what: str, longest: int, why: str) -> str:
    if not isinstance(name, str):
        raise InvalidArgument(f"{what} name must be a string, not {type(name).__name__}")
    if not name:
        raise InvalidArgument(
            f"{what} name is empty; give it 1 to {longest} of the characters a-z A-Z 0-9 . _ -"
        )
    if name in {".", ".."}:
        raise InvalidArgument(f"{what} name {name!r} is one that Kafka can't hold; choose another name")
    if not _ALLOWED.fullmatch(name):
        wrong = next(character for character in name if not _ALLOWED.fullmatch(character))
        raise InvalidArgument(
            f"{what} name {name[:60]!r} contains {wrong!r}; Kafka allows only a-z A-Z 0-9 . _ and -"
        )
    if len(name) > longest:
        raise InvalidArgument(f"{what} name has {len(name)} characters, at most {longest} are allowed{why}")
    prefix = next((prefix for prefix in _RESERVED_PREFIXES if name.startswith(prefix)), None)
    if prefix is not None:
        raise InvalidArgument(
            f"{what} name {name[:60]!r} begins with {prefix!r}, which is reserved for internal names; "
            "choose another name"
        )
    return name
