"""The Python blocks of README and of the pages on what clients do run, from the top of each page.

docs/spark.md and docs/spark-job.md run in tests/spark/session/test_docs.py.
"""

from __future__ import annotations

import re
import sys
from contextlib import nullcontext, suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kafka_pubsub import DelayRouter, PubSub, Sequencer

ROOT = Path(__file__).resolve().parents[3]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def the_readers_own() -> dict[str, Any]:
    """What the pages take for granted: functions and errors of the reader's program."""
    own: dict[str, Any] = dict.fromkeys(
        ("charge", "write_to_database", "log_it", "work", "undo"), lambda *_: None
    )
    for name in ("CardRefused", "BankUnreachable"):
        own[name] = type(name, (Exception,), {})
    return own


@pytest.mark.parametrize(
    ("page", "blocks"), [("docs/publishing.md", 2), ("docs/ordering.md", 1), ("docs/existing-topic.md", 1)]
)
def test_the_blocks_of_a_page_run(page: str, blocks: int) -> None:
    with PubSub.in_memory() as ps:
        if page != "docs/ordering.md":
            ps.create_topic("orders")
        if page == "docs/existing-topic.md":
            ps.create_subscription("billing", "orders")
        assert run_blocks(page, ps) == blocks


def test_the_blocks_of_the_page_on_redelivery_run() -> None:
    with PubSub.in_memory() as ps:
        assert run_blocks("docs/redelivery.md", ps) >= 9
        made = {"audit", "billing", "failed-orders", "last-hour", "payments"}
        assert {each.name for each in ps.list_subscriptions()} == made
        assert ps.subscription("billing").state().lag == 3


def test_the_blocks_of_the_page_on_delays_run() -> None:
    with PubSub.in_memory() as ps, DelayRouter(ps):
        assert run_blocks("docs/delays.md", ps) == 4
        assert [each.topic for each in ps.delays.waiting()] == ["orders"] * 3


def test_the_blocks_of_the_page_on_lanes_run() -> None:
    with PubSub.in_memory() as ps:
        assert run_blocks("docs/lanes.md", ps) == 4
        assert set(ps.topic("jobs").lanes) == {"jobs", "jobs.lane.p1", "jobs.lane.p9", "jobs.lane.t9"}
        assert ps.subscription("billing").state().lag == 0


def test_the_blocks_of_the_page_on_multicast_run() -> None:
    with PubSub.in_memory() as ps, Sequencer(ps):
        assert run_blocks("docs/multicast.md", ps) == 3
        assert {each.name for each in ps.list_topics()} == {"billing", "audit"}


def test_the_handler_of_the_readme_passes_its_test(monkeypatch: pytest.MonkeyPatch) -> None:
    handler, test = BLOCK.findall((ROOT / "README.md").read_text(encoding="utf-8"))
    shop = ModuleType("shop")
    monkeypatch.setitem(sys.modules, "shop", shop)
    exec(compile(handler, "README.md", "exec"), vars(shop))
    names: dict[str, Any] = {}
    exec(compile(test, "README.md", "exec"), names)
    names["test_an_order_is_charged"]()


def run_blocks(page: str, ps: PubSub) -> int:
    """Runs the blocks, over `ps`; returns how many there are."""
    names: dict[str, Any] = {
        **the_readers_own(),
        "ps": ps,
        "nullcontext": nullcontext,
        "input": lambda _: None,
    }
    blocks = BLOCK.findall((ROOT / page).read_text(encoding="utf-8"))
    blocks = [text for text in blocks if "kafka_pubsub_spark" not in text]
    for text in blocks:
        here = re.sub(r"with PubSub\([^)]*\) as ps", "with nullcontext(ps) as ps", text)
        here = re.sub(r"^ps = PubSub\([^)]*\)$", "", here, flags=re.MULTILINE)
        # In memory an answer comes at once; these pages wait until none comes any more.
        here = re.sub(r"(stream\.result\(|receive\(100, )timeout=\d+", r"\1timeout=1", here)
        # A block that receives until there is an error says so, and ends in a test by its time-out.
        with suppress(TimeoutError) if "# TimeoutError while" in here else nullcontext():
            exec(compile(here, page, "exec"), names)
    return len(blocks)
