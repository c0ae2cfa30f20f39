"""Receiving from one subscription: the coordinator of its partitions, and what its threads share.

Begin with `coordinator.py`. `partition/` decides, `stream/` reads and runs, `workers/` call callbacks, `takeover/`
begins and gives up partitions, `retry_topic/` moves messages and reads them back, `admin/` makes subscriptions.
"""
