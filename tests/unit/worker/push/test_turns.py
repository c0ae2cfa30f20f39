"""Turns: as many requests as the pace allows, in the order in which their messages came."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_pubsub.handlers.outcomes import Retry
from kafka_pubsub.worker.push.pace import Pace
from kafka_pubsub.worker.push.turns import Turns


def never() -> bool:
    return False


async def steps() -> None:
    """Lets every task that can go on do so."""
    for _ in range(5):
        await asyncio.sleep(0)


def on_loop(test: Callable[[], Coroutine[object, object, None]]) -> None:
    asyncio.run(test())


#: Mostly beginnings, so that some wait.
EVENTS = st.sampled_from(["begin", "begin", "begin", "begin", "succeed", "fail", "abandon", "cancel"])


@settings(max_examples=200)
@given(st.integers(1, 6), st.lists(EVENTS, min_size=10, max_size=60))
def test_no_more_begin_than_the_pace_allows_and_none_is_forgotten(most: int, events: list[str]) -> None:
    async def run() -> None:
        turns = Turns(Pace.first(most))
        waiting, running, begun, came = list[asyncio.Task[None]](), 0, list[int](), 0

        async def begin(number: int) -> None:
            await turns.begin(never)
            begun.append(number)

        for event in events:
            before = len(begun)
            if event == "begin":
                waiting.append(asyncio.create_task(begin(came)))
                came += 1
            elif event == "cancel" and (open_ones := [each for each in waiting if not each.done()]):
                open_ones[0].cancel()
            elif running:
                if event != "abandon":
                    turns.note(ok=event == "succeed", pause=None)
                turns.end()
                running -= 1
            await steps()
            running += len(begun) - before
            open_ones = [each for each in waiting if not each.done()]
            assert len(begun) == before or running <= turns.pace.now
            assert not open_ones or running >= turns.pace.now, "one waits, and another could begin"
        assert begun == sorted(begun)
        for each in waiting:
            each.cancel()

    on_loop(run)


def test_a_message_whose_lease_has_ended_gives_its_turn_to_the_next() -> None:
    async def run() -> None:
        turns = Turns(Pace.first(1))
        await turns.begin(never)
        over = asyncio.create_task(turns.begin(lambda: True))
        await steps()
        after = asyncio.create_task(turns.begin(never))
        await steps()
        turns.end()
        with pytest.raises(Retry):
            await over
        await after

    on_loop(run)


def test_nothing_begins_during_a_pause_and_everything_after_it() -> None:
    async def run() -> None:
        turns = Turns(Pace.first(4))
        turns.note(ok=False, pause=0.05)
        tasks = [asyncio.create_task(turns.begin(never)) for _ in range(3)]
        await steps()
        assert turns.is_paused
        assert not any(each.done() for each in tasks)
        await asyncio.wait_for(asyncio.gather(*tasks), 30)
        assert not turns.is_paused

    on_loop(run)


def test_a_message_that_comes_when_a_pause_is_just_over_is_behind_those_that_wait() -> None:
    async def run() -> None:
        turns, begun = Turns(Pace.first(4)), list[str]()

        async def begin(name: str) -> None:
            await turns.begin(never)
            begun.append(name)

        turns.note(ok=True, pause=3600)
        first = asyncio.create_task(begin("first"))
        await steps()
        turns.pace = Pace.first(4)
        second = asyncio.create_task(begin("second"))
        await steps()
        turns.note(ok=True, pause=None)
        await asyncio.wait_for(asyncio.gather(first, second), 30)
        assert begun == ["first", "second"]

    on_loop(run)


def test_a_request_that_ends_without_an_answer_lets_the_next_begin() -> None:
    async def run() -> None:
        turns = Turns(Pace.first(1))
        await turns.begin(never)
        after = asyncio.create_task(turns.begin(never))
        await steps()
        turns.end()
        await steps()
        assert after.done()

    on_loop(run)


def test_an_answer_that_raises_the_pace_lets_more_begin() -> None:
    async def run() -> None:
        turns = Turns(Pace(8, 1))
        await turns.begin(never)
        tasks = [asyncio.create_task(turns.begin(never)) for _ in range(3)]
        await steps()
        turns.end()
        await steps()
        assert [each.done() for each in tasks] == [True, False, False]
        turns.note(ok=True, pause=None)
        await steps()
        assert [each.done() for each in tasks] == [True, True, False]
        tasks[2].cancel()

    on_loop(run)
