"""`service router`: a service in the foreground."""

from __future__ import annotations

import json
import threading
from typing import Any, cast

import pytest

from kafka_pubsub.cli import service
from kafka_pubsub.delays.service import DelayRouter
from kafka_pubsub.services.signals import StopFlag
from tests.support import until
from tests.unit.cli.conftest import CommandLine


def test_the_router_says_what_it_does_until_it_is_stopped(
    run: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = StopFlag()
    said: list[str] = []
    monkeypatch.setattr(service, "_LOOK", 0.05)

    class Output:
        def line(self, data: bytes) -> None:
            said.append(data.decode())

    with DelayRouter(run.pubsub, tiers=3, partitions=1) as router:
        watch = service._Watch(cast("Any", Output()), [router], as_json=True)

        def watching() -> None:
            while not stop.is_set():
                watch.look()
                stop.wait(service._LOOK)

        thread = threading.Thread(target=watching)
        thread.start()
        until(lambda: any('"running"' in line for line in said))
        stop.set()
        thread.join()
    assert json.loads(said[-1])["partitions"] == 1
