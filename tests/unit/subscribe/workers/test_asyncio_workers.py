"""Coroutine callbacks: a task for each lease; cancelled, failing and closed loops give every key back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from kafka_pubsub import Message
from kafka_pubsub.subscribe.partition.events import LeaseOutcome, LeaseReport
from kafka_pubsub.subscribe.workers.asyncio_workers import AsyncioWorkers
from tests.unit.subscribe.workers.holding import PATIENCE, Reported, lease_of

Handle = Callable[[Message], Awaitable[object]]


async def ack(message: Message) -> None:
    await asyncio.sleep(0)
    message.ack()


def run(
    work: Callable[[AsyncioWorkers, Reported], Awaitable[object]], callback: Handle, workers: int = 100
) -> list[LeaseReport]:
    """Runs `work` on a loop of its own; returns what was released in the end."""
    reports = Reported()

    async def main() -> None:
        worker_pool = AsyncioWorkers(callback, asyncio.get_running_loop(), workers, reports)
        await asyncio.wait_for(work(worker_pool, reports), PATIENCE)

    asyncio.run(main())
    return reports.releases


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0)


def test_leases_run_beside_each_other_and_each_in_its_order() -> None:
    seen: dict[bytes | None, list[int]] = {}
    beside: set[bytes | None] = set()
    most = 0

    async def handle(message: Message) -> None:
        nonlocal most
        assert message.key not in beside
        beside.add(message.key)
        most = max(most, len(beside))
        await asyncio.sleep(0)
        seen.setdefault(message.key, []).append(message.offset)
        message.ack()
        beside.discard(message.key)

    async def work(worker_pool: AsyncioWorkers, reports: Reported) -> None:
        worker_pool.take([lease_of(10 * number, 10, b"%d" % number) for number in range(20)])
        assert worker_pool.wants(1000) == 80
        await until(lambda: len(reports.releases) == 20)
        assert worker_pool.wants(1000) == 100
        assert worker_pool.close(0)

    releases = run(work, handle)
    assert {(release.done, release.outcome) for release in releases} == {(10, LeaseOutcome.FINISHED)}
    assert all(offsets == sorted(offsets) and len(offsets) == 10 for offsets in seen.values())
    assert most == 20


def test_leases_that_end_in_one_turn_of_the_loop_are_reported_together() -> None:
    together = list[int]()

    class Counted(Reported):
        def released(self, *releases: LeaseReport) -> None:
            together.append(len(releases))
            super().released(*releases)

    async def handle(message: Message) -> None:
        message.ack()
        if message.offset == 9:
            raise RuntimeError("it acked before")

    async def main() -> None:
        reports = Counted()
        worker_pool = AsyncioWorkers(handle, asyncio.get_running_loop(), 100, reports)
        worker_pool.take([lease_of(10 * number, 10, b"%d" % number) for number in range(20)])
        await asyncio.wait_for(until(lambda: len(reports.releases) == 20), PATIENCE)
        assert worker_pool.close(0)

    asyncio.run(main())
    assert together == [20]


def test_a_coroutine_that_raises_or_says_nothing_ends_its_lease() -> None:
    async def handle(message: Message) -> None:
        if message.offset == 0:
            raise RuntimeError("no")

    async def work(worker_pool: AsyncioWorkers, reports: Reported) -> None:
        worker_pool.take([lease_of(0, 2, b"a"), lease_of(2, 2, b"b")])
        await until(lambda: len(reports.releases) == 2)

    outcomes = {release.lease.key: release.outcome for release in run(work, handle)}
    assert outcomes == {b"a": LeaseOutcome.NACKED, b"b": LeaseOutcome.KEPT}


def test_a_cancelled_task_nacks_its_message_and_keeps_what_was_acked() -> None:
    async def handle(message: Message) -> None:
        if message.offset == 1:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(0)
        message.ack()

    async def work(worker_pool: AsyncioWorkers, reports: Reported) -> None:
        worker_pool.take([lease_of(0, 3)])
        await until(lambda: bool(reports.releases))
        assert worker_pool.close(0)

    (release,) = run(work, handle)
    assert (release.done, release.outcome) == (1, LeaseOutcome.NACKED)


def test_a_task_that_is_cancelled_before_its_first_step_gives_its_key_back() -> None:
    cancelled: list[bool] = []

    async def work(worker_pool: AsyncioWorkers, reports: Reported) -> None:
        loop = asyncio.get_running_loop()
        before = asyncio.all_tasks()

        def cancel() -> None:  # in the step of the loop that has made the task
            cancelled.extend(task.cancel() for task in asyncio.all_tasks(loop) - before)

        worker_pool.take([lease_of(0, 3)])
        loop.call_soon(cancel)
        await until(lambda: bool(reports.releases))
        assert worker_pool.close(0)

    async def handle(message: Message) -> None:
        raise AssertionError("begun")

    (release,) = run(work, handle)
    assert cancelled == [True]
    assert (release.done, release.outcome) == (0, LeaseOutcome.UNTOUCHED)


def test_a_loop_that_was_closed_gives_everything_back_untouched() -> None:
    reports = Reported()
    loop = asyncio.new_event_loop()
    loop.close()
    worker_pool = AsyncioWorkers(ack, loop, 10, reports)
    worker_pool.take([lease_of(0, 2, b"a"), lease_of(2, 1, b"b")])
    assert [release.outcome for release in reports.releases] == [LeaseOutcome.UNTOUCHED] * 2
    assert worker_pool.wants(100) == 10
    assert worker_pool.close(0)


def test_what_stops_a_loop_keeps_what_was_acked() -> None:
    reports = Reported()

    async def handle(message: Message) -> None:
        if message.offset == 2:
            raise SystemExit
        message.ack()

    async def main() -> None:
        worker_pool = AsyncioWorkers(handle, asyncio.get_running_loop(), 10, reports)
        worker_pool.take([lease_of(0, 4)])
        await asyncio.Event().wait()

    try:
        asyncio.run(main())
    except SystemExit:
        pass
    else:
        raise AssertionError("the loop went on")
    (release,) = reports.releases
    assert (release.done, release.outcome) == (2, LeaseOutcome.NACKED)


def test_closing_says_when_a_task_does_not_end() -> None:
    async def work(worker_pool: AsyncioWorkers, reports: Reported) -> None:
        worker_pool.take([lease_of(0, 1)])
        await until(lambda: bool(list(worker_pool.running())))
        assert not worker_pool.close(0.0)
        go.set()
        await until(lambda: bool(reports.releases))
        assert worker_pool.close(0)

    go = asyncio.Event()

    async def handle(message: Message) -> None:
        await go.wait()
        message.ack()

    (release,) = run(work, handle)
    assert release.outcome is LeaseOutcome.FINISHED
