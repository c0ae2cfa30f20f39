"""The scenario of figures and spans, for `scenarios`: what watching costs, and how soon it tells."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tests.benchmarks.figures import Parameter, Row, Scenario, Target

__all__ = ["ALL"]

_OURS, _OBSERVED = "tests.benchmarks.rows.ours:", "tests.benchmarks.rows.observed:"
_LOG: dict[str, Parameter] = {"bootstrap": "{bootstrap}", "topic": "{topic}"}
_READ: dict[str, Parameter] = {**_LOG, "group": "{group}", "patience": 300}


def _observed(quick: bool) -> Scenario:
    # Some ten seconds each, so that ten scrapes fall into a measure.
    warmup, measured = (2_000, 20_000) if quick else (100_000, 5_000_000)
    pull: dict[str, Parameter] = {**_READ, "warmup": warmup, "measured": measured}
    publish: dict[str, Parameter] = {
        **_LOG,
        "distinct": 1000,
        "warmup": 500 if quick else 20_000,
        "measured": 5_000 if quick else 2_000_000,
    }
    spans: dict[str, Parameter] = {**_READ, "warmup": 500, "measured": 2_000 if quick else 50_000}
    scrape: dict[str, Parameter] = {
        **_LOG,
        "partitions": 50 if quick else 1000,
        "scrapes": 5 if quick else 50,
    }
    return Scenario(
        "observed",
        "What it costs to be watched, and how soon an alert comes",
        f"pull: {measured:,} messages of 1 KB after a warm-up of {warmup:,}; publish: {publish['measured']:,}; metrics "
        "scraped each second by another process; the alert by a Prometheus that scrapes each 10 s",
        {
            "rate": "msg/s",
            "send_us": "us a send",
            "process_us": "us a delivery",
            "scrape_ms": "ms a scrape",
            "alert_s": "s to the alert",
        },
        [
            Row("pull", "pull", f"{_OURS}pull", True, "", pull),
            Row("pull-scraped", "pull, scraped each second", f"{_OBSERVED}pull_scraped", True, "pull", pull),
            Row(
                "pull-api",
                "pull, instrumented without an SDK",
                f"{_OBSERVED}pull_with_api",
                True,
                "pull",
                pull,
            ),
            Row("publish", "publish", f"{_OBSERVED}publish", True, "", publish),
            Row(
                "publish-scraped",
                "publish, scraped each second",
                f"{_OBSERVED}publish_scraped",
                True,
                "publish",
                publish,
            ),
            Row(
                "publish-api",
                "publish, instrumented without an SDK",
                f"{_OBSERVED}publish_with_api",
                True,
                "publish",
                publish,
            ),
            Row("spans", "spans, exported to nowhere", f"{_OBSERVED}spans", True, "", spans),
            Row(
                "scrape",
                f"a scrape of {scrape['partitions']:,} partitions",
                f"{_OBSERVED}scrape",
                True,
                "",
                scrape,
            ),
            Row(
                "alert",
                "kill -9 of the only process that receives",
                f"{_OBSERVED}alert",
                True,
                "",
                {**_LOG, "group": "{group}"},
            ),
        ],
        [
            Target("pull scraped: 97 %", "pull-scraped", "rate", at_least=0.97, beside="pull"),
            Target("publish scraped: 97 %", "publish-scraped", "rate", at_least=0.97, beside="publish"),
            Target("pull without an SDK: 98 %", "pull-api", "rate", at_least=0.98, beside="pull"),
            Target("publish without an SDK: 98 %", "publish-api", "rate", at_least=0.98, beside="publish"),
            Target("a span of a send: 30 us", "spans", "send_us", at_most=30),
            Target("a span of a delivery: 30 us", "spans", "process_us", at_most=30),
            Target("a scrape: 50 ms", "scrape", "scrape_ms", at_most=50),
            Target("the alert: 60 s", "alert", "alert_s", at_most=60),
        ],
        "tests.benchmarks.cluster:prepare",
        {**_LOG, "distinct": 1000, "messages": warmup + measured},
    )


ALL: Mapping[str, Callable[[bool], Scenario]] = {"observed": _observed}
