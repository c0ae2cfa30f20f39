"""The trial lock, which all streams of this process on one subscription share: one suspect runs at a time.

Two streams that tried a suspect each would share the blame for a crash, and an innocent message would be dead-lettered.
"""

from __future__ import annotations

import threading
from weakref import WeakValueDictionary

from kafka_pubsub.config import SubscriptionRecord
from kafka_pubsub.subscribe.partition.crash_suspects import TrialLock

__all__ = ["turn_of"]

_making = threading.Lock()
#: By topic id and name: a process may read subscriptions of the same name in several clusters.
_turns: WeakValueDictionary[tuple[str, str], TrialLock] = WeakValueDictionary()


def turn_of(record: SubscriptionRecord) -> TrialLock:
    """Returns the trial lock of the subscription in this process."""
    with _making:
        return _turns.setdefault((record.topic_id, record.name), TrialLock())
