"""`topic`: create, list, describe, delete, adopt, update, repartition; `tail` is in `peek.py`."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from kafka_pubsub.cli import options as shared
from kafka_pubsub.cli.command import Group
from kafka_pubsub.cli.context import Session
from kafka_pubsub.cli.multicast import pending_line, status_row
from kafka_pubsub.cli.options import Setting
from kafka_pubsub.cli.output import JsonValue, shown_bytes, stderr_console
from kafka_pubsub.cli.peek import tail
from kafka_pubsub.cli.types import DURATION
from kafka_pubsub.errors import NotFound
from kafka_pubsub.services.signals import Stopped

if TYPE_CHECKING:
    from kafka_pubsub.app import PubSub
    from kafka_pubsub.config import TopicOptions
    from kafka_pubsub.multicast.status import CausalStatus
    from kafka_pubsub.repartition.drain import UnreadableRecord
    from kafka_pubsub.repartition.repartition import RepartitionProgress
    from kafka_pubsub.topic import Topic
    from kafka_pubsub.topics.key_places import KeyPlaces

__all__ = ["topic"]

COLUMNS = (
    "name",
    "partitions",
    "replication",
    "message_ordering",
    "retention",
    "priorities",
    "transient",
    "adopted",
    "labels",
)

PARTITIONS = Setting(("--partitions",), "How many partitions; `repartition` gives more.", "8", {"type": int})
REPLICATION = Setting(("--replication",), "Copies of each message.", "the broker's", {"type": int})
ORDERING = shared.ordering("Insist on ordering keys being allowed, or refuse them.")
RETENTION = Setting(
    ("--retention",), "How long messages are kept, e.g. 7d.", "the broker's", {"type": DURATION}
)
CAUSAL = Setting(
    ("--causal",), "Take part in the one order of messages to several topics.", None, {"is_flag": True}
)
PRIORITIES = Setting(("--priorities",), "How many, 1 to 10; the highest goes first.", "1", {"type": int})
SCHEMA = Setting(
    ("--schema",), "A file (order.avsc) or subject: the schema of its records.", None, {"metavar": "FILE"}
)
TRANSIENT = Setting(("--transient",), "Take messages that may be lost, too.", None, {"is_flag": True})


@click.group(
    cls=Group,
    examples=[
        ("", "kafka-pubsub topic create orders --partitions 12 --ordering"),
        ("", "kafka-pubsub topic list"),
        ("a topic that Kafka has already", "kafka-pubsub topic adopt clicks"),
    ],
)
def topic() -> None:
    """Create, look at, change and delete topics."""


@topic.command(
    examples=[
        ("", "kafka-pubsub topic create orders"),
        ("", "kafka-pubsub topic create orders --partitions 12 --ordering --retention 7d --label team=shop"),
        (
            "ten priorities, and messages that may be lost",
            "kafka-pubsub topic create jobs --priorities 10 --transient",
        ),
    ]
)
@shared.NAME
@shared.settings_of(
    PARTITIONS, REPLICATION, ORDERING, RETENTION, CAUSAL, PRIORITIES, TRANSIENT, SCHEMA, new=True
)
@shared.EXIST_OK
@click.pass_obj
def create(session: Session, /, name: str, exist_ok: bool, **given: object) -> None:
    """Create a topic."""
    with session.pubsub() as pubsub:
        made = pubsub.create_topic(name, exist_ok=exist_ok, **shared.given_settings(given))
        shown = _describe(made)
        lanes = _most_lanes(made.options)
        most = lanes * made.options.partitions
    done = f"Topic {name} exists" if exist_ok else f"Created topic {name}"
    session.output.result(shown, f"{done} with {shown['partitions']} partitions")
    if lanes > 1:
        session.output.note(
            f"Its {lanes} lanes, each made when it is first used, will be {most:,} partitions in Kafka, and each "
            f"subscription adds {most:,}."
        )


@topic.command(
    "list",
    examples=[("", "kafka-pubsub topic list"), ("", "kafka-pubsub topic list --json | jq -r '.[].name'")],
)
@click.pass_obj
def list_topics(session: Session) -> None:
    """List all topics."""
    with session.pubsub() as pubsub:
        found = shared.still_there(pubsub.list_topics(), _describe)
    rows = [shared.for_a_person(session, each) for each in found]
    session.output.table(rows, COLUMNS, "No topics yet: `kafka-pubsub topic create NAME` makes one.")


@topic.command(examples=[("", "kafka-pubsub topic describe orders")])
@shared.TOPIC_NAME
@click.pass_obj
def describe(session: Session, name: str) -> None:
    """Show a topic's settings, its lanes and its subscriptions.

    `lanes` are the Kafka topics of the priorities and classes that were used. `kafka partitions` are those of the
    lanes, of each subscription's retry topic beside each, and of a causal topic's inbox, now and once all lanes are
    used. `repartition` says how far a change of its partitions is, while there is one. Of a causal topic
    `multicast` says what waits there, as `multicast status` does.
    """
    with session.pubsub() as pubsub:
        topic = pubsub.topic(name)
        options, lanes, subscriptions = topic.options, topic.lanes, _subscriptions(pubsub, name)
        shown = _describe(topic) | {
            "default_priority": options.default_priority,
            "lanes": list[JsonValue](lanes),
            "subscriptions": subscriptions,
            **_partitions(session, options, len(lanes), len(subscriptions)),
        }
        change = pubsub.repartition_progress(name)
        if options.causal:
            shown["multicast"] = _waiting(session, pubsub.multicast.status(name))
    shown["repartition"] = None if change is None else _change(session, change)
    session.output.details(shared.for_a_person(session, shown))


@topic.command(
    examples=[
        ("", "kafka-pubsub topic delete orders"),
        ("without being asked", "kafka-pubsub topic delete orders --yes"),
        ("", "kafka-pubsub topic delete orders stock --yes"),
    ]
)
@shared.TOPIC_NAMES
@shared.YES
@click.pass_obj
def delete(session: Session, names: tuple[str, ...], yes: bool) -> None:
    """Delete topics and their messages, one after the other.

    Its subscriptions become detached: they receive nothing any more.

    An adopted topic is only forgotten: Kafka keeps it, and its messages. Its subscriptions stay detached when it is
    adopted again.
    """
    asks = shared.asks(session, f"deleting topic {shared.in_words(names)}", yes=yes)
    with session.pubsub() as pubsub:
        if asks:
            for name in names:
                shared.confirm(_deletion(pubsub, name))
        for name in names:
            kept = pubsub.delete_topic(name)
            done = f"Forgot topic {name}: it was adopted, so Kafka keeps it and its messages"
            answer: dict[str, JsonValue] = {"deleted": name, "kept_by_kafka": kept}
            session.output.result(answer, done if kept else f"Deleted topic {name}")


def _deletion(pubsub: PubSub, name: str) -> str:
    """Returns the question that a person is asked before a topic is deleted."""
    with contextlib.suppress(NotFound):  # perhaps it is being deleted; if there is none, deleting says so
        if pubsub.topic(name).adopted:
            return f"Forget topic {name}? Kafka keeps it and its messages, since it was adopted."
    return f"Delete topic {name} and all its messages?"


@topic.command(examples=[("", "kafka-pubsub topic adopt clicks --ordering")])
@shared.NAME
@shared.settings_of(ORDERING, new=True)
@shared.EXIST_OK
@click.pass_obj
def adopt(session: Session, /, name: str, exist_ok: bool, **given: object) -> None:
    """Take a topic that Kafka has already, with its messages.

    A sample of these is looked at: it warns if keys lie in other partitions than publishing puts them into.
    """
    with session.pubsub() as pubsub:
        settings = shared.given_settings(given)
        adopted = pubsub.adopt_topic(name, exist_ok=exist_ok, check_keys=False, **settings)
        shown = _describe(adopted)
        places = adopted.key_places()
    session.output.result(
        shown | {"key_places": _key_places(places)},
        f"Adopted topic {name} with {shown['partitions']} partitions",
    )
    if places is None:
        session.output.note(
            "Its messages couldn't be read, so it is unknown whether its keys lie where they belong."
        )
    elif places.advice is not None:
        session.output.note(f"Warning: {places.advice}.")


def _key_places(places: KeyPlaces | None) -> JsonValue:
    if places is None:
        return None
    return {
        "sampled": places.keys,
        "misplaced": places.misplaced,
        "former_partitions": places.former_partitions,
        "examples": [
            {**shown_bytes("key", each.key), "partition": each.partition, "expected": each.expected}
            for each in places.examples
        ],
        "advice": places.advice,
    }


@topic.command(
    examples=[
        ("", "kafka-pubsub topic update orders --retention 30d"),
        ("back to the broker's default", "kafka-pubsub topic update orders --default-retention"),
    ]
)
@shared.TOPIC_NAME
@click.option(
    "--default-retention", is_flag=True, help="Keep messages as long as the broker does by default."
)
@shared.settings_of(
    ORDERING,
    RETENTION,
    PRIORITIES._replace(help="More priorities, up to 10; never fewer."),
    TRANSIENT._replace(help="Take messages that may be lost, from now on."),
    SCHEMA._replace(help="A file (order.avsc) or subject: the schema of records from now on."),
    new=False,
)
@click.pass_obj
def update(session: Session, /, name: str, default_retention: bool, **given: object) -> None:
    """Change a topic's settings; settings that aren't given stay."""
    changes = shared.given_settings(given)
    if "retention" in changes and default_retention:
        raise click.UsageError("--retention and --default-retention exclude each other: give one")
    shared.check_changes(changes, default_retention)
    if default_retention:
        changes["retention"] = None
    with session.pubsub() as pubsub:
        changed = pubsub.update_topic(name, **changes)
        shown = _describe(changed)
    session.output.result(shown, f"Updated topic {name}")


@topic.command(
    examples=[
        ("", "kafka-pubsub topic repartition orders --partitions 24"),
        (
            "in a script; give up after a while, go on later",
            "kafka-pubsub topic repartition orders --partitions 24 --yes --timeout 10m",
        ),
    ]
)
@shared.TOPIC_NAME
@click.option("--partitions", type=int, required=True, help="How many it shall have.")
@shared.duration_option("--timeout", "Stop after so long.  [default: never]")
@shared.YES
@click.pass_obj
def repartition(session: Session, name: str, partitions: int, timeout: float | None, yes: bool) -> None:
    """Give a topic more partitions without reordering a key.

    Until it ends, messages with a key are refused. First it waits 75 seconds, until every publisher has noticed;
    then until ordered subscriptions have finished the messages that are there. So keep their consumers running, and
    release parked messages. Before it begins, it says how many messages there are, and asks.

    You can stop it, and call it again to go on. With the number that the topic has, it gives the change up. Neither
    asks.
    """
    with session.pubsub() as pubsub:
        before = pubsub.topic(name).options.partitions
        begun = pubsub.repartition_progress(name)
        repartitioner = pubsub._cluster.repartitioner
        _ask_before(session, repartitioner.foresee(name, partitions), before, yes=yes)
        try:
            with _progress(session) as tell:
                changed = pubsub.repartition_topic(name, partitions, timeout=timeout, on_progress=tell)
        except Stopped:
            session.output.note(
                f"Stopped. Messages with a key stay refused: `{_command(name, partitions)}` goes on, and "
                f"`{_command(name, before)}` gives the change up."
            )
            raise
        shown = _describe(changed)
    done = f"Topic {name} has {shown['partitions']} partitions"
    if begun is not None and begun.partitions != partitions:
        done += f": the change to {begun.partitions} is given up, messages with a key are accepted again"
    session.output.result(shown, done)


topic.add_command(tail)


def _ask_before(session: Session, change: RepartitionProgress | None, before: int, *, yes: bool) -> None:
    """Says what a change will refuse, and for how long, and asks; does nothing if no change would begin."""
    if change is None:
        return
    refuses = f"refuses messages with a key for {change.seconds:.0f} s and longer"
    asks = shared.asks(session, f"repartitioning topic {change.topic}", yes=yes, why_ask=refuses)
    session.output.note(_refusals(change))
    if asks:
        shared.confirm(f"Give topic {change.topic} {change.partitions} partitions instead of {before}?")


def _refusals(change: RepartitionProgress) -> str:
    """Returns what is refused during a change, and for how long."""
    waits = f", then until ordered subscriptions have finished what is there ({_left(change)})"
    return (
        f"Until it ends, publishing to {change.topic} with an ordering key is refused: for {change.seconds:.0f} s, "
        f"until every publisher has noticed{waits if change.waiting else ''}. Delayed messages with a key wait. "
        "Messages without a key are accepted. Kafka takes no partition away again."
    )


def _command(name: str, partitions: int) -> str:
    return f"kafka-pubsub topic repartition {name} --partitions {partitions}"


@contextlib.contextmanager
def _progress(session: Session) -> Iterator[Callable[[RepartitionProgress], None]]:
    """Shows what the change waits for: in place on a terminal, else in a new line whenever that changes."""
    advised = False
    if session.as_json:
        yield lambda progress: None
        return
    if sys.stderr.isatty():
        console = stderr_console()
        with console.status("") as status:
            from rich.markup import escape

            def show(progress: RepartitionProgress) -> None:
                nonlocal advised
                if progress.waiting and not advised:
                    console.print(escape(_HINT), style="dim", highlight=False)
                    advised = True
                status.update(escape(_waits_for(progress)))

            yield show
        return
    printed = ""

    def tell(progress: RepartitionProgress) -> None:
        nonlocal printed, advised
        if progress.phase == "fencing" and printed:
            return  # the first line has said how long it takes
        text = _waits_for(progress)
        if text != printed:
            session.output.note(text)
            printed = text
        if progress.waiting and not advised:
            session.output.note(_HINT)
            advised = True

    yield tell


_HINT = "`kafka-pubsub subscription keys NAME` shows which of their keys are held up, and by what."


def _waits_for(progress: RepartitionProgress) -> str:
    if progress.phase == "fencing":
        left = f" ({progress.seconds:.0f} s)" if progress.seconds else ""
        return f"Waiting until every publisher has stopped using keys{left}"
    if progress.phase == "draining":
        return f"Waiting for the old layout to be finished: {_left(progress) or 'done'}"
    return f"Adding partitions, up to {progress.partitions}"


def _left(progress: RepartitionProgress) -> str:
    """Lists the subscriptions that the change waits for."""
    return ", ".join(
        f"{name}: {count:,} message{'s' * (count != 1)}{' (no process receives)' * (name in progress.idle)}"
        + "".join(f"; unreadable: {_where(each)}" for each in progress.unreadable.get(name, ()))
        for name, count in progress.waiting.items()
    )


def _where(record: UnreadableRecord) -> str:
    return f"{record.topic}:{record.partition}:{record.offset} ({record.reason})"


def _change(session: Session, progress: RepartitionProgress) -> JsonValue:
    """Returns a change that is under way, for `describe`."""
    if not session.as_json:
        return f"to {progress.partitions} partitions is under way, keys are refused. {_waits_for(progress)}"
    return {
        "partitions": progress.partitions,
        "phase": progress.phase,
        "waiting": dict(progress.waiting),
        "idle": sorted(progress.idle),
        "unreadable": {name: [asdict(each) for each in some] for name, some in progress.unreadable.items()},
    }


def _waiting(session: Session, found: Sequence[CausalStatus]) -> JsonValue:
    """Returns what waits in a causal topic, for `describe`."""
    now = datetime.now(UTC)
    return [status_row(each, now) for each in found] if session.as_json else pending_line(found, now)


def _describe(each: Topic) -> dict[str, JsonValue]:
    options = each.options
    shown = {
        name: getattr(options, name)
        for name in type(options).model_fields
        if name not in ("default_priority", "record_schema")
    }
    schema = options.record_schema
    shown["schema"] = None if schema is None else str(schema)
    return {"name": each.name, **shown, "adopted": each.adopted, "labels": dict(options.labels)}


def _most_lanes(options: TopicOptions) -> int:
    """Returns how many lanes a topic has once all are used; 1: only its own Kafka topic."""
    return options.priorities * (2 if options.transient else 1)


def _partitions(
    session: Session, options: TopicOptions, lanes: int, subscriptions: int
) -> dict[str, JsonValue]:
    """Returns how many partitions the topic has in Kafka with its lanes and subscriptions, now and at most."""
    most_lanes = _most_lanes(options)
    now, most = (
        options.partitions * (each * (1 + subscriptions) + options.causal) for each in (lanes, most_lanes)
    )
    if session.as_json:
        return {"kafka_partitions": now, "kafka_partitions_most": most}
    later = f"{now:,} now, {most:,} once all {most_lanes} lanes are used"
    return {"kafka_partitions": now if now == most else later}


def _subscriptions(pubsub: PubSub, name: str) -> list[JsonValue]:
    found = shared.still_there(pubsub.list_subscriptions(), lambda each: (each.name, each.topic))
    return [subscription for subscription, topic in found if topic == name]
