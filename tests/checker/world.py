"""Valid histories, made by chance: a small group whose members keep the protocol, written by the real writer.

Theory. Not a copy of the client - the simulation is that - but the least that does everything a history can say:
publishers, several hosts whose wall clocks differ, members that come, leave in good order, crash, or stand still
and come back as late owners; nacks, rejections, expiries that an ack crosses, runs handed over together, moves to the
retry topic (answered, refused, or never answered), parking and release, dead letters and their replay. Events are
drawn; what follows is by the rules, so the checker must find nothing.
"""

from __future__ import annotations

import random
from pathlib import Path

from kafka_pubsub.history.history import HistoryFile, fingerprint
from tests.checker.members import MS, START, Held, Host, Member, Owner, Partition, Plan, Unanswered, standing

__all__ = ["Plan", "make"]


class World:
    """Draws the events."""

    def __init__(self, plan: Plan, directory: Path) -> None:
        self.plan, self.directory = plan, directory
        self.chance = random.Random(plan.seed)
        self.now = START
        half = plan.skew / 2
        self.hosts = [
            Host(f"host{at}", self.chance.randrange(10**15), round(self.chance.uniform(-half, half) * 1e9))
            for at in range(plan.hosts)
        ]
        self.logs = {number: Partition() for number in range(plan.partitions)}
        self.members: list[Member] = []
        self.pids = 100
        self.sent = 0
        self.driver = self._file("driver", self.hosts[0])
        self.publisher = self._file("publisher", self.chance.choice(self.hosts))
        self.driver.subscribe(dict.fromkeys(self.logs, 0))

    def _file(self, role: str, host: Host) -> HistoryFile:
        self.pids += 1
        return HistoryFile(
            self.directory / f"{role}-{self.pids}.jsonl",
            role=role,
            topic="orders",
            subscription="billing" if role == "subscriber" else None,
            ordered=self.plan.ordered,
            process=self.pids,
            pid=self.pids,
            host=host.name,
            monotonic_ns=lambda: self.now - START + host.booted,
            time_ns=lambda: self.now + host.wrong_by,
            segment=1 << 16,
        )

    def run(self) -> list[Path]:
        """Makes the history; returns its files."""
        while self.sent < self.plan.messages or self.chance.random() < 0.9:
            self.step(self.plan.faults)
        for member in [member for member in self.members if member.stopped]:
            self.wake(member)
        for _ in range(20_000):
            if self.settled():
                break
            self.step(0.0)
        else:
            raise AssertionError(f"seed {self.plan.seed} didn't settle")
        for member in list(self.members):
            self.leave(member)
        self.publisher.close()
        self.driver.close()
        return sorted(self.directory.glob("*.jsonl"))

    def settled(self) -> bool:
        return all(
            log.owner is not None and log.owner.finished >= self.exist(log) and not log.owner.held
            for log in self.logs.values()
        )

    @staticmethod
    def exist(log: Partition) -> set[int]:
        return {at for at, key in enumerate(log.main) if key != ""}

    def step(self, faults: float) -> None:
        """An event happens."""
        self.now += self.chance.randrange(1, 15 * MS)
        chance = self.chance
        self.group()
        for member in self.members:
            for owner in [] if member.stopped else list(member.owned.values()):
                late = owner.dirty_since is not None and self.now - owner.dirty_since > 200 * MS
                if owner.move_request is not None and self.now - owner.move_request.since > 100 * MS:
                    self.answer(owner)
                elif owner.move_request is None and late:
                    self.commit(owner, [], [])
        if chance.random() < faults / 4:
            self.fault()
        elif self.sent < self.plan.messages and chance.random() < 0.3:
            self.publish()
        elif owners := [
            owner for member in self.members if not member.stopped for owner in self.all_of(member)
        ]:
            self.act(chance.choice(owners), faults)

    @staticmethod
    def all_of(member: Member) -> list[Owner]:
        return [*member.owned.values(), *member.resting.values(), *member.old]

    def publish(self) -> None:
        log = self.logs[number := self.chance.randrange(self.plan.partitions)]
        if self.chance.random() < 0.1:  # a transaction's marker
            log.main.append("")
            log.shas.append("")
        key = f"{number}-{self.chance.randrange(self.plan.keys)}" if self.chance.random() < 0.9 else None
        sha = fingerprint(key.encode() if key else None, b"%d" % self.sent, {})
        self.publisher.send(self.sent, key, sha)
        log.main.append(key)
        log.shas.append(sha)
        if self.chance.random() > self.plan.faults / 10:
            self.publisher.stored(self.sent, number, len(log.main) - 1)
        self.sent += 1

    # The group

    def group(self) -> None:
        living = [member for member in self.members if not member.stopped]
        if not living:
            living = [self.join()]
        for number, log in self.logs.items():
            if log.owner is None:
                self.assign(self.chance.choice(living), number)

    def join(self) -> Member:
        host = self.chance.choice(self.hosts)
        file = self._file("subscriber", host)
        self.members.append(Member(self.pids, file, host.wrong_by))
        return self.members[-1]

    def assign(self, member: Member, number: int) -> None:
        log = self.logs[number]
        resting = member.resting.pop(number, None)
        if resting is not None and resting.last == log.stored and resting.move_request is None:
            owner = resting
        else:
            if resting is not None:
                member.old.append(resting)
            member.epochs += 1
            owner = self.begin(member, number, member.epochs)
        main, retry = log.stored
        member.file.assign(number, owner.epoch, main, retry, len(log.retry))
        owner.last = log.stored
        member.owned[number] = log.owner = owner

    def begin(self, member: Member, number: int, epoch: int) -> Owner:
        log, owner = self.logs[number], Owner(member, number, epoch)
        (position, runs), (retry_position, retry_runs) = log.stored
        owner.main_done = set(range(position)).union(*(range(*run) for run in runs))
        owner.retry_done = set(range(retry_position)).union(*(range(*run) for run in retry_runs))
        owner.finished = set(owner.main_done)
        for at, record in enumerate(log.retry):
            if record is not None and at not in owner.retry_done:
                origin, attempt, due = record
                owner.finished.discard(origin)
                owner.places[origin], owner.attempts[origin], owner.due[origin] = at, attempt, due
        return owner

    def release(self, owner: Owner) -> None:
        """Revoked in good order."""
        if owner.move_request is not None:
            self.answer(owner)
        if self.logs[owner.number].owner is not owner:
            return
        if owner.dirty_since is not None:
            self.commit(owner, [], [])
            self.now += MS
            self.answer(owner, accepted=True)
        self.now += MS
        owner.member.file.revoke(owner.number, owner.epoch, lost=False)
        del owner.member.owned[owner.number]
        owner.member.resting[owner.number] = owner
        self.logs[owner.number].owner = None

    def leave(self, member: Member) -> None:
        for owner in self.all_of(member):
            for held in list(owner.held):
                self.end(owner, held)
        for owner in list(member.owned.values()):
            self.release(owner)
        member.file.close()
        self.members.remove(member)

    def fault(self) -> None:
        living = [member for member in self.members if not member.stopped]
        kind = self.chance.choice(["crash", "stop", "wake", "join", "leave", "rebalance", "rebalance"])
        if kind == "join" and len(living) < self.plan.members:
            self.join()
        elif kind == "rebalance" and (owners := [log.owner for log in self.logs.values() if log.owner]):
            owner = self.chance.choice(owners)
            if not owner.member.stopped:
                self.release(owner)
        elif kind == "wake" and (stopped := [member for member in self.members if member.stopped]):
            self.wake(stopped[0])
        elif kind in ("crash", "stop", "leave") and living:
            getattr(self, kind)(self.chance.choice(living))
        self.now += MS

    def crash(self, member: Member) -> None:
        self.driver.crash(member.pid)
        self.members.remove(member)
        self.take_away(member)

    def take_away(self, member: Member) -> None:
        for owner in member.owned.values():
            if owner.move_request is not None and self.chance.random() < 0.5:
                self.store(owner, owner.move_request)
            self.logs[owner.number].owner = None
        self.now += 6_000 * MS

    def stop(self, member: Member) -> None:
        self.driver.stop(member.pid)
        member.stopped = True
        self.now += MS
        self.take_away(member)

    def wake(self, member: Member) -> None:
        self.driver.cont(member.pid)
        member.stopped = False
        self.now += MS
        for number, owner in list(member.owned.items()):
            if owner.move_request is not None:
                member.file.answer(owner.move_request.number, number, owner.epoch, False)
                owner.move_request = None
            member.file.revoke(number, owner.epoch, lost=True)
            del member.owned[number]
            member.old.append(owner)

    # A member's work

    def act(self, owner: Owner, faults: float) -> None:
        chance, kind = self.chance, self.chance.random()
        if owner.held and kind < 0.5:
            self.end(owner, chance.choice(owner.held))
        elif owner.member.owned.get(owner.number) is not owner:
            return
        elif kind < 0.85:
            self.deliver(owner)
        elif kind < 0.95 and owner.move_request is None:
            self.relocate(owner, faults)

    def deliver(self, owner: Owner) -> None:
        log = self.logs[owner.number]
        ready: dict[str, list[int]] = {}
        for at in sorted(self.exist(log) - owner.finished):
            key = log.main[at]
            ready.setdefault(f"loose {at}" if key is None or not self.plan.ordered else key, []).append(at)
        choices = [offsets for offsets in ready.values() if self.free(owner, offsets[0])]
        if not choices:
            return
        offsets = self.chance.choice(choices)
        batch = None
        if len(offsets) > 1 and self.chance.random() < 0.2:
            owner.member.batches += 1
            batch = owner.member.batches
        for at in offsets[: 3 if batch else 1]:
            if self.free(owner, at, run=batch is not None and at != offsets[0]):
                self.hand_over(owner, at, batch)
            else:
                break
        if batch is not None:
            self.walk(owner, [held for held in owner.held if held.batch == batch])

    def free(self, owner: Owner, at: int, *, run: bool = False) -> bool:
        log, move_request = self.logs[owner.number], owner.move_request
        moving = move_request is not None and any(
            at in (move[0] for move in move_request.moves) or at in move_request.dead for _ in (0,)
        )
        due = owner.due.get(at, 0)
        key = log.main[at]
        busy = not run and self.plan.ordered and key is not None and owner.member.busy(owner.number, key, log)
        open_ = any(held.offset == at for held in owner.held)
        rejected = at in owner.rejected or at in log.rejected
        waits = due is None or due > self.now + owner.member.wrong_by
        return not (moving or busy or open_ or rejected or waits)

    def hand_over(self, owner: Owner, at: int, batch: int | None) -> None:
        log = self.logs[owner.number]
        attempt = owner.attempts.setdefault(at, 1)
        owner.failed.discard(at)
        owner.held.append(Held(at, attempt, batch))
        owner.member.file.delivered(
            owner.number, at, owner.epoch, attempt, log.shas[at], owner.places.get(at), batch
        )

    def walk(self, owner: Owner, run: list[Held]) -> None:
        """A batch: some from the front are acked, the next isn't."""
        good = self.chance.randrange(len(run) + 1)
        for held in run[:good]:
            self.use_verb(owner, held, "ack")
        if good < len(run):
            self.use_verb(owner, run[good], self.chance.choice(["nack", "nack", "reject"]))
        for held in run:
            owner.member.file.handler_end(owner.number, held.offset, owner.epoch)
            owner.held.remove(held)

    def end(self, owner: Owner, held: Held) -> None:
        """Something happens to a delivery."""
        file, chance = owner.member.file, self.chance
        mine = (
            owner.member.owned.get(owner.number) is owner or owner.member.resting.get(owner.number) is owner
        )
        if held.open and held.running and chance.random() < 0.2:
            file.handler_end(
                owner.number, held.offset, owner.epoch
            )  # returned without a word: the lease is kept
            held.running = False
            return
        if held.open:
            if not mine:
                file.stale("ack", owner.number, held.offset, owner.epoch, held.attempt)
                held.open = False
            elif owner in owner.member.owned.values():
                verbs = (
                    ["expire", "nack", "late", "reject"] if chance.random() < self.plan.faults else ["ack"]
                )
                self.use_verb(owner, held, chance.choice(verbs))
            elif held.running:
                file.extend(owner.number, held.offset, owner.epoch, held.attempt, 10.0)
        if held.running and chance.random() < 0.7:
            self.now += MS
            file.handler_end(owner.number, held.offset, owner.epoch)
            held.running = False
        if not held.open and not held.running:
            owner.held.remove(held)

    def use_verb(self, owner: Owner, held: Held, verb: str) -> None:
        file, at = owner.member.file, held.offset
        told = (owner.number, at, owner.epoch, held.attempt)
        held.open = False
        if verb == "ack":
            file.ack(*told)
            self.done(owner, at)
            return
        owner.attempts[at] = held.attempt + 1
        if verb == "reject":
            file.nack(*told, None, rejected=True)
            owner.rejected.add(at)
            return
        if verb == "nack":
            file.nack(*told, None)
        elif verb == "expire":
            file.expire(*told)
            if self.chance.random() < 0.5:
                file.ack(*told)  # crossed it, and didn't count
        else:
            file.ack(*told)
            self.now += MS
            file.expire(*told)
        owner.failed.add(at)
        owner.due[at] = self.now + owner.member.wrong_by + self.chance.randrange(50) * MS

    def done(self, owner: Owner, at: int) -> None:
        owner.finished.add(at)
        if at in owner.places:
            owner.retry_done.add(owner.places[at])
        else:
            owner.main_done.add(at)
        owner.dirty_since = owner.dirty_since or self.now

    # Writing

    def relocate(self, owner: Owner, faults: float) -> None:
        """Nacked messages, and waiting ones behind them, go to the end of the retry topic, or to the dead letters."""
        held = {each.offset for each in owner.held}
        log = self.logs[owner.number]
        moves: list[tuple[int, int | None, int, int | None, str]] = []
        dead: list[int] = []
        for at in sorted(self.exist(log) - owner.finished - held):
            if at in owner.rejected:
                due = self.now if self.chance.random() < 0.7 else None
                moves.append((at, owner.places.get(at), owner.attempts[at], due, "rejected"))
                continue
            if at in log.rejected and owner.due[at] is not None:
                dead.append(at)
                continue
            if at not in owner.failed and (self.chance.random() < 0.9 or owner.due.get(at, 0) is None):
                if owner.due.get(at, 0) is None:
                    moves.append((at, owner.places.get(at), owner.attempts.get(at, 1), self.now, "release"))
                continue
            attempt, place = owner.attempts.get(at, 1), owner.places.get(at)
            if at in owner.failed and attempt > 4:
                dead.append(at)
            else:
                parked = self.chance.random() < faults
                due = None if parked else self.now + owner.member.wrong_by + self.chance.randrange(100) * MS
                moves.append((at, place, attempt, due, "nack" if at in owner.failed else "backlog"))
        if moves or dead:
            self.commit(owner, moves, dead)

    def commit(
        self, owner: Owner, moves: list[tuple[int, int | None, int, int | None, str]], dead: list[int]
    ) -> None:
        log, member = self.logs[owner.number], owner.member
        member.commits += 1
        number = member.commits
        gone = [(at, place) for at, place, *_ in moves] + [(at, owner.places.get(at)) for at in dead]
        main_done = owner.main_done | {at for at, place in gone if place is None}
        retry_done = owner.retry_done | {place for _, place in gone if place is not None}
        main = standing(main_done, self.exist(log), len(log.main))
        retry = standing(retry_done, [at for at, r in enumerate(log.retry) if r is not None], len(log.retry))
        if moves:
            told = [
                (at, place, n, None if due is None else due / 1e9, why) for at, place, n, due, why in moves
            ]
            member.file.relocate(number, owner.number, owner.epoch, told)
        for at in dead:
            place, attempt = owner.places.get(at), owner.attempts[at]
            member.file.dead_letter(number, owner.number, at, owner.epoch, place, attempt, "ValueError")
        member.file.commit(number, owner.number, owner.epoch, main, retry)
        owner.move_request = Unanswered(number, (main, retry), moves, dead, self.now)
        owner.dirty_since = None

    def store(self, owner: Owner, move_request: Unanswered) -> list[tuple[int, int]]:
        log = self.logs[owner.number]
        placed = []
        for at, _, attempt, due, why in move_request.moves:
            (log.rejected.add if why == "rejected" else log.rejected.discard)(at)
            log.retry.append((at, attempt, due))
            placed.append((at, len(log.retry) - 1))
        if placed:
            log.retry.append(None)  # the transaction's marker
        log.rejected -= set(move_request.dead)
        log.stored = move_request.standing
        return placed

    def answer(self, owner: Owner, *, accepted: bool | None = None) -> None:
        move_request = owner.move_request
        assert move_request is not None
        file, owner.move_request = owner.member.file, None
        if accepted is None:
            accepted = self.chance.random() > self.plan.faults / 2
        if not accepted and self.chance.random() < 0.3:
            self.give_up(owner, move_request)
            return
        if not accepted:
            file.answer(move_request.number, owner.number, owner.epoch, False)
            owner.dirty_since = self.now
            return
        placed = self.store(owner, move_request)
        for at, place, attempt, due, _ in move_request.moves:
            (owner.main_done if place is None else owner.retry_done).add(at if place is None else place)
            owner.attempts[at], owner.due[at] = attempt, due
            owner.failed.discard(at)
            owner.rejected.discard(at)
        for at in move_request.dead:
            self.done(owner, at)
        owner.places.update(placed)
        owner.last = move_request.standing
        file.answer(move_request.number, owner.number, owner.epoch, True, placed)
        if move_request.dead and self.chance.random() < 0.3:
            self.replay(owner, move_request.dead[0])

    def give_up(self, owner: Owner, move_request: Unanswered) -> None:
        """Nobody can say whether the commit was stored: starts again from the stored state."""
        owner.member.file.answer(move_request.number, owner.number, owner.epoch, None)
        if self.chance.random() < 0.5:
            self.store(owner, move_request)
        owner.member.file.revoke(owner.number, owner.epoch, lost=True)
        del owner.member.owned[owner.number]
        owner.member.old.append(owner)
        self.logs[owner.number].owner = None

    def replay(self, owner: Owner, at: int) -> None:
        log = self.logs[owner.number]
        self.driver.replay(owner.number, at)
        log.retry.append((at, 1, self.now))
        owner.places[at], owner.attempts[at], owner.due[at] = len(log.retry) - 1, 1, self.now
        owner.finished.discard(at)


def make(plan: Plan, directory: Path) -> list[Path]:
    """Writes a valid history's files."""
    return World(plan, directory).run()
