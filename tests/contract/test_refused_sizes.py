"""Transactions of many small records to a topic that takes little at once."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from kafka_pubsub.model import Committed, Ending, NewRecord, Outcome
from tests.contract.test_transactions import Scene
from tests.contract.world import World, until


@pytest.mark.parametrize("locate", [True, False])
@pytest.mark.parametrize("limit", [100_000, 2_000])
def test_only_records_that_no_batch_of_their_own_could_carry_are_refused_for_their_size(
    world: World, locate: bool, limit: int
) -> None:
    """Small records of a transaction are together far larger than a batch that their topic takes."""
    scene, writer = Scene(world), world.transactions()
    world.backend.admin.update_topic(scene.retry, {"max.message.bytes": str(limit)})
    noise = random.Random(1)
    records = scene.records(*(noise.randbytes(limit // 10) for _ in range(50)))
    large = scene.records(noise.randbytes(limit + 1000))

    def transact(given: Sequence[NewRecord]) -> Outcome:
        positions = {scene.at: Committed(1, "")}
        return writer.transact(given, positions, scene.membership, locate=locate)

    tries: list[Outcome] = []
    while not tries or not tries[-1].refused:
        tries.append(transact([*records, *large]))
        assert len(tries) <= 3, tries
    assert set(tries[-1].refused) == {len(records)}
    assert transact(records).ending is Ending.STORED
    assert transact(records[:2]).ending is Ending.STORED
    until(lambda: len(scene.member.records) == 52, scene.member)
    assert scene.member.values() == [record.value for record in [*records, *records[:2]]]
