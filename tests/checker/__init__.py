"""The history checker: holds the histories of all processes against the promises.

    python -m tests.checker DIRECTORY_OR_FILES...        0: all promises kept, 1: violated, 2: can't be checked
    tests.checker.judgement.judge(directory, Settings(...)) the same as a function; gives a `LeaseOutcome`
    tests.checker.check.check(paths, Settings(...))       of a subscription's files; gives a `Report`

Input: the files of a subscription - of each stream, each publisher of its topic, and the test's driver - as
`kafka_pubsub.history.history` writes them; the format is at the head of that file. Processes write them by themselves
with `KAFKA_PUBSUB_HISTORY=directory`. The driver must tell of every
process that it kills (`crash`), stops and continues, of each fault of the network (`fault`, `mend`) and of replays;
a fault that wasn't told of is a violation. Without a `subscribe` everything in the topic must be delivered.

The proof
1. Inside an ownership - an epoch of a partition in a process - the order of the file is enough: messages that the state
   that was read calls finished, and messages acked under the ownership, are finished; of each key only the oldest
   unfinished message may begin; a commit may only name finished messages (`ownership`).
2. Ownerships are joined by reads and writes: each state that is read was written by somebody, and accepted
   commits form a chain without forks (`states`). So the order of a key holds over all processes, and no clock is asked.
3. A message that begins again needs a cause: nack, expiry, the rest of a run, replay, or the end of the ownership that
   had the message; and the message must not have been in an accepted commit (`judge`). A message that its callback gave
   up is moved as that, and begins again after a release or a replay only.
4. Clocks are asked for overlaps between processes, late owners, due times and uncommitted acks only. Processes of a
   host share a clock; between hosts a difference within the skew is no violation (`times`, `reading`).

`report.KINDS` lists the findings; each is planted into valid histories by `plants`, and must be caught.

Out of its sight
- an ack that was never logged, or a handler that lies: the checker knows the histories, not the deeds;
- a filter, compaction, retention, a seek, a repartitioning: every published message is expected, from a log, for ever;
- messages of other publishers: a message that was delivered and never sent is a violation;
- whether a dead letter or a retry record has the right bytes, unless the record is delivered;
- a move without an answer whose record nobody ever touched is reported as a loss only;
- between hosts: whatever is shorter than the skew;
- whether a key was delivered as soon as possible, and memory: benchmarks measure these.
"""
