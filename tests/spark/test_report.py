"""The page of an audit, by its facts alone: all that a reader must see is there, and text of others is never markup."""

from __future__ import annotations

import re
from typing import Any

import click
import pytest

from spark.audit.plots import duration, share, stack
from spark.audit.report import LINK, made
from tests.spark.needs import need_spark

HOSTILE = "<script>alert(1)</script>"


def facts(**changed: Any) -> dict[str, Any]:
    """An audit of 6,000 messages in 3 partitions, in which nothing was found."""
    times = {"first": "2026-01-14T09:00:00+00:00", "last": "2026-01-14T09:59:59+00:00"}
    told = {"topic": "orders", "messages": 2000, "bytes": 9000, "keys": 10, **times, "beginning": 0}
    partitions: list[dict[str, Any]] = [{**told, "partition": at, "end": 2000} for at in range(3)]
    read = {"bootstrap": "kafka:9092", "cluster": "cluster-1", **times, "seconds": 75.0, "sequence": "n"}
    read |= {"since": None}
    return {
        "topic": "orders",
        "before": 0,
        "messages": 6000,
        "ok": True,
        "steps": {"order of the log": {}, "ids": {}},
        "advice": {},
        "findings": [],
        "partitions": partitions,
        "rate": {"begins_s": 1768381200, "step_s": 60, "counts": [100] * 60, "outside": 0},
        "read": {**read, "began": "2026-01-14T12:30:00+02:00"},
        "subscriptions": [],
        **changed,
    }


def finding(**changed: Any) -> dict[str, Any]:
    found = {"step": "ids", "kind": "gap", "topic": "orders", "partition": 1, "offset": 7, "key": "k"}
    return {**found, "said": "numbers 3 to 5 are missing", **changed}


def text_of(page: str) -> str:
    """The reader's view."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", re.sub(r"<style>.*?</style>", "", page, flags=re.S)))


def test_what_was_read_is_said() -> None:
    page = made(facts())
    seen = text_of(page)
    for said in (
        "Topic orders",
        "Cluster kafka:9092",
        "Cluster id cluster-1",
        "2026-01-14 09:00:00 to 2026-01-14 09:59:59",
        "Time zone UTC",
        # A note from another time zone is told in UTC.
        "Audit began 2026-01-14 10:30:00",
        "It took 1.25 min",
        "6,000 in 3 partitions",
    ):
        assert said in seen, said
    assert page.index("No promise was broken") < page.index("What was read")


def test_the_judgement_says_what_was_found_and_what_was_not_checked() -> None:
    steps = {"ids": {"gap": 3}, "keys and partitions": {"split": 1}}
    seen = text_of(made(facts(ok=False, steps=steps, findings=[finding()])))
    assert "4 findings: 3 gap, 1 split" in seen
    assert "1 of 4 findings are listed" in seen
    assert "Not checked: archive and log." in seen
    assert "Not checked: order of the log, archive and log." in text_of(
        made(facts(read={**facts()["read"], "sequence": None}))
    )


def test_an_incremental_audit_says_since_when() -> None:
    assert "since" not in text_of(made(facts()))
    seen = text_of(made(facts(before=54_000, read={**facts()["read"], "since": "2026-01-13T23:00:00+00:00"})))
    assert "Only what came since the audit of 2026-01-13 23:00:00 ended; 54,000 messages before" in seen
    assert "6,000 new messages were read" in seen


def test_two_dead_of_six_thousand_are_seen() -> None:
    found = {"name": "billing", "acked": 5998, "waiting": 0, "parked": 0, "dead": 2, "reasons": {"bad": 2}}
    page = made(facts(subscriptions=[found]))
    assert re.search(r'class="tile bad"><span>dead</span><b>2</b><small>0.03 %</small>', page)
    assert "99.97 %" in page
    (width,) = re.findall(r'<rect class="s3" x="[\d.]+" width="([\d.]+)"', page)
    assert float(width) >= 1


def test_the_parts_of_a_bar_fill_it() -> None:
    for parts in (
        {"a": 5998, "b": 1, "c": 0, "d": 1},
        {"a": 1, "b": 0},
        {"a": 10**9, "b": 1, "c": 1, "d": 1},
    ):
        drawn = [each for each in stack(parts) if each["width"]]
        assert sum(each["width"] for each in drawn) == pytest.approx(100, abs=0.05)
        assert len(drawn) == sum(count > 0 for count in parts.values())
    assert not any(each["width"] for each in stack({"a": 0, "b": 0}))


def test_shares_and_durations() -> None:
    assert [share(*each) for each in ((0, 0), (0, 5), (5, 5), (1, 2), (1, 6000), (5999, 6000))] == [
        "0 %",
        "0 %",
        "100 %",
        "50 %",
        "0.02 %",
        "99.98 %",
    ]
    assert share(1, 10**9) == "less than 0.001 %"
    assert share(10**9 - 1, 10**9) == "more than 99.999 %"
    assert [duration(each) for each in (0, 0.0042, 0.5, 1, 59.4, 90, 7200, 90_000)] == [
        "0 s",
        "4.2 ms",
        "500 ms",
        "1 s",
        "59.4 s",
        "1.5 min",
        "2 h",
        "1.04 d",
    ]


def test_more_than_32_partitions_are_a_distribution() -> None:
    few, many = (
        [{**facts()["partitions"][0], "partition": at, "messages": at * 10} for at in range(count)]
        for count in (32, 33)
    )
    drawn, distributed = made(facts(partitions=few)), made(facts(partitions=many))
    said = "Partitions, by how many messages they hold"
    assert said not in drawn
    assert drawn.count('<rect class="s0" width=') == 32
    assert said in distributed
    assert '<rect class="s0" width=' not in distributed
    # Each partition is in a single column.
    assert sum(int(n) for n in re.findall(r"<title>(\d+) partitions hold", distributed)) == 33
    equal = [{**each, "messages": 7} for each in many]
    assert "<title>33 partitions hold 7 to 7 messages" in made(facts(partitions=equal))


def test_a_finding_links_to_its_record() -> None:
    changed = {"ok": False, "steps": {"ids": {"gap": 2}}}
    changed |= {"findings": [finding(topic="a b"), finding(offset=-1)]}
    link = "https://ui.example.org/{topic}?p={partition}&o={offset}"
    page = made(facts(**changed), link)
    assert '<a href="https://ui.example.org/a%20b?p=1&amp;o=7">a b 1:7</a>' in page
    # It stands for a partition: there is no record.
    assert '<a href="#finding-2">orders 1</a>' in page
    assert 'id="finding-2"' in page
    assert '<a href="#finding-1">a b 1:7</a>' in made(facts(**changed))


def test_a_link_that_can_t_be_one_is_refused() -> None:
    for wrong, said in (
        ("javascript:alert('{topic}{partition}{offset}')", "isn't an address"),
        ("https://ui.example.org/{topic}", "lacks {partition}, {offset}"),
    ):
        with pytest.raises(click.BadParameter, match=re.escape(said)):
            LINK.convert(wrong, None, None)


def test_plots_of_the_rate_and_of_the_way_to_the_archive() -> None:
    over = {"begins_s": 1768381200, "step_s": 60, "p50": [1.0, None, 2.0, 0.0], "p99": [9.0, None, 90.0, 9.0]}
    delays = {"messages": 6000, "p50": 1.0, "p90": 2.0, "p99": 90.0, "max": 90.0, "over_time": over}
    delays["below"] = {"1": 4000, "10": 5998, "60": 5998, "600": 6000}
    archive = {"path": "/data/archive", "behind": {"0": 12}, "delays": delays}
    archive["taken_out"] = {"before": "2026-01-14", "keys": 2}
    page = made(facts(archive=archive))
    assert "2026-01-14 09:01:00 UTC, for 1 min: 100 messages, 1.667 a second" in page
    assert page.count("<polyline") == 4
    seen = text_of(page)
    assert "up to 10 min 2" in seen
    assert "behind 12 offsets" in seen
    assert "kept from 2026-01-14" in seen
    assert "forgotten 2 keys" in seen
    # Nothing is archived yet, and no message has a time.
    nothing = {**delays, "messages": 0, "over_time": {**over, "p50": [], "p99": []}}
    empty = made(facts(archive={**archive, "delays": nothing}, rate={**facts()["rate"], "counts": []}))
    assert "<polyline" not in empty
    assert "Messages over time" not in empty


def test_what_others_wrote_is_text_and_nothing_is_loaded() -> None:
    found = {"name": HOSTILE, "acked": 1, "waiting": 0, "parked": 0, "dead": 1, "reasons": {HOSTILE: 1}}
    changed = {"ok": False, "steps": {HOSTILE: {HOSTILE: 1}}, "advice": {HOSTILE: HOSTILE}}
    finding_ = finding(kind=HOSTILE, key=HOSTILE, said=HOSTILE, topic=HOSTILE, step=HOSTILE)
    page = made(facts(**changed, topic=HOSTILE, subscriptions=[found], findings=[finding_]))
    assert "<script" not in page
    assert page.count("&lt;script&gt;") >= 8
    assert not re.search(r"https?:|url\(|@import|src=", page)
    assert "default-src 'none'" in page
    for part in (page, made(facts())):
        opened = re.findall(r"<(div|span|section|table|tr|td|svg|dl|figure|p|h3|details)\b", part)
        closed = re.findall(r"</(div|span|section|table|tr|td|svg|dl|figure|p|h3|details)>", part)
        assert sorted(opened) == sorted(closed)


def test_the_spans_of_a_plot_are_round_and_cover_all_times() -> None:
    need_spark()
    from spark.audit.rates import spans_of

    assert spans_of(1500, 1500) == (1, 1, 1)
    assert spans_of(0, 119_999) == (0, 1, 120)
    assert spans_of(1000, 121_000) == (0, 2, 61)
    # The latest time may be that of the first record, and later records are older.
    assert spans_of(5000, 4000) == (5, 1, 1)
    for days in (0.1, 1, 9, 100, 4000, 400_000):
        begins, step, number = spans_of(999, int(days * 86_400_000))
        assert number <= 120
        assert begins <= 0 < begins + step
        assert begins + step * (number - 1) <= days * 86_400 < begins + step * number
