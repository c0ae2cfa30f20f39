"""The broker has forgotten how far sequencers were: nothing is delivered again."""

from __future__ import annotations

import pytest

from kafka_pubsub import PubSub
from kafka_pubsub.core.multicast.layout import GROUP
from kafka_pubsub.errors import FailedPrecondition
from kafka_pubsub.local.broker import LocalKafka
from kafka_pubsub.services.sequencer import Sequencer
from tests.integration.multicast.test_dead_letters import log
from tests.support import until

#: Seconds for one answer on a busy machine.
PATIENCE = 60.0


def test_a_sequencer_refuses_to_guess() -> None:
    names = ["a", "b"]
    with LocalKafka() as broker, PubSub(broker.bootstrap) as ps:
        for name in names:
            ps.create_topic(name, causal=True)
        with Sequencer(ps):
            ps.publish_multi(names, b"1").result(PATIENCE)
            until(lambda: all([each.value() for each in log(broker, name)] == [b"1"] for name in names))
        until(lambda: ps.sequencers() == 0, "an empty group")
        ps._cluster.backend.admin.delete_group(GROUP)
        with Sequencer(ps) as again, pytest.raises(FailedPrecondition, match="make the topic again"):
            again.wait_until_running(10.0)
        for name in names:
            assert [each.value() for each in log(broker, name)] == [b"1"]
