"""Makes the page of an audit from the audit's facts, for a reader who hasn't seen the command.

Rules
1. The outcome comes first, and beside it what wasn't checked.
2. Every time is UTC and says so.
3. More partitions than `DRAWN` are shown as a distribution.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import Any
from urllib.parse import quote

import click

from .plots import Tick, bars, columns, duration, lines, share, stack

__all__ = ["DRAWN", "LINK", "made", "template"]

#: Up to so many partitions have a bar each; with more, the page shows their distribution.
DRAWN = 32
#: How many findings are shown before the reader opens the rest.
OPEN = 20
_STATES = ("acked", "waiting", "parked", "dead")
#: Seconds between two marks on an axis of time.
_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 21_600, 43_200, 86_400)
_EXPLAINED = {
    "reorder": "a message lies behind one of its key that has a higher number",
    "gap": "numbers of a key are missing",
    "duplicate": "a message is there twice",
    "unnumbered": "--sequence gives no number for the message",
    "unexpected": "a condition of --expect isn't true of the message, or its body doesn't fit --schema",
    "altered": "the archive holds other bytes than the log",
    "foreign": "the archive holds a message that the log doesn't have",
    "split": "a key lies in several partitions, so it has no order between them",
    "misplaced": "a key lies in another partition than publishing puts it into",
    "two places": "a message is parked or dead, and unfinished in its topic, at once",
    "parked twice": "a message waits twice in the retry topic",
    "overtaken": "a message was acked before an earlier one of its key was done",
    "metadata": "the metadata of a commit can't be read",
    "beyond": "a position lies behind the log's end",
}


class _Link(click.ParamType[str]):
    """The address of a page that shows a record, with placeholders for topic, partition and offset."""

    name = "url"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Returns the text if it is a web address with all placeholders; fails otherwise."""
        text = str(value)
        if not text.startswith(("http://", "https://")):
            self.fail(f"{text!r} isn't an address: begin it with https:// or http://", param, ctx)
        if missing := [name for name in ("{topic}", "{partition}", "{offset}") if name not in text]:
            self.fail(f"{text!r} lacks {', '.join(missing)}, which the report replaces", param, ctx)
        return text


LINK = _Link()


@cache
def template() -> Any:
    """Returns the template of the page; `ModuleNotFoundError` names jinja2 where that is missing."""
    from jinja2 import Environment, StrictUndefined

    text = files(__package__).joinpath("report.html.j2").read_text(encoding="utf-8")
    return Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True).from_string(text)


def made(facts: Mapping[str, Any], link: str | None = None) -> str:
    """Makes the page.

    `link` is an address with {topic}, {partition} and {offset} (default: findings link to themselves).
    """
    checks = _checks(facts)
    advised = any(row["what to do"] for row in checks)
    kinds = {each["kind"] for each in facts["findings"]}
    page: str = template().render(
        topic=facts["topic"],
        ok=facts["ok"],
        verdict=_verdict(facts),
        extent=_extent(facts),
        read=_read(facts),
        checks=checks,
        check_columns=["check", "result", *(["what to do"] if advised else [])],
        open=OPEN,
        found=sum(_found(facts).values()),
        findings=[_finding(each, at, link) for at, each in enumerate(facts["findings"], 1)],
        meanings={kind: said for kind, said in _EXPLAINED.items() if kind in kinds},
        bootstrap=facts["read"]["bootstrap"],
        subscriptions=[_subscription(each) for each in facts["subscriptions"]],
        rate=_rate(facts["rate"]) if facts["rate"]["counts"] else None,
        partitions=_partitions(facts["partitions"]),
        archive=_archive(facts) if "archive" in facts else None,
        began=_time(facts["read"]["began"]),
    )
    return page


def _found(facts: Mapping[str, Any]) -> dict[str, int]:
    """Counts the findings of each kind, over all steps."""
    counts: dict[str, int] = {}
    for step in facts["steps"].values():
        for kind, count in step.items():
            counts[kind] = counts.get(kind, 0) + count
    return counts


def _verdict(facts: Mapping[str, Any]) -> str:
    if facts["ok"]:
        return "✓ No promise was broken"
    counts = _found(facts)
    total = sum(counts.values())
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in counts.items())
    return f"✗ {total:,} {'finding' if total == 1 else 'findings'}: {kinds}"


def _extent(facts: Mapping[str, Any]) -> str:
    news = " new" if facts["read"]["since"] is not None else ""
    read = f"{facts['messages']:,}{news} messages were read; {len(facts['steps'])} checks were made."
    left = [name for name, _ in _not_checked(facts)]
    return read + (f" Not checked: {', '.join(left)}." if left else "")


def _not_checked(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Lists the checks that weren't requested, each with the option that requests it."""
    left = []
    if facts["read"]["sequence"] is None:
        left.append(("order of the log", "--sequence gives each message's number within its key"))
    if "archive" not in facts:
        left.append(("archive and log", "--archive names the archive"))
    return left


def _read(facts: Mapping[str, Any]) -> dict[str, str]:
    read = facts["read"]
    offsets = sum(each["end"] - each["beginning"] for each in facts["partitions"])
    first, last = read["first"], read["last"]
    span = "no messages" if first is None else f"{_time(first)} to {_time(last)}"
    told = {
        "Topic": facts["topic"],
        "Cluster": read["bootstrap"],
        "Cluster id": read["cluster"],
        "Published": span,
        "Time zone": "UTC",
        "Messages": f"{facts['messages']:,} in {len(facts['partitions']):,} partitions, {offsets:,} offsets",
        "Bytes": _bytes(sum(each["bytes"] for each in facts["partitions"])),
        "Audit began": _time(read["began"]),
        "It took": duration(read["seconds"]),
    }
    if facts["read"]["since"] is not None:
        since = f"the audit of {_time(facts['read']['since'])} ended; {facts['before']:,} messages before"
        told["Only what came since"] = since
    if "archive" in facts:
        told["Archive"] = facts["archive"]["path"]
    return told


def _checks(facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for name, counts in facts["steps"].items():
        said = ", ".join(f"{count:,} {kind}" for kind, count in counts.items()) or "✓ nothing found"
        kind = "found" if counts else "clean"
        rows.append({"check": name, "result": said, "kind": kind, "what to do": facts["advice"].get(name)})
    for name, how in _not_checked(facts):
        rows.append({"check": name, "result": "not checked", "kind": "skipped", "what to do": how})
    return rows


def _finding(found: Mapping[str, Any], number: int, link: str | None) -> dict[str, Any]:
    # An offset of -1 stands for a whole partition, which has no record to link to.
    where = f"{found['topic']} {found['partition']}" + (f":{found['offset']}" if found["offset"] >= 0 else "")
    names = ("topic", "partition", "offset")
    at = f"finding-{number}"
    if link is None or found["offset"] < 0:
        address = f"#{at}"
    else:
        address = link
        for name in names:
            address = address.replace(f"{{{name}}}", quote(str(found[name]), safe=""))
    return {
        "id": at,
        "what": found["kind"],
        "where": where,
        "address": address,
        "key": found["key"],
        "said": found["said"],
        "check": found["step"],
    }


def _subscription(found: Mapping[str, Any]) -> dict[str, Any]:
    whole = sum(found[state] for state in _STATES)
    kinds = {"acked": "ok" if found["acked"] == whole else "", "parked": "warn", "dead": "bad"}
    figures = [
        (state, f"{found[state]:,}", share(found[state], whole), kinds.get(state, "") if found[state] else "")
        for state in _STATES
    ]
    return {
        "name": found["name"],
        "tiles": figures,
        "parts": stack({state: found[state] for state in _STATES}) if whole else [],
        "reasons": bars({reason or "no reason given": n for reason, n in found["reasons"].items()}),
    }


def _rate(rate: Mapping[str, Any]) -> dict[str, Any]:
    counts, step, begin = rate["counts"], rate["step_s"], rate["begins_s"]
    titles = [
        f"{_at(begin + at * step)} UTC, for {duration(step)}: {count:,} messages, "
        f"{count / step:,.4g} a second"
        for at, count in enumerate(counts)
    ]
    values = [count / step for count in counts]
    label = f"Messages a second by the time of publishing (UTC), each column {duration(step)}"
    drawn = columns(values, titles, _times(begin, begin + step * len(counts)), label)
    busiest = max(range(len(counts)), key=counts.__getitem__)
    said = (
        f"On average {sum(counts) / (step * len(counts)):,.4g} a second; most at "
        f"{_at(begin + busiest * step)}: {values[busiest]:,.4g} a second."
    )
    if rate["outside"]:
        said += f" {rate['outside']:,} messages have times outside of this range, or none."
    return {"plot": drawn, "said": said}


def _partitions(found: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    counts = [each["messages"] for each in found]
    if not counts:
        return None
    mean = statistics.fmean(counts)
    figures = [
        ("partitions", f"{len(counts):,}", f"{counts.count(0):,} empty", ""),
        ("fewest", f"{min(counts):,}", "messages", ""),
        ("median", f"{statistics.median(counts):,.0f}", "messages", ""),
        ("most", f"{max(counts):,}", "messages", ""),
        ("most to mean", f"{max(counts) / mean:.2f}" if mean else "", "1 is even", ""),
    ]
    rows = [
        {**each, "first": _time(each["first"]), "last": _time(each["last"])}
        for each in sorted(found, key=lambda each: -int(each["messages"]))
    ]
    if len(found) > DRAWN:
        more = {"plot": _distribution(counts), "rows": [*rows[:5], *rows[-5:]]}
        return {"tiles": figures, "summary": "the 5 fullest and the 5 emptiest", **more}
    of_lane = "{topic} {partition}" if len({each["topic"] for each in found}) > 1 else "{partition}"
    return {
        "tiles": figures,
        "plot": None,
        "bars": bars({of_lane.format(**each): each["messages"] for each in found}),
        "rows": sorted(rows, key=lambda each: (each["topic"], int(each["partition"]))),
        "summary": "bytes, keys and times of each",
    }


def _distribution(counts: Sequence[int]) -> dict[str, Any]:
    """Returns a plot of how many partitions hold how many messages."""
    low, high = min(counts), max(counts)
    bins = min(24, high - low + 1)
    width = (high - low + 1) / bins
    held = [0] * bins
    for count in counts:
        held[min(bins - 1, int((count - low) / width))] += 1
    edges = [low + at * width for at in range(bins + 1)]
    titles = [
        f"{number:,} partitions hold {edges[at]:,.0f} to {max(edges[at], edges[at + 1] - 1):,.0f} messages"
        for at, number in enumerate(held)
    ]
    across = (
        [(at / 4, f"{low + (high - low) * at / 4:,.0f}") for at in range(5)]
        if high > low
        else [(0.5, f"{low:,}")]
    )
    return columns(held, titles, across, "Partitions, by how many messages they hold")


def _archive(facts: Mapping[str, Any]) -> dict[str, Any]:
    found, told = facts["archive"], facts["archive"]["delays"]
    gone = found["taken_out"]
    behind = sum(found["behind"].values())
    figures = [
        ("archived", f"{told['messages']:,}", "messages", ""),
        ("behind", f"{behind:,}", "offsets", "warn" if behind else "ok"),
        *((name, duration(told[key]), "after publishing", "") for name, key in _PERCENTILES.items()),
        *([("kept from", gone["before"], "on", "")] if gone["before"] else []),
        *([("forgotten", f"{gone['keys']:,}", "keys", "")] if gone["keys"] else []),
    ]
    ranges, before, named = {}, 0, "up to"
    for bound, count in told["below"].items():
        ranges[f"{named} {duration(float(bound))}"] = count - before
        before = count
    ranges["longer"] = told["messages"] - before
    over, drawn = told["over_time"], None
    if over["p50"]:
        begin, step = over["begins_s"], over["step_s"]
        label = "Time from publishing to the archive, by the time of publishing (UTC)"
        series = {"half of the messages within": over["p50"], "99 % within": over["p99"]}
        drawn = lines(series, _times(begin, begin + step * len(over["p50"])), label)
    return {"tiles": figures, "bars": bars(ranges) if told["messages"] else [], "plot": drawn}


_PERCENTILES = {"half within": "p50", "90 % within": "p90", "99 % within": "p99", "all within": "max"}


def _times(begin: float, end: float) -> list[Tick]:
    """Returns marks at round times for an axis from `begin` to `end` (seconds since 1970)."""
    span = end - begin
    step = next((each for each in _STEPS if span / each <= 6), 0)
    if not step:
        step = 86_400 * max(1, round(span / 86_400 / 5))
    form = next(form for least, form in _FORMS if span >= least)
    found, at = [], -(-begin // step) * step
    while at <= end:
        found.append(((at - begin) / span, f"{datetime.fromtimestamp(at, UTC):{form}}"))
        at += step
    return found


#: The format of times on an axis that is at least so many seconds long.
_FORMS = ((5 * 86_400, "%m-%d"), (86_400, "%m-%d %H:%M"), (600, "%H:%M"), (0, "%H:%M:%S"))


def _at(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}"


def _time(text: str | None) -> str:
    return "" if text is None else _at(datetime.fromisoformat(text).timestamp())


def _bytes(count: int) -> str:
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{count / size:,.1f} {unit}"
    return f"{count:,} B"
