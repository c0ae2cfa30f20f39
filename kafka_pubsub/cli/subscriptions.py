"""`subscription` (or `sub`): create, list, describe, delete, update; `keys` and `metrics` have files of their own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

import click

from kafka_pubsub.cli import known_names
from kafka_pubsub.cli import options as shared
from kafka_pubsub.cli.command import Group
from kafka_pubsub.cli.context import Session
from kafka_pubsub.cli.log_notes import noted
from kafka_pubsub.cli.metrics import old_metrics
from kafka_pubsub.cli.options import Setting
from kafka_pubsub.cli.output import JsonValue
from kafka_pubsub.cli.subscription_keys import keys
from kafka_pubsub.cli.subscription_state import FIGURES, LIMIT, figures, for_eyes, progress, read_state
from kafka_pubsub.cli.types import DURATION, START, rough_duration
from kafka_pubsub.errors import PubSubError

if TYPE_CHECKING:
    from kafka_pubsub.config import SubscriptionOptions
    from kafka_pubsub.options import Start
    from kafka_pubsub.subscribe.stream.status import SubscriptionState
    from kafka_pubsub.subscription import Subscription

__all__ = ["subscription"]

COLUMNS = ("name", "topic", *FIGURES, "members")

_DURATION = {"type": DURATION}
SETTINGS = (
    shared.ordering("Messages of one key one after the other, or not.", "no"),
    Setting(("--ack-deadline",), "When a message that isn't acked comes again, 1s to 10m.", "10s", _DURATION),
    Setting(("--max-extension",), "How long a running callback keeps its message.", "1h", _DURATION),
    Setting(("--min-backoff",), "Wait at least so long before a redelivery.", None, _DURATION),
    Setting(("--max-backoff",), "Wait at most so long before a redelivery.", None, _DURATION),
    Setting(
        ("--dead-letter-topic",),
        "Where a message goes that failed too often.",
        None,
        {"metavar": "TOPIC", "shell_complete": known_names.topics},
    ),
    Setting(("--max-attempts",), "How often a message is tried, 1 to 100.", "5", {"type": int}),
    Setting(
        ("--on-exhausted",),
        "Then: away, or kept with its key until released.",
        "dead_letter",
        {"type": click.Choice(["dead_letter", "park"])},
    ),
    Setting(("--exactly-once/--no-exactly-once",), "Never deliver again what was acked.", "no"),
    Setting(
        ("--ageing",),
        "How long low priorities are passed over before they get a tenth, up to 1h.",
        "5s",
        _DURATION,
    ),
    Setting(("--strict/--no-strict",), "Low priorities wait as long as higher ones come.", "no"),
)


@click.group(
    cls=Group,
    examples=[
        ("", "kafka-pubsub subscription create billing --topic orders --ordering"),
        ("", "kafka-pubsub subscription list"),
        ("`sub` is short for it", "kafka-pubsub sub describe billing"),
    ],
)
def subscription() -> None:
    """Create, look at, change and delete subscriptions."""


@subscription.command(
    examples=[
        ("", "kafka-pubsub subscription create billing --topic orders --ordering"),
        ("all that the topic has", "kafka-pubsub subscription create audit --topic orders --start earliest"),
        (
            "",
            "kafka-pubsub subscription create mail --topic orders --ack-deadline 60s --min-backoff 1s --max-backoff 5m",
        ),
    ]
)
@shared.NAME
@click.option("--topic", required=True, shell_complete=known_names.topics, help="What it receives.")
@click.option(
    "--start",
    type=START,
    metavar="earliest|latest|TIME|AGO",
    help="Where it begins: earliest, latest, 2026-03-01T08:00, or 30m ago.  [default: latest]",
)
@shared.settings_of(*SETTINGS, new=True)
@shared.EXIST_OK
@click.pass_obj
def create(
    session: Session, /, name: str, topic: str, start: Start | None, exist_ok: bool, **given: object
) -> None:
    """Create a subscription: it receives what is published from now on.

    --start says where else it begins. One that exists stays where it is.
    """
    with session.pubsub() as pubsub, noted(session.output, "kafka_pubsub.subscriber"):
        made = pubsub.create_subscription(
            name, topic, start=start or "latest", exist_ok=exist_ok, **_settings(given)
        )
        shown = _describe(made)
        subscriptions = pubsub._cluster.subscriptions
        passed_over = 0 if start or exist_ok else subscriptions.passed_over(name)
    if passed_over:
        shown["passed_over"] = passed_over
    done = f"Subscription {name} exists" if exist_ok else f"Created subscription {name}"
    session.output.result(shown, f"{done} on topic {topic}")
    if passed_over:
        session.output.note(
            f"It doesn't receive the messages that the topic has already, up to {passed_over:,}. To get them, delete "
            f"it, and create it with --start earliest, or with a time: --start 30m."
        )


@subscription.command(
    "list",
    examples=[("", "kafka-pubsub subscription list"), ("", "kafka-pubsub sub list --topic orders --json")],
)
@click.option("--topic", shell_complete=known_names.topics, help="Only those of this topic.")
@LIMIT
@click.pass_obj
def list_subscriptions(session: Session, topic: str | None, limit: int) -> None:
    """List all subscriptions, and count their unfinished messages.

    backlog: messages that aren't finished, those in the retry topic included; a large one is an upper bound. oldest
    age: for how long the oldest of these has waited. waiting retry: those that wait for their next delivery. parked:
    those that wait until you release them. blocked keys: keys whose later messages wait behind one of these. dead
    letters: those that are neither replayed nor purged. lag: Kafka's, the end of the log less the committed position.
    members: processes that receive.

    `1,000+`: there may be more, which weren't read. `-`: it isn't known.

    It is read from Kafka, whether or not a process receives: some fifteen requests for each subscription, eight
    subscriptions at a time. `subscription describe` shows the settings.
    """

    def show(each: Subscription) -> dict[str, JsonValue] | None:
        shown = _describe(each)
        return None if topic not in (None, shown["topic"]) else shown | progress(read_state(each, limit))

    with session.pubsub() as pubsub:
        found = [each for each in shared.at_once(pubsub.list_subscriptions(), show) if each is not None]
    hint = "No subscriptions yet: `kafka-pubsub subscription create NAME --topic TOPIC` makes one."
    session.output.table([for_eyes(session, row) for row in found], COLUMNS, hint)
    for row in found:
        if row["problem"]:
            session.output.note(f"{row['name']}: {row['problem']}")


@subscription.command(examples=[("", "kafka-pubsub subscription describe billing")])
@shared.SUBSCRIPTION_NAME
@click.pass_obj
def describe(session: Session, name: str) -> None:
    """Show a subscription's settings, and count its unfinished messages.

    `subscription list --help` explains the figures. `lanes` has those of each lane, and `subscription keys`
    shows which keys are blocked, and the messages that are with a callback.

    `problem` says why it can't receive, if it can't.
    """
    with session.pubsub() as pubsub:
        found = pubsub.subscription(name)
        shown, state = _describe(found), read_state(found, 10_000)
    lanes = [] if isinstance(state, PubSubError) else _lanes(session, state)
    shown |= {**progress(state), "lanes": lanes, **_places(session, state)}
    session.output.details(shared.for_a_person(session, for_eyes(session, shown)))


@subscription.command(
    examples=[
        ("", "kafka-pubsub subscription delete billing --yes"),
        ("", "kafka-pubsub subscription delete billing audit --yes"),
    ]
)
@shared.SUBSCRIPTION_NAMES
@shared.YES
@click.pass_obj
def delete(session: Session, names: tuple[str, ...], yes: bool) -> None:
    """Delete subscriptions and their positions, one after the other.

    The topic's messages stay; those that wait for a redelivery go with the subscription.
    """
    said = shared.in_words(names)
    if shared.asks(session, f"deleting subscription {said}", yes=yes):
        shared.confirm(f"Delete subscription {said} and its position?")
    with session.pubsub() as pubsub:
        for name in names:
            pubsub.delete_subscription(name)
            session.output.result({"deleted": name}, f"Deleted subscription {name}")


@subscription.command(
    examples=[
        ("deliver all that was written since", "kafka-pubsub subscription recover billing --from oldest"),
        ("skip it", "kafka-pubsub subscription recover billing --from end"),
    ]
)
@shared.SUBSCRIPTION_NAME
@click.option(
    "--from",
    "start",
    type=click.Choice(["oldest", "end"]),
    default="oldest",
    show_default=True,
    help="Where the topic is read on: at the first message that was written since, or behind the last.",
)
@click.pass_obj
def recover(session: Session, name: str, start: Literal["oldest", "end"]) -> None:
    """Go on where a log has lost its last records.

    After an unclean leader election, or when a broker lost its disk, streams of the subscription end with an error that
    names this command: what was called finished may be another message now. Close all streams first. What waits in
    the retry topic is delivered either way.
    """
    with session.pubsub() as pubsub:
        lost = pubsub.recover_subscription(name, start=start)
    lines = [
        f"{each.topic}[{each.partition}]: {each.lost} offsets from {each.start} on are lost"
        + (f", {each.skipped} written since are skipped" if each.skipped else "")
        for each in lost
    ]
    session.output.result(
        {"recovered": name, "lost": [asdict(each) for each in lost]},
        "\n".join(lines) or f"No log of subscription {name} has lost anything",
    )


@subscription.command(
    examples=[
        ("", "kafka-pubsub subscription update billing --ack-deadline 2m"),
        ("redeliver as soon as possible", "kafka-pubsub subscription update billing --no-backoff"),
    ]
)
@shared.SUBSCRIPTION_NAME
@shared.settings_of(*SETTINGS, new=False)
@click.option("--no-backoff", is_flag=True, help="Redeliver as soon as possible.")
@click.option("--no-dead-letter", is_flag=True, help="Try messages for ever.")
@click.option(
    "--remake-retry-topic", is_flag=True, help="Make a lost retry topic again; what waited in it is gone."
)
@click.pass_obj
def update(
    session: Session,
    /,
    name: str,
    no_backoff: bool,
    no_dead_letter: bool,
    remake_retry_topic: bool,
    **given: object,
) -> None:
    """Change a subscription's settings.

    What isn't given stays. Streams that are open keep the settings they began with.
    """
    settings = shared.given_settings(given)
    if no_backoff and settings.keys() & _RETRY:
        raise click.UsageError("--no-backoff excludes --min-backoff and --max-backoff")
    if no_dead_letter and settings.keys() & _DEAD_LETTER:
        raise click.UsageError(
            "--no-dead-letter excludes --dead-letter-topic, --max-attempts and --on-exhausted"
        )
    shared.check_changes(settings, no_backoff, no_dead_letter, remake_retry_topic)
    removed = {"retry": None} if no_backoff else {}
    removed |= {"dead_letter": None} if no_dead_letter else {}
    with session.pubsub() as pubsub:
        policies = settings.keys() & (_RETRY.keys() | _DEAD_LETTER.keys())
        before = pubsub.subscription(name).options if policies else None
        changes = _settings(given, before) | removed
        changed = pubsub.update_subscription(name, remake_retry_topic=remake_retry_topic, **changes)
        shown = _describe(changed)
    session.output.result(shown, f"Updated subscription {name}")


subscription.add_command(keys)
old_metrics.hidden = True
subscription.add_command(old_metrics)


#: The options that are fields of a policy, by the policy's own names.
_RETRY = {"min_backoff": "min_backoff", "max_backoff": "max_backoff"}
_DEAD_LETTER = {"dead_letter_topic": "topic", "max_attempts": "max_attempts", "on_exhausted": "on_exhausted"}


def _settings(arguments: Mapping[str, object], before: SubscriptionOptions | None = None) -> dict[str, Any]:
    """Returns the settings that were given; what isn't given of a policy is as `before`, or the default."""
    from kafka_pubsub.config import DeadLetterPolicy, RetryPolicy

    settings = shared.given_settings(arguments)
    retry = {field: settings.pop(name) for name, field in _RETRY.items() if name in settings}
    dead_letter = {field: settings.pop(name) for name, field in _DEAD_LETTER.items() if name in settings}
    if retry:
        known = {} if before is None or before.retry is None else before.retry.model_dump()
        settings["retry"] = RetryPolicy(**(known | retry))
    if dead_letter:
        known = {} if before is None or before.dead_letter is None else before.dead_letter.model_dump()
        if "topic" not in known | dead_letter:
            raise click.UsageError("--max-attempts and --on-exhausted need a --dead-letter-topic")
        settings["dead_letter"] = DeadLetterPolicy(**(known | dead_letter))
    return settings


def _places(session: Session, state: SubscriptionState | PubSubError) -> dict[str, JsonValue]:
    """Returns the lag of each partition, and the members' hosts; a person reads the partitions that lag."""
    if isinstance(state, PubSubError):
        return {"lag_by_partition": None, "hosts": None}
    lags = sorted(state.lag_by_partition.items())
    shown: JsonValue = {str(partition): lag for partition, lag in lags}
    if not session.as_json:
        shown = list[JsonValue](f"{partition}: {lag:,}" for partition, lag in lags if lag)
    return {"lag_by_partition": shown, "hosts": list[JsonValue](state.hosts)}


def _lanes(session: Session, state: SubscriptionState) -> list[JsonValue]:
    """Returns what waits in each lane; a person reads a line for each."""
    now, shown = datetime.now(UTC), list[JsonValue]()
    for each in state.lanes:
        lane: dict[str, JsonValue] = {"topic": each.topic, "priority": each.priority, "durable": each.durable}
        counted = figures(each, now)
        if session.as_json:
            shown.append(lane | counted)
        else:
            age = counted["oldest_age"]
            waits = f", the oldest for {rough_duration(age)}" if isinstance(age, float) else ""
            shown.append(f"{each.topic}: {each.backlog:,}{waits}")
    return shown


def _describe(each: Subscription) -> dict[str, JsonValue]:
    options = each.options
    policies = {name: getattr(options.retry, field, None) for name, field in _RETRY.items()}
    policies |= {name: getattr(options.dead_letter, field, None) for name, field in _DEAD_LETTER.items()}
    kept = {
        name: getattr(options, name)
        for name in type(options).model_fields
        if name not in {"retry", "dead_letter"}
    }
    return {"name": each.name, "topic": each.topic, **kept, **policies, "labels": dict(options.labels)}
