"""The second reading: every event, in a single order, against the books.

Events between processes are judged here: whose ownership counts, which overlaps and redeliveries something
explains. Events inside an ownership are judged in `ownership`, stored states in `states`.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence

from tests.checker.ownership import ACKED, FINISHED, MOVED, REJECTED, Again, Lease, Ownership
from tests.checker.reading import Event, History, Order
from tests.checker.reading import read as read_file
from tests.checker.report import Report, Violation
from tests.checker.running import Handler, Running
from tests.checker.settings import Settings
from tests.checker.states import Chain, Standing
from tests.checker.survey import NO_KEY, Log, Survey, standing_id
from tests.checker.times import Times
from tests.checker.writing import ACK, DEAD_LETTER, PARKED, Writing

__all__ = ["Judge"]

_KNOWN_ALREADY = (b'{"event":"send"', b'{"event":"stored"', b'{"event":"failed"', b'{"event":"subscribe"')
_NO_JUDGEMENT = ("replay", "open", "close", "extend", "stale", "crash", "stop", "cont", "fault", "mend")


class Judge:
    """Goes through all events once."""

    def __init__(
        self, histories: Sequence[History], found: Survey, report: Report, settings: Settings
    ) -> None:
        self.histories, self.survey, self.report, self.settings = histories, found, report, settings
        self.times = Times(found, settings, self._seen)
        self.running = Running(self.times, report, self._found_at)
        self.writing = Writing(self)
        #: The current ownership of each history and partition.
        self.owned: dict[tuple[int, int], Ownership] = {}
        #: All of them, by history, partition and epoch.
        self.by_epoch: dict[tuple[int, int, int], Ownership] = {}
        self.ownerships: list[Ownership] = []
        #: By partition: whom the partition belongs to, as far as this has come.
        self.owners: dict[int, Ownership] = {}
        self.chains: dict[tuple[int, str], Chain] = {}
        #: By partition: the ownership, counted from 1, that delivered a message last; 0: none.
        self.delivered_by: dict[int, array[int]] = {}
        self.outcomes: dict[int, bytearray] = {}
        self.durable: dict[int, bytearray] = {}
        #: Dead letters that are replayed: their successors needn't wait for them.
        self.replayed: dict[int, set[int]] = {}
        #: Ends for which the delivery at hand is the first since.
        self.restarted: set[tuple[int, int]] = set()
        #: Attempt and due time of messages that were moved.
        self.due: dict[int, dict[int, tuple[int, int | None]]] = {}
        #: Messages in the retry topic that a callback gave up: they wait to become dead letters, or for a release.
        self.rejected: dict[int, set[int]] = {}
        #: When, where clocks differ.
        self._durable_at: dict[tuple[int, int], int] = {}
        self.history = histories[0]
        self.line, self.event, self.time = 0, Event(), 0
        for partition, log in found.logs.items():
            self._open_books(partition, log)

    def _open_books(self, partition: int, log: Log) -> None:
        delivered_by = self.delivered_by.setdefault(partition, array("i"))
        delivered_by.extend(array("i", [0]) * (len(log.key) - len(delivered_by)))
        for books in (self.outcomes, self.durable):
            book = books.setdefault(partition, bytearray())
            book.extend(log.template[len(book) :])
        self.replayed.setdefault(partition, set())
        self.rejected.setdefault(partition, set())
        self.due.setdefault(partition, {})

    def run(self) -> None:
        """Reads and judges everything."""
        kinds = {
            kind: getattr(self, f"_{kind}")
            for kind in (
                "assign",
                "revoke",
                "deliver",
                "handler_end",
                "ack",
                "nack",
                "expire",
                "durable_ack",
            )
        }
        for kind in ("relocate", "dead_letter", "commit", "answer"):
            kinds[kind] = getattr(self.writing, kind)
        kinds |= dict.fromkeys(_NO_JUDGEMENT, lambda event: None)
        events = Order(
            [(each, self._events(each)) for each in self.histories],
            self.times.waits,
            self.times.through,
            self.survey.skew,
        )
        count = 0
        for self.history, self.line, event, self.time in events:
            count += 1
            self.event = event
            try:
                take = kinds[event["event"]]
            except (KeyError, TypeError):
                self.found("malformed", "no such event")
                continue
            try:
                take(event)
            except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
                self.found("malformed", f"{type(error).__name__}: {error}")
        self.report.events += count
        self._finish()

    def _events(self, history: History) -> Iterator[tuple[int, Event]]:
        def complain(line: int, text: str) -> None:
            self.report.add(Violation("malformed", text, (history.name, line, {})))

        return read_file(history.path, _KNOWN_ALREADY, complain)

    def found(self, kind: str, text: str, *about: tuple[int, int]) -> None:
        """A promise was broken by the event at hand."""
        self.report.add(Violation(kind, text, (self.history.name, self.line, self.event), about))

    def _found_at(self, kind: str, text: str, about: tuple[int, int]) -> None:
        self.found(kind, text, about)

    # Ownership

    def chain(self, partition: int, topic: str) -> Chain:
        """The states of a topic's partition."""
        begins = self.survey.log(partition).begins if topic == "main" else 0
        return self.chains.setdefault((partition, topic), Chain(topic, begins, self.survey.skew))

    def _seen(self, partition: int, topic: str, state: int) -> bool:
        return self.chain(partition, topic).knows(state)

    def _assign(self, event: Event) -> None:
        partition, epoch = event["partition"], event["epoch"]
        span = self.times.assigned(self.history, partition)
        self._open_books(partition, self.survey.log(partition))
        mine = self.owned.get((self.history.number, partition))
        if not span.stillborn:
            self._take_over(partition, mine)
        goes_on = mine is not None and mine.epoch == epoch
        if mine is None or mine.epoch != epoch:
            mine = self._new(partition, epoch, mine)
            mine.begin(event["main"], event["retry"], event["retry_end"])
        elif mine.ended is None:
            self.found("ownership", f"{mine.name} was assigned again without having lost it")
        self.times.enter(mine, span)
        for topic in ("main", "retry"):
            if event[topic] is not None:
                self._read_state(mine, topic, event[topic], goes_on, not span.stillborn)
        mine.ended = mine.superseded = None
        if not span.stillborn:
            self.owners[partition] = mine

    def _read_state(
        self, mine: Ownership, topic: str, standing: Standing, goes_on: bool, owner: bool
    ) -> None:
        chain = self.chain(mine.partition, topic)
        before = mine.tenures.get(topic)
        mine.tenures[topic] = chain.read(mine.name, standing, self.time, self.found, owner=owner)
        another = before is not None and standing_id(chain.top(before)) != standing_id(standing)
        if another and goes_on and owner:
            text = f"{mine.name} goes on under its old epoch, but the log has another {topic} state"
            self.found("state", text)

    def _new(self, partition: int, epoch: int, old: Ownership | None) -> Ownership:
        name = f"{self.history.name} partition {partition} epoch {epoch}"
        log, retry_log = self.survey.log(partition), self.survey.retry(partition)
        mine = Ownership(len(self.ownerships) + 1, name, partition, epoch, log, retry_log)
        if old is not None:
            old.ended = self.time if old.ended is None else old.ended
            old.pointers.clear()  # the largest of its books, and nothing begins under it any more
        self.ownerships.append(mine)
        self.owned[self.history.number, partition] = self.by_epoch[self.history.number, partition, epoch] = (
            mine
        )
        self.report.ownerships += 1
        return mine

    def _take_over(self, partition: int, mine: Ownership | None) -> None:
        other = self.owners.get(partition)
        if other is None or other is mine or other.ended is not None:
            return
        if not self.times.gone(other, self.time):
            self.found("ownership", f"assigned while {other.name} owns it")
        other.superseded = (self.history.name, self.time)

    def _revoke(self, event: Event) -> None:
        mine = self.mine(event)
        if mine is None or mine.ended is not None:
            return
        mine.ended = self.time
        self.times.ended(mine)
        if not event["lost"]:
            if any(request.sent for request in mine.requests.values()):
                self.found("in_flight", f"{mine.name} was given up before the answer to its last commit")
            self.lag(mine, self.time)

    def lag(self, mine: Ownership, until: int) -> None:
        """Acks that should have been committed before their owner ended."""
        in_flight = any(request.sent for request in mine.requests.values())
        refused = mine.refused_at is not None and until - mine.refused_at < self.settings.max_lag * 1e9
        if mine.blocked_since is not None and (in_flight or refused):
            until = min(until, mine.blocked_since)
        for offset, since in mine.fresh.items():
            waited = self.times.heard(mine, since, until) / 1e9
            self.report.worst_lag = max(self.report.worst_lag, waited)
            if waited > self.settings.max_lag:
                text = f"{mine.partition}:{offset} was acked {waited:.3f} s before {mine.name} ended, never committed"
                self.found("lag", text, (mine.partition, offset))

    def mine(self, event: Event) -> Ownership | None:
        """The ownership that an event speaks of."""
        partition, epoch = event["partition"], event["epoch"]
        mine = self.by_epoch.get((self.history.number, partition, epoch))
        if mine is None:
            self.found("unowned", f"partition {partition} epoch {epoch} was never assigned to it")
        return mine

    # Deliveries

    def _deliver(self, event: Event) -> None:
        offset, attempt, batch = event["offset"], event["attempt"], event.get("batch")
        self.report.deliveries += 1
        mine = self.mine(event)
        if mine is None:
            return
        partition, log = mine.partition, mine.log
        if not 0 <= offset < len(log.key) or log.key[offset] < 0:
            self.found("phantom", f"{partition}:{offset} was never sent", (partition, offset))
            return
        if log.sha[offset] != int(event["sha"], 16):
            self.found("payload", f"{partition}:{offset} isn't what was published", (partition, offset))
        if mine.ended is not None or mine.superseded is not None:
            self._late_delivery(mine, offset)
        if mine.main[offset] & FINISHED or mine.main[offset] & MOVED or self.durable[partition][offset]:
            self._look_closer(mine, offset, event)
        last = self.delivered_by[partition][offset]
        if last:
            self._redelivered(mine, offset, attempt, last)
        self.delivered_by[partition][offset] = mine.number
        mine.leases[offset] = Lease(attempt, batch)
        if batch is not None:
            mine.take_in_run(offset, batch)
        key = log.key[offset]
        if key != NO_KEY and self.history.head["ordered"]:
            self._in_order(mine, offset, batch)
            callback = Handler(self.history, mine, offset, self.time, batch)
            self.running.begins((partition, key), callback)

    def _late_delivery(self, mine: Ownership, offset: int) -> None:
        grace = self.settings.grace_ns
        if (
            mine.ended is not None
            and self.time > mine.ended + grace
            and not self.times.trouble(mine, self.time)
        ):
            self.found("unowned", f"{mine.name} begins after its end", (mine.partition, offset))
        elif mine.superseded is not None and not self.times.excused(mine, self.time):
            text = f"{mine.name} begins after {mine.superseded[0]} took over, and should have known"
            self.found("unowned", text, (mine.partition, offset))

    def _look_closer(self, mine: Ownership, offset: int, event: Event) -> None:
        """Finished messages come again after a crossing expiry or a replay only; moved ones when they are due."""
        about = (mine.partition, offset)
        mine.forget_crossed(offset)
        if self.revives(mine, offset, event.get("retry")):
            return
        if mine.main[offset] & FINISHED:
            self.found(
                "after_ack", f"{about[0]}:{offset} begins; {mine.name} knew that it is finished", about
            )
            mine.main[offset] &= MOVED
            mine.reopen(offset)
        elif self._surely_durable(about) and not self.times.excused(mine, self.time):
            self.found("after_durable", f"{about[0]}:{offset} begins, and a commit had finished it", about)
        if mine.main[offset] & MOVED:
            self._moved(mine, offset, event)

    def is_durable(self, partition: int, offset: int) -> None:
        """An accepted commit has finished the message."""
        self.durable[partition][offset] = 1
        if self.survey.skew:
            self._durable_at[partition, offset] = self.time

    def _surely_durable(self, message: tuple[int, int]) -> bool:
        if not self.durable[message[0]][message[1]]:
            return False
        return self._durable_at.get(message, -self.survey.skew) + self.survey.skew < self.time

    def revives(self, mine: Ownership, offset: int, retry: int | None) -> bool:
        """Whether a dead letter lies in the retry topic again because somebody asked for this."""
        partition = mine.partition
        left = self.survey.replays.get((partition, offset))
        if retry is None or not left or not self.outcomes[partition][offset] & DEAD_LETTER:
            return False
        if left[0] > self.time + self.survey.skew:
            return False
        del left[0]
        mine.main[offset], mine.places[offset] = MOVED, retry
        self.outcomes[partition][offset] = self.durable[partition][offset] = 0
        self.due[partition].pop(offset, None)
        mine.again.pop(offset, None)
        self.restarted.add((partition, offset))
        return True

    def _moved(self, mine: Ownership, offset: int, event: Event) -> None:
        about = (mine.partition, offset)
        if any(move.offset == offset for request in mine.requests.values() for move in request.moves):
            self.found("relocation", f"{about[0]}:{offset} begins before its move is durable", about)
        if offset in self.rejected[mine.partition]:
            self._found_rejected(about)
        retry = event.get("retry")
        if retry is None or mine.places.get(offset, retry) != retry:
            text = f"{about[0]}:{offset} is delivered from {retry}, it lies at {mine.places.get(offset)}"
            self.found("relocation", text, about)
        attempt, due_ms = self.due[mine.partition].get(offset, (1, None))
        if event["attempt"] < attempt:
            self.found("attempt", f"delivery {event['attempt']}, the move said {attempt}", about)
        if (
            due_ms is not None
            and self.time < due_ms * 1_000_000 - self.settings.due_slack_ns - self.times.skew
        ):
            self.found(
                "early", f"{about[0]}:{offset} begins {due_ms / 1e3 - self.time / 1e9:.3f} s early", about
            )

    def _redelivered(self, mine: Ownership, offset: int, attempt: int, last: int) -> None:
        partition, about = mine.partition, (mine.partition, offset)
        if about in self.restarted:
            self.restarted.discard(about)
            cause = "replay"
        elif last == mine.number:
            again = mine.again.pop(offset, None)
            cause = again.cause if again is not None else ""
            counted = again is not None and again.cause not in ("batch", "release")
            if again is not None and counted and attempt <= again.attempt:
                self.found("attempt", f"delivery {attempt} after {again.attempt}", about)
            if cause == REJECTED:
                self._found_rejected(about)
        else:
            mine.again.pop(offset, None)
            cause = self.times.gone(self.ownerships[last - 1], self.time)
            if not cause and self.times.excused(mine, self.time):
                cause = "late owner"
        if not cause:
            before = self.ownerships[last - 1].name
            self.found(
                "duplicate", f"{partition}:{offset} was delivered by {before}, and nothing ended that", about
            )
        else:
            self.report.redeliveries[cause] += 1

    def _found_rejected(self, about: tuple[int, int]) -> None:
        self.found("rejected", f"{about[0]}:{about[1]} begins; its callback had given it up", about)

    def _in_order(self, mine: Ownership, offset: int, batch: int | None) -> None:
        replayed = self.replayed[mine.partition]
        if offset in replayed:
            return
        before = mine.unfinished_before(offset, batch, replayed)
        if before >= 0:
            text = f"{mine.partition}:{offset} begins before {before} of the same key is finished"
            self.found("order", text, (mine.partition, before), (mine.partition, offset))
            mine.step_over(offset)

    def _handler_end(self, event: Event) -> None:
        partition, offset = event["partition"], event["offset"]
        log = self.survey.log(partition)
        if not 0 <= offset < len(log.key) or log.key[offset] < 0:
            return  # the delivery was found to be a phantom
        mine = self.mine(event)
        if mine is not None:
            self._batch_end(mine, offset)
        key = log.key[offset]
        if key != NO_KEY and self.history.head["ordered"]:
            ended = self.running.ends((partition, key), self.history, offset, self.time)
            if not ended:
                self.found(
                    "stray",
                    f"the handler of {partition}:{offset} ends, and none had begun",
                    (partition, offset),
                )

    def _batch_end(self, mine: Ownership, offset: int) -> None:
        """Messages behind the first unfinished message of a run go back to the queue, whatever was said of them."""
        lease = mine.leases.get(offset)
        if lease is None or lease.batch is None:
            return
        if mine.behind_unfinished(offset, lease.batch) and mine.log.key[offset] != NO_KEY:
            del mine.leases[offset]
            mine.again[offset] = Again("batch", lease.attempt)

    # Judgements

    def _ack(self, event: Event) -> None:
        mine = self.mine(event)
        self.report.acks += 1
        if mine is None:
            return
        offset, partition = event["offset"], mine.partition
        held = offset in mine.leases
        if self._close_lease(mine, event, "ack"):
            if held:
                mine.finish(offset, self.time)
            else:
                mine.crossed(offset)
        self.outcomes[partition][offset] |= ACK

    def _close_lease(self, mine: Ownership, event: Event, verb: str) -> bool:
        """False if nothing is open that the report is on; a report that crossed an expiry is known by its attempt."""
        offset, attempt = event["offset"], event["attempt"]
        lease = mine.leases.get(offset)
        if lease is not None and lease.attempt == attempt:
            del mine.leases[offset]
            return True
        again = mine.again.get(offset)
        if lease is None and again is not None and again.cause == "expire" and again.attempt == attempt:
            return verb == "ack"
        text = f"{verb} of {mine.partition}:{offset}, delivery {attempt}, which {mine.name} doesn't hold"
        self.found("stray", text, (mine.partition, offset))
        return False

    def _nack(self, event: Event) -> None:
        mine = self.mine(event)
        if mine is not None and self._close_lease(mine, event, "nack"):
            rejected = event.get("rejected", False)
            self.report.rejected += rejected
            mine.again[event["offset"]] = Again(REJECTED if rejected else "nack", event["attempt"])

    def _expire(self, event: Event) -> None:
        mine = self.mine(event)
        if mine is None:
            return
        offset, attempt = event["offset"], event["attempt"]
        if mine.main[offset] & ACKED:
            if offset not in mine.fresh or self.time - mine.fresh[offset] > self.settings.grace_ns:
                text = f"{mine.partition}:{offset} expired after its ack"
                self.found("after_ack", text, (mine.partition, offset))
            mine.reopen(offset)
        mine.leases.pop(offset, None)
        mine.again[offset] = Again("expire", attempt)
        self.running.expires((mine.partition, mine.log.key[offset]), self.history, offset)

    def _durable_ack(self, event: Event) -> None:
        partition, offset = event["partition"], event["offset"]
        if not self.durable[partition][offset]:
            text = f"{partition}:{offset}: the ack was called durable before an accepted commit held it"
            self.found("durable_ack", text, (partition, offset))

    # The end

    def _finish(self) -> None:
        for history in self.histories:
            if history.number not in self.survey.closed and self.survey.death(history) is None:
                self.report.add(
                    Violation("vanished", f"{history.name} has no end, and nobody killed {history.pid}")
                )
        self.running.finish()
        for mine in self.ownerships:
            self._settle(mine)
        self.report.in_doubt = len(self.survey.in_doubt)
        self.report.keys = len(self.survey.keys)
        if self.settings.drained:
            self._check_replays()
        for partition, log in sorted(self.survey.logs.items()):
            self.report.messages += log.template.count(0)
            self.report.parked += sum(1 for each in self.outcomes[partition] if each == PARKED)
            if self.settings.drained:
                self._check_lost(partition, log.begins)

    def _settle(self, mine: Ownership) -> None:
        kind, until = self.times.end(mine)
        if kind in ("crash", "close") and mine.ended is None and mine.superseded is None:
            self.lag(mine, self.times.stopped_at(self.times.history(mine), until))
        last = self.owners.get(mine.partition) is mine and kind in ("revoke", "close")
        if last and self.settings.drained:
            for topic, book in (("home", mine.main), ("retry", mine.retry)):
                at = book.find(0, mine.log.begins if topic == "home" else 0)
                while at >= 0 and topic == "retry" and self._is_parked(mine, at):
                    at = book.find(0, at + 1)
                if at >= 0:
                    offset = at if topic == "home" else mine.retry_log.origin[at]
                    text = f"{mine.name} was the last owner; {at} of its {topic} partition wasn't finished"
                    self.report.add(Violation("unsettled", text, None, [(mine.partition, offset)]))

    def _check_replays(self) -> None:
        for (partition, offset), left in self.survey.replays.items():
            if left:
                dead = self.outcomes[partition][offset] & DEAD_LETTER
                text = (
                    "was replayed and not delivered again" if dead else "was replayed and is no dead letter"
                )
                kind = "lost" if dead else "stray"
                self.report.add(Violation(kind, f"{partition}:{offset} {text}", None, [(partition, offset)]))

    def _is_parked(self, mine: Ownership, retry: int) -> bool:
        return bool(self.outcomes[mine.partition][mine.retry_log.origin[retry]] == PARKED)

    def _check_lost(self, partition: int, begins: int) -> None:
        outcomes = self.outcomes[partition]
        at = outcomes.find(0, begins)
        while at >= 0:
            text = f"{partition}:{at} was neither acked nor dead-lettered"
            self.report.add(Violation("lost", text, None, [(partition, at)]))
            at = outcomes.find(0, at + 1)
