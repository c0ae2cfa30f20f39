"""The Python blocks of README and of the pages on publishing, ordering and redelivery run, from the top of each page.

docs/spark.md and docs/spark-job.md run in tests/spark/session/test_docs.py.
"""

from __future__ import annotations

import re
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from kafka_pubsub import PubSub

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
    ("page", "blocks"), [("README.md", 1), ("docs/publishing.md", 2), ("docs/ordering.md", 1)]
)
def test_the_blocks_of_a_page_run(page: str, blocks: int) -> None:
    with PubSub.in_memory() as ps:
        if page == "docs/publishing.md":
            ps.create_topic("orders")
        assert run_blocks(page, ps) == blocks


def test_the_blocks_of_the_page_on_redelivery_run() -> None:
    with PubSub.in_memory() as ps:
        assert run_blocks("docs/redelivery.md", ps) >= 9
        assert {each.name for each in ps.list_subscriptions()} == {"billing", "failed-orders", "payments"}
        assert ps.subscription("billing").state().lag == 3


def run_blocks(page: str, ps: PubSub) -> int:
    """Runs the blocks, over `ps`; returns how many there are."""
    names: dict[str, Any] = {**the_readers_own(), "ps": ps, "nullcontext": nullcontext}
    blocks = BLOCK.findall((ROOT / page).read_text(encoding="utf-8"))
    for text in blocks:
        here = text.replace("with PubSub() as ps", "with nullcontext(ps) as ps")
        # In memory an answer comes at once; these pages wait until none comes any more.
        here = re.sub(r"timeout=\d+\)", "timeout=1)", here)
        exec(compile(here, page, "exec"), names)
    return len(blocks)
