"""`subscription` (or `sub`): create, list, describe, delete, update; `keys` and `metrics` have files of their own."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

import click

from kafka_pubsub.cli import known_names
from kafka_pubsub.cli import options as shared
from kafka_pubsub.cli.command import Group
from kafka_pubsub.cli.context import Session
from kafka_pubsub.cli.output import JsonValue
from kafka_pubsub.cli.subscription_keys import keys
from kafka_pubsub.cli.subscription_metrics import metrics
from kafka_pubsub.cli.subscription_state import FIGURES, LIMIT, figures, for_eyes, progress, read_state
from kafka_pubsub.cli.types import rough_duration
from kafka_pubsub.errors import PubSubError

if TYPE_CHECKING:
    from kafka_pubsub.config import DeadLetterPolicy, RetryPolicy, SubscriptionOptions
    from kafka_pubsub.subscribe.stream.status import SubscriptionState
    from kafka_pubsub.subscription import Subscription

__all__ = ["subscription"]

OnExhausted = Literal["dead_letter", "park"]

COLUMNS = ("name", "topic", *FIGURES, "members")

MIN_BACKOFF = shared.duration_option("--min-backoff", "Wait at least so long before a redelivery.")
MAX_BACKOFF = shared.duration_option("--max-backoff", "Wait at most so long before a redelivery.")
DEAD_LETTER_TOPIC = click.option(
    "--dead-letter-topic",
    metavar="TOPIC",
    shell_complete=known_names.topics,
    help="Where a message goes that failed too often.",
)
MAX_ATTEMPTS = click.option(
    "--max-attempts", type=int, help="How often a message is tried, 1 to 100.  [default: 5]"
)
ON_EXHAUSTED = click.option(
    "--on-exhausted",
    type=click.Choice(["dead_letter", "park"]),
    help="Then: away, or kept with its key until released.  [default: dead_letter]",
)
EXACTLY_ONCE = click.option(
    "--exactly-once/--no-exactly-once",
    default=None,
    help="Never deliver again what was acked.  [default: no]",
)
AGEING = shared.duration_option(
    "--ageing", "How long low priorities are passed over before they get a tenth, up to 1h.  [default: 5s]"
)
STRICT = click.option(
    "--strict/--no-strict",
    default=None,
    help="Low priorities wait as long as higher ones come.  [default: no]",
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
        (
            "",
            "kafka-pubsub subscription create mail --topic orders --ack-deadline 60s --min-backoff 1s --max-backoff 5m",
        ),
    ]
)
@shared.NAME
@click.option(
    "--topic", required=True, shell_complete=known_names.topics, help="What it receives; from now on."
)
@shared.ordering_option("Messages of one key one after the other.  [default: no]")
@shared.duration_option(
    "--ack-deadline", "When a message that isn't acked comes again, 1s to 10m.  [default: 10s]"
)
@shared.duration_option("--max-extension", "How long a running callback keeps its message.  [default: 1h]")
@MIN_BACKOFF
@MAX_BACKOFF
@DEAD_LETTER_TOPIC
@MAX_ATTEMPTS
@ON_EXHAUSTED
@EXACTLY_ONCE
@AGEING
@STRICT
@shared.LABELS
@shared.EXIST_OK
@click.pass_obj
def create(
    session: Session,
    name: str,
    topic: str,
    ordering: bool | None,
    ack_deadline: float | None,
    max_extension: float | None,
    min_backoff: float | None,
    max_backoff: float | None,
    dead_letter_topic: str | None,
    max_attempts: int | None,
    on_exhausted: OnExhausted | None,
    exactly_once: bool | None,
    ageing: float | None,
    strict: bool | None,
    labels: shared.Labels,
    exist_ok: bool,
) -> None:
    """Create a subscription: it receives what is published from now on."""
    with session.pubsub() as pubsub:
        made = pubsub.create_subscription(
            name,
            topic=topic,
            message_ordering=ordering,
            ack_deadline=ack_deadline,
            max_extension=max_extension,
            retry=_retry(min_backoff, max_backoff),
            dead_letter=_dead_letter(dead_letter_topic, max_attempts, on_exhausted),
            exactly_once=bool(exactly_once),
            ageing=ageing,
            strict=bool(strict),
            labels=shared.given_labels(labels),
            exist_ok=exist_ok,
        )
        shown = _describe(made)
    done = f"Subscription {name} exists" if exist_ok else f"Created subscription {name}"
    session.output.result(shown, f"{done} on topic {topic}")


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
    shown |= {**progress(state), "lanes": lanes}
    session.output.details(shared.for_a_person(session, for_eyes(session, shown)))


@subscription.command(examples=[("", "kafka-pubsub subscription delete billing --yes")])
@shared.SUBSCRIPTION_NAME
@shared.YES
@click.pass_obj
def delete(session: Session, name: str, yes: bool) -> None:
    """Delete a subscription and its position.

    The topic's messages stay; those that wait for a redelivery go with it.
    """
    if shared.asks(session, f"deleting subscription {name}", yes=yes):
        shared.confirm(f"Delete subscription {name} and its position?")
    with session.pubsub() as pubsub:
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
@shared.ordering_option("Messages of one key one after the other, or not.")
@shared.duration_option("--ack-deadline", "When a message that isn't acked comes again, 1s to 10m.")
@shared.duration_option("--max-extension", "How long a running callback keeps its message.")
@MIN_BACKOFF
@MAX_BACKOFF
@click.option("--no-backoff", is_flag=True, help="Redeliver as soon as possible.")
@DEAD_LETTER_TOPIC
@MAX_ATTEMPTS
@ON_EXHAUSTED
@click.option("--no-dead-letter", is_flag=True, help="Try messages for ever.")
@EXACTLY_ONCE
@AGEING
@STRICT
@click.option(
    "--remake-retry-topic", is_flag=True, help="Make a lost retry topic again; what waited in it is gone."
)
@shared.NEW_LABELS
@click.pass_obj
def update(
    session: Session,
    name: str,
    ordering: bool | None,
    ack_deadline: float | None,
    max_extension: float | None,
    min_backoff: float | None,
    max_backoff: float | None,
    no_backoff: bool,
    dead_letter_topic: str | None,
    max_attempts: int | None,
    on_exhausted: OnExhausted | None,
    no_dead_letter: bool,
    exactly_once: bool | None,
    ageing: float | None,
    strict: bool | None,
    remake_retry_topic: bool,
    labels: shared.Labels,
) -> None:
    """Change a subscription's settings.

    What isn't given stays. Streams that are open keep the settings they began with.
    """
    from kafka_pubsub.topics.catalog_changes import UNSET

    backoff = min_backoff is not None or max_backoff is not None
    if no_backoff and backoff:
        raise click.UsageError("--no-backoff excludes --min-backoff and --max-backoff")
    policy = dead_letter_topic is not None or max_attempts is not None or on_exhausted is not None
    if no_dead_letter and policy:
        raise click.UsageError(
            "--no-dead-letter excludes --dead-letter-topic, --max-attempts and --on-exhausted"
        )
    flags = (exactly_once is not None, ageing is not None, strict is not None, remake_retry_topic)
    changes = (backoff, no_backoff, policy, no_dead_letter, *flags)
    shared.check_changes(ordering, ack_deadline, max_extension, *changes, labels)
    with session.pubsub() as pubsub:
        before = pubsub.subscription(name).options if backoff or policy else None
        changed = pubsub.update_subscription(
            name,
            message_ordering=shared.kept_unless(ordering),
            ack_deadline=shared.kept_unless(ack_deadline),
            max_extension=shared.kept_unless(max_extension),
            retry=_retry(min_backoff, max_backoff, before) if backoff or no_backoff else UNSET,
            dead_letter=(
                _dead_letter(dead_letter_topic, max_attempts, on_exhausted, before)
                if policy or no_dead_letter
                else UNSET
            ),
            exactly_once=shared.kept_unless(exactly_once),
            ageing=shared.kept_unless(ageing),
            strict=shared.kept_unless(strict),
            remake_retry_topic=remake_retry_topic,
            labels=shared.labels_unless(labels),
        )
        shown = _describe(changed)
    session.output.result(shown, f"Updated subscription {name}")


subscription.add_command(keys)
subscription.add_command(metrics)


def _retry(
    low: float | None, high: float | None, options: SubscriptionOptions | None = None
) -> RetryPolicy | None:
    """Returns the retry policy of the options; a value that isn't given is as before, or the default."""
    if low is None and high is None:
        return None
    from kafka_pubsub.config import RetryPolicy

    before = None if options is None else options.retry
    known = {} if before is None else {"min_backoff": before.min_backoff, "max_backoff": before.max_backoff}
    given = {"min_backoff": low, "max_backoff": high}
    return RetryPolicy(**{**known, **{name: value for name, value in given.items() if value is not None}})


def _dead_letter(
    topic: str | None,
    attempts: int | None,
    on_exhausted: OnExhausted | None,
    options: SubscriptionOptions | None = None,
) -> DeadLetterPolicy | None:
    """Returns the dead-letter policy of the options, by the same rule."""
    given = {"topic": topic, "max_attempts": attempts, "on_exhausted": on_exhausted}
    chosen = {name: value for name, value in given.items() if value is not None}
    if not chosen:
        return None
    from kafka_pubsub.config import DeadLetterPolicy

    before = None if options is None else options.dead_letter
    known = {} if before is None else {name: getattr(before, name) for name in given}
    merged = {**known, **chosen}
    if "topic" not in merged:
        raise click.UsageError("--max-attempts and --on-exhausted need a --dead-letter-topic")
    return DeadLetterPolicy(**merged)


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
    return {
        "name": each.name,
        "topic": each.topic,
        "message_ordering": options.message_ordering,
        "ack_deadline": options.ack_deadline,
        "max_extension": options.max_extension,
        "min_backoff": None if options.retry is None else options.retry.min_backoff,
        "max_backoff": None if options.retry is None else options.retry.max_backoff,
        "dead_letter_topic": None if options.dead_letter is None else options.dead_letter.topic,
        "max_attempts": None if options.dead_letter is None else options.dead_letter.max_attempts,
        "on_exhausted": None if options.dead_letter is None else options.dead_letter.on_exhausted,
        "exactly_once": options.exactly_once,
        "ageing": options.ageing,
        "strict": options.strict,
        "labels": dict(options.labels),
    }
