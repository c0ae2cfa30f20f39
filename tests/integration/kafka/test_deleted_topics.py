"""Requests about topics that come and go, from several threads of a client: the process survives them."""

from __future__ import annotations

import subprocess
import sys

from kafka_pubsub.local import LocalKafka

#: Seconds. Without the lock of `LockedAdminClient` the heap was corrupted within a minute, mostly sooner.
SECONDS = 15

PROGRAM = """
import sys, threading, time
from kafka_pubsub.log.kafka.backend import KafkaBackend
from kafka_pubsub.model import TopicPartition

asking, making = KafkaBackend(sys.argv[1]), KafkaBackend(sys.argv[1])
end = time.monotonic() + float(sys.argv[2])
names, failed = [], []

def guarded(work):
    def run():
        try:
            while time.monotonic() < end:
                work()
        except BaseException as error:
            failed.append(error)
    return threading.Thread(target=run)

def make_and_delete():
    name = f"short-lived-{time.time_ns()}"
    making.admin.create_topic(name, 2, None, {})
    names[:] = [*names[-2:], name]
    making.admin.delete_topic(name)

def ask_for_ends():
    asking.admin.ends.find_one_by_one([TopicPartition(each, n) for each in names for n in range(2)], 3.0)

def ask_for_names():
    asking.admin.topic_names()

threads = [guarded(each) for each in (make_and_delete, ask_for_ends, ask_for_ends, ask_for_names)]
for each in threads:
    each.start()
for each in threads:
    each.join()
asking.close(), making.close()
assert not failed, failed
"""


def test_a_process_that_asks_about_topics_while_they_are_deleted_survives(kafka: LocalKafka) -> None:
    command = [sys.executable, "-X", "faulthandler", "-c", PROGRAM, kafka.bootstrap, str(SECONDS)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert ran.returncode == 0, ran.stderr[-4000:]
