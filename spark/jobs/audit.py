"""`audit`: is the log in order, the archive the log, and what have subscriptions done; 1 if a promise was broken."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from kafka_pubsub.errors import NotFound

from ..audit_report import LINK, made
from ..bodies import Bodies, expect_option, schema_option
from ..job import Context, Job, Outcome, option
from ..transforms.protobuf import Protobuf

if TYPE_CHECKING:
    from ..audits import Audit, Step, SubscriptionAudit

__all__ = ["JOB", "run"]


def run(
    context: Context,
    *,
    topic: str,
    archive: str | None,
    sequence: str | None,
    subscriptions: tuple[str, ...],
    schema: str | Protobuf | None,
    expect: tuple[str, ...],
    report: str | None,
    link: str | None,
) -> Outcome:
    """Runs the job."""
    if link is not None and report is None:
        raise click.UsageError("--link is for the findings in a report: give --report as well")
    began = datetime.now(UTC)
    spark = context.spark()
    from ..audits import Audit
    from ..catalog import subscriptions_of
    from ..files import OneFile

    # Before anything is read: a path that can't be written shall not be told after an hour.
    page = None if report is None else OneFile(spark, report, "--report")
    audit = Audit(spark, context.place, topic, context.note)
    known = subscriptions_of(spark, context.place, topic, context.note)
    if missing := set(subscriptions) - {each.name for each in known}:
        raise NotFound(f"topic {topic!r} has no subscription {', '.join(map(repr, sorted(missing)))}")
    partitions, rate = audit.volume()
    facts: dict[str, Any] = {"topic": topic, "partitions": partitions, "rate": rate}
    steps = [audit.splits(), audit.ids()]
    if sequence is not None:
        steps.append(audit.order(sequence))
    if schema is not None or expect:
        steps.append(audit.expectations(expect, Bodies(schema)))
    if archive is not None:
        steps += _archive(audit, archive, sequence, facts)
    found = [audit.subscription(each) for each in known if not subscriptions or each.name in subscriptions]
    steps += [each.step for each in found]
    facts["subscriptions"] = [_shown(each) for each in found]
    facts["messages"] = sum(each["messages"] for each in facts["partitions"])
    facts["steps"] = {step.name: step.counts for step in steps}
    facts["advice"] = {step.name: step.advice for step in steps if step.advice}
    facts["findings"] = [{"step": step.name, **finding} for step in steps for finding in step.findings]
    facts["ok"] = all(step.clean for step in steps)
    facts["read"] = {
        "bootstrap": context.place.bootstrap,
        "cluster": audit.cluster_id,
        "first": min((each["first"] for each in partitions if each["first"]), default=None),
        "last": max((each["last"] for each in partitions if each["last"]), default=None),
        "began": began.isoformat(timespec="seconds"),
        "seconds": round((datetime.now(UTC) - began).total_seconds(), 1),
        "sequence": sequence,
    }
    if page is not None:
        page.write(made(facts, link))
    return Outcome(facts, _text(facts, None if page is None else page.path), facts["ok"])


def _archive(audit: Audit, path: str, sequence: str | None, facts: dict[str, Any]) -> list[Step]:
    step, behind = audit.archive(path)
    facts["archive"] = {"path": path, "behind": behind, "delays": audit.delays(path)}
    return [step] if sequence is None else [step, audit.archive_order(path, sequence)]


def _shown(found: SubscriptionAudit) -> dict[str, Any]:
    names = ("name", "acked", "waiting", "parked", "dead", "reasons")
    return {name: getattr(found, name) for name in names}


def _text(facts: dict[str, Any], report: str | None) -> str:
    lines = [f"{facts['topic']}: {facts['messages']:,} messages in {len(facts['partitions'])} partitions"]
    for each in facts["subscriptions"]:
        counts = ", ".join(f"{each[name]:,} {name}" for name in ("acked", "waiting", "parked", "dead"))
        lines.append(f"subscription {each['name']}: {counts}")
    if "archive" in facts:
        told = facts["archive"]["delays"]
        left = sum(facts["archive"]["behind"].values())
        lines.append(
            f"archive: {told['messages']:,} messages, {left:,} offsets behind, p99 {told['p99']:.1f} s after publishing"
        )
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


#: Findings that a person reads on a terminal.
SHOWN = 20


JOB = Job(
    "audit",
    """Check a topic: order per key, gaps, duplicates, its archive, and what its subscriptions have done.

    A log by itself is in its own order. Publishers that number each key's messages (1, 2, 3 ...) can have that checked
    with --sequence. Exits with 1 when anything is found.
    """,
    [
        option(
            "--topic",
            required=True,
            metavar="NAME",
            help="The topic to check, up to the ends that its partitions have at the start.",
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
            "--subscription",
            "subscriptions",
            multiple=True,
            metavar="NAME",
            help="Look at this subscription of the topic and at none that isn't named. Can be repeated. Default: all "
            "of them.",
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
        ("one subscription", "--topic orders --subscription billing"),
    ],
    run,
)
