"""The history checker: holds what all processes told of themselves against what was promised.

    python -m tests.checker DIRECTORY_OR_FILES...        0: all promises kept, 1: violated, 2: can't be checked
    tests.checker.verdict.judge(directory, Settings(...)) the same as a function; gives a `LeaseOutcome`
    tests.checker.check.check(paths, Settings(...))       of one subscription's files; gives a `Report`

What goes in: the files of a subscription - of each stream, each publisher of its topic, and the test's driver - as
`kafka_pubsub.history.history` writes them; the format is at the head of that file. Processes write them by themselves
with `KAFKA_PUBSUB_HISTORY=directory`. The driver must tell of every
process that it kills (`crash`), stops and continues, of what it does to the network (`fault`, `mend`) and of replays;
what is wrong and wasn't told of is a violation. Without a `subscribe` everything in the topic must be delivered.

How it is proved
1. Inside an ownership - one epoch of one partition in one process - the order of the file is enough: what the state
   that it read calls finished, and what was acked under it, is finished; of each key only the oldest message that
   isn't may begin; a commit may only say what is finished (`ownership`).
2. Ownerships are joined by what they read and wrote: each state that is read was written by somebody, and accepted
   commits form a chain without forks (`states`). So the order of a key holds over all processes, and no clock is asked.
3. A message that begins again needs a cause: nack, expiry, the rest of a run, replay, or the end of the ownership that
   had it; and it must not have been in an accepted commit (`judge`).
4. Clocks are asked for overlaps between processes, late owners, due times and uncommitted acks only. Processes of one
   host share a clock; between hosts what might be skew is no violation (`times`, `reading`).

What it finds is listed in `report.KINDS`; each is planted into valid histories by `plants`, and must be caught.

What it can't see
- an ack that was never logged, or a handler that lies: it knows what the processes told, not what they did;
- a filter, compaction, retention, a seek, a repartitioning: it expects every published message, from one log, for ever;
- messages of other publishers: what was delivered and never sent is a violation;
- whether a dead letter or a retry record has the right bytes, unless it is delivered;
- a move without an answer whose record nobody ever touched is seen as a loss only, not as what it was;
- between hosts: whatever is shorter than the skew;
- whether a key was delivered as soon as it might have been, and memory: those are measured, not checked.
"""
