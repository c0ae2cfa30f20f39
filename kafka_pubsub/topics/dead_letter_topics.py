"""Checks a dead-letter topic, which is an ordinary topic, before a policy names it.

Rules
1. The topic must exist in the catalog: if you mistyped the name, you would never find the dead letters.
2. It must not be the subscription's own topic, or have a reserved name.
3. It must accept every message that the home topic accepts, and keep dead letters until you read them. A topic that we
   made gets the settings for that (it keeps a retention that you chose). An adopted topic isn't changed: if it lacks
   a setting, an error names the setting.
4. While a policy names the topic, it can't be deleted.
"""

from __future__ import annotations

from kafka_pubsub.config import DeadLetterPolicy, TopicRecord
from kafka_pubsub.errors import Call, FailedPrecondition, InvalidArgument, NotFound
from kafka_pubsub.log.ports import Admin
from kafka_pubsub.model import TopicInfo
from kafka_pubsub.topics.companion_topics import companion_settings
from kafka_pubsub.topics.names import check_topic_name
from kafka_pubsub.topics.topics import TopicAdmin

AFTER = "message.timestamp.after.max.ms"

__all__ = ["check_dead_letter_name", "prepare_dead_letters"]


def check_dead_letter_name(policy: DeadLetterPolicy, topic: str) -> None:
    """Raises `InvalidArgument` for a topic that can't be the dead-letter topic of a subscription to `topic`."""
    try:
        check_topic_name(policy.topic)
    except InvalidArgument as error:
        raise InvalidArgument(f"dead_letter.topic: {error.message}") from None
    if policy.topic == topic:
        raise InvalidArgument(
            f"dead_letter.topic is {topic!r}, the subscription's own topic: its dead letters would come again for "
            "ever; name another topic"
        )


def prepare_dead_letters(
    admin: Admin, topics: TopicAdmin, policy: DeadLetterPolicy, home: TopicInfo
) -> TopicInfo:
    """Makes the dead-letter topic accept every message of `home`, and returns it; raises an error if it can't."""
    check_dead_letter_name(policy, home.name)
    try:
        record, info = topics.current(policy.topic)
    except NotFound as error:
        make = Call("create_topic", policy.topic)
        raise NotFound(
            f"dead_letter.topic {policy.topic!r} doesn't exist: {make} makes it, before a subscription may name it",
            calls=(make,),
        ) from error
    if record.options.causal:
        raise FailedPrecondition(
            f"dead_letter.topic: topic {policy.topic!r} is causal, and only sequencers write to causal topics: name a "
            "topic that isn't"
        )
    lacking = _lacking(record, info, home)
    if not lacking:
        return info
    if record.adopted:
        settings = ", ".join(f"{name}={value}" for name, value in lacking.items())
        raise FailedPrecondition(
            f"dead_letter.topic {policy.topic!r} doesn't take everything that topic {home.name!r} takes, and it was "
            f"adopted, so its settings are its owner's: set {settings} with Kafka's own tools, or name another topic"
        )
    admin.update_topic(policy.topic, lacking)
    return admin.topic(policy.topic)


def _lacking(record: TopicRecord, info: TopicInfo, home: TopicInfo) -> dict[str, str | None]:
    """Returns the settings of the dead-letter topic that must be changed."""
    wanted = dict(companion_settings(home))
    limit = int(wanted.pop("max.message.bytes"))
    if record.options.retention is not None:
        del wanted["retention.ms"]
    if record.adopted:
        wanted = _demanded(wanted, info, home)
    lacking: dict[str, str | None] = {
        name: value for name, value in wanted.items() if info.config.get(name) != value
    }
    if info.max_message_bytes < limit:
        lacking["max.message.bytes"] = str(limit)
    # Without the right to see settings, an adopted topic can't be checked.
    return lacking if info.config or not record.adopted else {}


def _demanded(wanted: dict[str, str], info: TopicInfo, home: TopicInfo) -> dict[str, str]:
    """Returns the settings that an adopted topic must have to accept records; retention is its owner's choice."""
    demanded = {"cleanup.policy"}
    if info.config.get("message.timestamp.type") != "LogAppendTime":
        demanded |= {"message.timestamp.before.max.ms", "message.timestamp.after.max.ms"}
    shown = {**home.config, **wanted, "message.timestamp.after.max.ms": home.config.get(AFTER, wanted[AFTER])}
    return {name: shown[name] for name in demanded if name in info.config}
