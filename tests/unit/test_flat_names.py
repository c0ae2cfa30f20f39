"""The old names of what `ps.delays` and `ps.multicast` have now: they work, and warn."""

from __future__ import annotations

import asyncio
import inspect

import pytest

from kafka_pubsub import PubSub, aio
from kafka_pubsub.aio import services
from kafka_pubsub.delays.calls import Delays
from kafka_pubsub.flat_names import FlatNames
from kafka_pubsub.multicast.calls import CausalTopics

OLD = sorted(name for name in vars(FlatNames) if not name.startswith("_"))


@pytest.mark.parametrize("name", OLD)
def test_an_old_name_is_there_and_warns_with_the_new_one(name: str) -> None:
    with (
        PubSub.in_memory() as ps,
        pytest.warns(DeprecationWarning, match=rf"PubSub\.{name} is PubSub\.\w+\.\w+ now"),
    ):
        assert callable(getattr(ps, name))


def test_old_names_do_what_the_new_ones_do() -> None:
    with PubSub.in_memory() as ps:
        topic = ps.create_topic("orders")
        message_id = topic.publish(b"later", delay=60).result(10)
        with pytest.warns(DeprecationWarning, match="delayed_messages"):
            assert [each.message_id for each in ps.delayed_messages()] == [message_id]
        with pytest.warns(DeprecationWarning, match="cancel_delayed"):
            assert ps.cancel_delayed(message_id) is True
        assert list(ps.delays.waiting()) == []


def test_a_loop_has_the_old_names_too() -> None:
    async def work() -> None:
        async with aio.PubSub.in_memory() as ps:
            with pytest.warns(
                DeprecationWarning, match=r"PubSub\.delay_routers is PubSub\.delays\.routers now"
            ):
                assert await ps.delay_routers() == await ps.delays.routers()
            for name in OLD:
                with pytest.warns(DeprecationWarning, match=name):
                    assert callable(getattr(ps, name))

    asyncio.run(work())


@pytest.mark.parametrize(
    ("sync", "copy"),
    [(Delays, services.Delays), (CausalTopics, services.CausalTopics)],
    ids=lambda each: each.__name__,
)
def test_each_group_has_an_asyncio_version_with_the_same_methods(sync: type, copy: type) -> None:
    for name, method in inspect.getmembers(sync, inspect.isfunction):
        if not name.startswith("_"):
            mine = list(inspect.signature(getattr(copy, name)).parameters)
            assert mine == list(inspect.signature(method).parameters), name
