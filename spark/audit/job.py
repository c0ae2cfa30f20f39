"""The job `audit` checks a topic, its archive and its subscriptions; it exits with 1 if a promise was broken."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from kafka_pubsub.errors import NotFound

from ..reading.protobuf import Protobuf
from ..run.bodies import Bodies, expect_option, schema_option
from ..run.job import Context, Job, Outcome, option
from .report import LINK, made, template

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafka_pubsub.config import SubscriptionRecord

    from .audits import Audit, Step, SubscriptionAudit
    from .state import AuditState

__all__ = ["JOB", "run"]

LAST, BEGINNING = "last", "beginning"
ANY = "any"


def run(
    context: Context,
    *,
    topic: str,
    archive: str | None,
    sequence: str | None,
    first: str,
    subscriptions: tuple[str, ...],
    schema: str | Protobuf | None,
    expect: tuple[str, ...],
    report: str | None,
    link: str | None,
    state: str | None,
    since: str,
) -> Outcome:
    """Runs the job `audit`."""
    if link is not None and report is None:
        raise click.UsageError("--link is for the findings in a report: give --report as well")
    began = datetime.now(UTC)
    spark = context.spark()
    from ..base.files import OneFile
    from ..reading.catalog import subscriptions_of
    from .audits import Audit
    from .state import AuditState

    # This comes first, so that a path that can't be written is an error now and not after an hour.
    page = None if report is None else OneFile(spark, report, "--report")
    if page is not None:
        # A page that can't be made is an error before the topic is read.
        template()
    kept = None if state is None else AuditState(spark, state, topic)
    audit = Audit(
        spark,
        context.connection,
        topic,
        context.note,
        sequence=sequence,
        first=_number(first),
        archive=archive,
    )
    known = subscriptions_of(spark, context.connection, topic, context.note)
    if missing := set(subscriptions) - {each.name for each in known}:
        raise NotFound(f"topic {topic!r} has no subscription {', '.join(map(repr, sorted(missing)))}")
    wanted = [each for each in known if not subscriptions or each.name in subscriptions]
    last = None if kept is None else _begun(audit, kept, wanted, since, context)
    # Read before `_keep` stores this audit, which is the last one from then on.
    since_when = None if last is None or kept is None else kept.last_at
    if last is None:
        audit.begin(wanted)
    try:
        facts = _judge(audit, wanted, archive, None if last is None else kept, (expect, Bodies(schema)))
        if kept is not None:
            facts["earlier"] = kept.earlier()
            _keep(kept, audit, facts, last)
    finally:
        audit.close()
    partitions = facts["partitions"]
    facts["read"] = {
        "bootstrap": context.connection.bootstrap,
        "cluster": audit.cluster_id,
        "first": min((each["first"] for each in partitions if each["first"]), default=None),
        "last": max((each["last"] for each in partitions if each["last"]), default=None),
        "began": began.isoformat(timespec="seconds"),
        "seconds": round((datetime.now(UTC) - began).total_seconds(), 1),
        "sequence": sequence,
        "since": since_when,
    }
    if page is not None:
        page.write(made(facts, link))
    return Outcome(facts, _text(facts, None if page is None else page.path), facts["ok"])


def _number(first: str) -> int | None:
    if first == ANY:
        return None
    try:
        return int(first)
    except ValueError as error:
        raise click.UsageError(f"--first {first!r} is neither a number nor {ANY}") from error


def _judge(
    audit: Audit,
    subscriptions: Sequence[SubscriptionRecord],
    archive: str | None,
    since: AuditState | None,
    expected: tuple[Sequence[str], Bodies],
) -> dict[str, Any]:
    """Runs all steps; `since` is the state of earlier audits if this audit goes on from them."""
    before = 0 if since is None or since.last is None else int(since.last["messages"])
    partitions, rate = audit.volume()
    facts: dict[str, Any] = {"topic": audit.topic, "partitions": partitions, "rate": rate, "before": before}
    steps = [audit.splits(), audit.ids()]
    if audit.sequence is not None:
        steps.append(audit.order(None if since is None else since.numbers()))
    if expected[0] or expected[1].schema is not None:
        steps.append(audit.expectations(*expected))
    if archive is not None:
        steps += _archive(audit, archive, facts)
    found = [audit.subscription(each, before) for each in subscriptions]
    steps += [each.step for each in found]
    facts["subscriptions"] = [_shown(each) for each in found]
    facts["messages"] = sum(each["messages"] for each in partitions)
    facts["steps"] = {step.name: step.counts for step in steps}
    facts["advice"] = {step.name: step.advice for step in steps if step.advice}
    facts["findings"] = [{"step": step.name, **finding} for step in steps for finding in step.findings]
    facts["ok"] = all(step.clean for step in steps)
    return facts


def _keep(kept: AuditState, audit: Audit, facts: dict[str, Any], last: dict[str, Any] | None) -> None:
    """Stores the audit's end in its table, for the next audit; `last` is the progress that this audit began from."""
    from ..reading.messages import by_topic

    progress: dict[str, Any] = {**_judged_by(audit), "messages": facts["before"] + facts["messages"]}
    progress["ends"] = by_topic(audit.ends)
    progress["archive"] = audit.archive_progress or (last or {}).get("archive")
    numbers = None if audit.sequence is None else audit.highest()
    kept.keep(progress, facts["findings"], numbers, whole=last is None)


def _begun(
    audit: Audit,
    kept: AuditState,
    subscriptions: Sequence[SubscriptionRecord],
    since: str,
    context: Context,
) -> dict[str, Any] | None:
    """Begins where the last audit ended, and returns the progress that it kept; None if everything must be read."""
    why = kept.restart(_judged_by(audit), audit.beginnings)
    if since == BEGINNING or why is not None:
        if kept.last is not None and why is not None:
            context.note(f"everything is read again: {why}")
        return None
    context.note(f"only what came since the last audit ({kept.last_at}) is judged")
    audit.begin(subscriptions, kept.ends(), kept.archived(audit.archive_address))
    return kept.last


def _judged_by(audit: Audit) -> dict[str, Any]:
    """Returns the facts that must be the same in the next audit if that audit is to go on from this one."""
    return {"topic_ids": audit.topic_ids, "partitions": audit.partitions, "sequence": audit.sequence}


def _archive(audit: Audit, path: str, facts: dict[str, Any]) -> list[Step]:
    step, behind = audit.archive()
    gone = audit.taken_out.facts()
    facts["archive"] = {"path": path, "behind": behind, "delays": audit.delays(), "taken_out": gone}
    order = audit.archive_order()
    return [step] if order is None else [step, order]


def _shown(found: SubscriptionAudit) -> dict[str, Any]:
    names = ("name", "acked", "waiting", "parked", "dead", "reasons")
    return {name: getattr(found, name) for name in names}


def _text(facts: dict[str, Any], report: str | None) -> str:
    lines = [f"{facts['topic']}: {facts['messages']:,} messages in {len(facts['partitions'])} partitions"]
    if facts["before"]:
        lines[0] += f" since the last audit ({facts['read']['since']}), {facts['before']:,} before"
    if earlier := facts.get("earlier"):
        found = ", ".join(f"{count:,} {kind}" for kind, count in earlier.items())
        lines.append(f"earlier audits found: {found}")
    for each in facts["subscriptions"]:
        counts = ", ".join(f"{each[name]:,} {name}" for name in ("acked", "waiting", "parked", "dead"))
        lines.append(f"subscription {each['name']}: {counts}")
    if "archive" in facts:
        told, gone = facts["archive"]["delays"], facts["archive"]["taken_out"]
        left = sum(facts["archive"]["behind"].values())
        lines.append(
            f"archive: {told['messages']:,} messages, {left:,} offsets behind, p99 {told['p99']:.1f} s after publishing"
        )
        if gone["before"] or gone["keys"]:
            since = f"from {gone['before']} on" if gone["before"] else "of all dates"
            lines.append(f"  compared are messages {since}, without {gone['keys']:,} forgotten keys")
    for name, counts in facts["steps"].items():
        lines.append(f"{name}: " + (", ".join(f"{n:,} {kind}" for kind, n in counts.items()) or "clean"))
        if name in facts["advice"]:
            lines.append(f"  {facts['advice'][name]}.")
    for each in facts["findings"][:SHOWN]:
        key = "" if each["key"] is None else f" key {each['key']!r}"
        lines.append(
            f"  {each['kind']}: {each['topic']} {each['partition']}:{each['offset']}{key} {each['said']}"
        )
    if len(facts["findings"]) > SHOWN:
        lines.append(f"  ... and more: --json or --report list {len(facts['findings']):,}")
    return "\n".join([*lines, *([f"report: {report}"] if report else [])])


#: How many findings are shown on a terminal.
SHOWN = 20


JOB = Job(
    "audit",
    """Check a topic: order per key, gaps, duplicates, its archive, and what its subscriptions have done.

    A log by itself is in its own order. Publishers that number each key's messages (1, 2, 3 ...) can have that checked
    with --sequence. Exits with 1 when anything is found. With --state the next audit reads only what came since.
    """,
    [
        option(
            "--topic",
            required=True,
            metavar="NAME",
            help="The topic to check, with its lanes, up to the ends that its partitions have at the start.",
        ),
        option(
            "--archive",
            metavar="TABLE",
            help="Compare this archive (a path or a name in a catalog) with the log, message by message. Default: no "
            "archive is looked at.",
        ),
        option(
            "--sequence",
            metavar="SQL",
            help="A SQL expression that gives the number of a message within its key (1, 2, 3 ...), e.g. "
            "attributes['seq']. Default: the publisher's order isn't checked.",
        ),
        option(
            "--first",
            default=ANY,
            show_default=True,
            metavar="NUMBER",
            help="With --sequence: the number that each key begins with, e.g. 1. A key that begins with a greater one "
            "has a gap; this isn't judged in a topic from which messages were deleted. 'any': it is never judged, "
            "as fits a compacted topic, and one that was made again while its publishers went on counting.",
        ),
        option(
            "--subscription",
            "subscriptions",
            multiple=True,
            metavar="NAME",
            help="Look at this subscription of the topic and at none that isn't named. Can be repeated. Default: all "
            "of them.",
        ),
        option(
            "--state",
            metavar="TABLE",
            help="Keep findings and how far the audit came in this Delta table (a path or a catalog's name), and each "
            "key's last number in one beside it (TABLE-numbers). Default: nothing is kept.",
        ),
        option(
            "--since",
            type=click.Choice([LAST, BEGINNING]),
            default=LAST,
            show_default=True,
            help="With --state: judge what came since the last audit that is kept there, or everything again. An "
            "audit of another --sequence, of a topic with more partitions or one that was made again reads "
            "everything.",
        ),
        schema_option("Bodies that don't fit are findings."),
        expect_option("A message of which it isn't true is a finding (unexpected)."),
        option(
            "--report",
            metavar="PATH",
            help="Write a page with plots to this file, by Spark's own file systems: a path of this machine, or "
            "hdfs://, s3a:// and so on. An earlier file is replaced. Default: no page.",
        ),
        option(
            "--link",
            type=LINK,
            metavar="URL",
            help="With --report: where a record can be looked at, e.g. "
            "https://kafka-ui.example.org/{topic}?partition={partition}&offset={offset}. The offsets of findings then "
            "lead there. Default: they lead to their own row.",
        ),
    ],
    [
        (
            "everything",
            "--topic orders --archive /data/archive --sequence \"attributes['seq']\" --report audit.html",
        ),
        (
            "each hour, what came since",
            "--topic orders --sequence \"attributes['seq']\" --state /data/audits",
        ),
        ("one subscription", "--topic orders --subscription billing"),
    ],
    run,
)
