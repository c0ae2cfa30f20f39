"""Scenes of the merge: the classic scenes first, with a buffer of a message and with a large buffer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import pytest

from kafka_pubsub.errors import InvariantViolated
from kafka_pubsub.lane_names import Lane
from kafka_pubsub.lanes.headers import Name, Sent
from kafka_pubsub.lanes.merge import DUE, NEAR, Choice, LaneMerge

HIGH, LOW = Lane(9, True), Lane(0, True)
DURABLE, TRANSIENT = Lane(4, True), Lane(4, False)

prefetch = pytest.mark.parametrize("prefetch", [1, 1000])


class Scene:
    """Logs, and a reader with a buffer of `prefetch` messages for each lane."""

    def __init__(
        self, lanes: Iterable[Lane], prefetch: int = 1000, bound: float | None = 5.0, *, copied: bool = False
    ) -> None:
        self.merge: LaneMerge[Sent] = LaneMerge(lambda sent: sent, bound)
        self.logs: dict[Lane, list[tuple[int, int, Sent]]] = {}
        self.prefetch, self.now, self.asked, self.choices = prefetch, 0.0, 0, 0
        self.copied = copied
        self.last: dict[tuple[Lane, str], Name] = {}
        #: The offsets that were read and haven't begun, by lane.
        self.held: defaultdict[Lane, list[int]] = defaultdict(list)
        for lane in lanes:
            self.logs[lane] = []
            self.merge.add(lane, 0, str(lane))

    def publish(self, lane: Lane, time: int, number: int, publisher: str = "p") -> None:
        """The message names its publisher's last message of the other class; in a copy, by an offset of another log."""
        other = self.last.get((Lane(lane.priority, not lane.durable), publisher))
        offset = len(self.logs[lane])
        self.logs[lane].append((offset, time, Sent(publisher, number, other)))
        self.last[lane, publisher] = Name(number, offset, "" if self.copied else str(lane))

    def fetch(self, lane: Lane, most: int | None = None) -> bool:
        wanted = lane in self.merge.wants_read(self.now)
        room = max(wanted, self.prefetch - self.merge.held(lane)) if most is None else most
        at = self.merge.position(lane)
        found = self.logs[lane][at : at + room]
        self.merge.receive(lane, found)
        if found:
            self.held[lane] += [offset for offset, _, _ in found]
            self.offer(lane)
        self.merge.check()
        return bool(found)

    def offer(self, lane: Lane) -> None:
        """Says that the first message held can be delivered."""
        self.merge.offer(lane, next(iter(self.held[lane]), None))

    def learn_ends(self) -> None:
        self.asked += 1
        request = self.merge.ask(self.now)
        self.merge.ends(request, {lane: len(log) for lane, log in self.logs.items()})

    def next(self) -> Choice | None:
        """Reads and asks as much as the merge wants."""
        for _ in range(10_000):
            choice = self.merge.next(self.now)
            if choice is None and self.merge.wants_ends(self.now):
                self.learn_ends()
            elif choice is not None or not sum(self.fetch(lane) for lane in self.logs):
                return choice
        raise AssertionError("nothing comes of it")

    def take(self, most: int = 1) -> list[tuple[Lane, int]]:
        """Takes up to `most` messages of a run."""
        choice = self.next()
        if choice is None:
            return []
        self.choices += 1
        held, count = self.held[choice.lane], min(most, choice.most)
        taken, held[:] = held[:count], held[count:]
        self.merge.took(taken, self.now)
        self.offer(choice.lane)
        self.merge.check()
        return [(choice.lane, self.logs[choice.lane][offset][2].number) for offset in taken]

    def play(self, most: int = 1) -> list[tuple[Lane, int]]:
        """Takes all there is."""
        found: list[tuple[Lane, int]] = []
        while run := self.take(most):
            found += run
        return found


@prefetch
@pytest.mark.parametrize("per_time", [1, 7])
def test_interleaved_classes_keep_their_order(prefetch: int, per_time: int) -> None:
    scene = Scene([DURABLE, TRANSIENT], prefetch)
    for number in range(3000):
        scene.publish((DURABLE, TRANSIENT)[number // 3 % 2], number // per_time, number)
    assert [number for _, number in scene.play()] == list(range(3000))


@prefetch
@pytest.mark.parametrize("first", [DURABLE, TRANSIENT])
def test_a_burst_of_one_class_then_of_the_other(prefetch: int, first: Lane) -> None:
    second = TRANSIENT if first is DURABLE else DURABLE
    scene = Scene([DURABLE, TRANSIENT], prefetch)
    for number in range(2000):
        scene.publish(first if number < 1000 else second, number // 4, number)
    assert [number for _, number in scene.play(50)] == list(range(2000))


@prefetch
def test_priority_holds_across_classes(prefetch: int) -> None:
    lanes = [Lane(priority, durable) for priority in (0, 4, 9) for durable in (True, False)]
    scene = Scene(lanes, prefetch)
    for number in range(3000):
        scene.publish(lanes[number * 7 % 6], number, number)
    order = scene.play()
    assert [lane.priority for lane, _ in order] == [9] * 1000 + [4] * 1000 + [0] * 1000
    for priority in (0, 4, 9):
        numbers = [number for lane, number in order if lane.priority == priority]
        assert numbers == sorted(numbers)


@prefetch
def test_a_high_message_goes_before_all_that_has_not_begun(prefetch: int) -> None:
    scene = Scene([HIGH, LOW], prefetch)
    for number in range(500):
        scene.publish(LOW, number, number)
    assert [scene.take() for _ in range(3)] == [[(LOW, number)] for number in range(3)]
    scene.publish(HIGH, 600, 0)
    scene.fetch(HIGH)
    assert scene.take() == [(HIGH, 0)]
    assert scene.take() == [(LOW, 3)]


def test_looking_changes_nothing_and_only_the_chosen_lane_advances() -> None:
    scene = Scene([DURABLE, TRANSIENT, LOW])
    for lane in (DURABLE, TRANSIENT, LOW):
        scene.publish(lane, 7, 0, publisher=str(lane))
        scene.publish(lane, 9, 1, publisher=str(lane))
        scene.fetch(lane)
    scene.learn_ends()
    for _ in range(3):
        assert scene.merge.next(0.0) == Choice(DURABLE, 1, 1)
    assert scene.take() == [(DURABLE, 0)]
    assert [scene.merge.held(lane) for lane in (DURABLE, TRANSIENT, LOW)] == [1, 2, 2]
    assert scene.merge.next(0.0) == Choice(TRANSIENT, 1, 1)


def test_a_lane_is_empty_only_by_an_end_that_was_asked_for_after_the_head_was_read() -> None:
    scene = Scene([HIGH, LOW])
    scene.learn_ends()
    scene.publish(HIGH, 1, 0)
    scene.publish(LOW, 2, 1)
    scene.fetch(LOW)
    assert scene.merge.next(0.0) is None, "the end of the high lane is older than the head"
    assert scene.merge.wants_ends(0.0)
    scene.learn_ends()
    assert scene.merge.next(0.0) is None
    assert scene.merge.wants_read(0.0) == [HIGH]
    scene.fetch(HIGH)
    assert scene.play() == [(HIGH, 0), (LOW, 1)]


def test_a_question_covers_what_was_read_before_it_not_before_its_answer() -> None:
    scene = Scene([HIGH, LOW])
    request = scene.merge.ask(0.0)
    scene.publish(LOW, 2, 1)
    scene.fetch(LOW)
    scene.merge.ends(request, {HIGH: 0, LOW: 0})
    assert scene.merge.next(0.0) is None
    assert scene.merge.wants_ends(0.0)


def test_a_run_ends_where_the_question_came() -> None:
    scene = Scene([HIGH, LOW])
    for number in range(10):
        scene.publish(LOW, number, number)
    scene.fetch(LOW, 4)
    scene.learn_ends()
    scene.fetch(LOW, 6)
    assert scene.merge.next(0.0) == Choice(LOW, 4, 4)
    assert scene.merge.wants_ends(0.0), "the next run needs them"
    scene.learn_ends()
    assert scene.merge.next(0.0) == Choice(LOW, 10, 10)
    assert not scene.merge.wants_ends(0.0)


def test_nothing_is_asked_while_nothing_waits() -> None:
    scene = Scene([HIGH, LOW])
    assert scene.merge.next(0.0) is None
    assert not scene.merge.wants_ends(0.0)
    assert scene.merge.wakeup_at() is None


def test_an_answer_that_never_comes_is_asked_for_again() -> None:
    scene = Scene([HIGH, LOW])
    scene.publish(LOW, 1, 0)
    scene.fetch(LOW)
    assert scene.merge.wants_ends(3.0)
    lost = scene.merge.ask(3.0)
    assert not scene.merge.wants_ends(3.9)
    assert scene.merge.wakeup_at() == 4.0
    assert scene.merge.wants_ends(4.0)
    scene.merge.ends(scene.merge.ask(4.0), {HIGH: 0, LOW: 1})
    assert scene.merge.next(4.0) == Choice(LOW, 1, 1)
    scene.merge.ends(lost, {HIGH: 5, LOW: 1})
    assert scene.merge.next(4.0) == Choice(LOW, 1, 1), "an old answer says nothing"


def test_a_lane_without_a_leader_holds_up_no_other() -> None:
    scene = Scene([HIGH, LOW])
    scene.publish(LOW, 1, 0)
    scene.fetch(LOW)
    scene.merge.ends(scene.merge.ask(0.0), {HIGH: 3, LOW: 1})
    assert scene.merge.next(0.0) is None
    assert not scene.merge.wants_ends(0.5)
    assert scene.merge.wants_ends(1.0), "the messages that are there don't come"
    scene.merge.ends(scene.merge.ask(1.0), {LOW: 1})
    assert scene.merge.next(1.0) == Choice(LOW, 1, 1)


@prefetch
@pytest.mark.parametrize("copied", [False, True])
@pytest.mark.parametrize("skew", [-25, 25])
def test_clocks_that_differ_do_not_swap_what_one_publisher_sends(
    prefetch: int, skew: int, copied: bool
) -> None:
    scene = Scene([DURABLE, TRANSIENT], prefetch, copied=copied)
    for number in range(200):
        lane = (DURABLE, TRANSIENT)[number // 2 % 2]
        scene.publish(lane, 1000 + 10 * number + (skew if lane is DURABLE else 0), number)
    assert [number for _, number in scene.play()] == list(range(200))


def test_equal_times_follow_each_publisher() -> None:
    scene = Scene([DURABLE, TRANSIENT])
    scene.publish(TRANSIENT, 5, 0, "q")
    scene.publish(TRANSIENT, 5, 0, "p")
    scene.publish(DURABLE, 5, 1, "p")
    scene.publish(DURABLE, 5, 1, "q")
    scene.publish(TRANSIENT, 5, 2, "q")
    assert [lane for lane, _ in scene.play()] == [TRANSIENT, TRANSIENT, DURABLE, DURABLE, TRANSIENT]


def test_heads_that_name_each_other_go_though_a_tail_was_lost() -> None:
    scene = Scene([DURABLE, TRANSIENT])
    scene.publish(TRANSIENT, 1, 0)
    scene.publish(DURABLE, 2, 1)
    scene.logs[TRANSIENT].clear()
    scene.publish(TRANSIENT, 1, 2)
    assert scene.play() == [(DURABLE, 1), (TRANSIENT, 2)]


def test_programs_that_say_nothing_of_themselves_have_the_durable_one_first() -> None:
    scene = Scene([DURABLE, TRANSIENT])
    scene.merge = LaneMerge(lambda sent: None)
    for lane in (DURABLE, TRANSIENT):
        scene.merge.add(lane, 0)
        scene.publish(lane, 5, 0)
        scene.publish(lane, 5, 1)
    assert [lane for lane, _ in scene.play()] == [DURABLE, DURABLE, TRANSIENT, TRANSIENT]


def test_a_clock_that_steps_back_holds_up_nothing() -> None:
    scene = Scene([DURABLE, TRANSIENT])
    for number, time in enumerate((3_600_000, 3_600_001, 10, 11)):
        scene.publish(DURABLE, time, number)
        scene.publish(TRANSIENT, 9 + number, number, "q")
    scene.fetch(DURABLE)
    order = scene.play()
    assert [number for lane, number in order if lane == DURABLE] == [0, 1, 2, 3], "the log's order holds"
    assert order[0] == (TRANSIENT, 0)
    assert order.index((DURABLE, 0)) < order.index((TRANSIENT, 2)), "it counts with the time after the step"


def _flood(bound: float | None, low: int) -> tuple[Scene, list[tuple[float, Lane]]]:
    """Ten seconds of a high lane that always has messages, a thousand messages a second."""
    scene = Scene([HIGH, LOW], bound=bound)
    for number in range(12_000):
        scene.publish(HIGH, number, number)
    for number in range(low):
        scene.publish(LOW, number, number)
    scene.fetch(LOW)
    begun = []
    for _ in range(10_000):
        begun += [(scene.now, lane) for lane, _ in scene.take()]
        scene.now += 0.001
    return scene, begun


def test_a_head_waits_for_the_bound_and_no_longer() -> None:
    _, begun = _flood(5.0, low=1)
    (low,) = [now for now, lane in begun if lane == LOW]
    assert 5.0 <= low <= 5.001


def test_with_many_messages_aged_lanes_share_a_tenth() -> None:
    _, begun = _flood(5.0, low=2000)
    late = [lane for now, lane in begun if now >= 5.001]
    assert late.count(LOW) == pytest.approx(len(late) / 10, abs=1)
    for at in range(len(late) - 9):
        assert late[at : at + 10].count(LOW) <= 1


def test_two_aged_lanes_take_their_places_one_after_the_other() -> None:
    middle = Lane(4, True)
    scene = Scene([HIGH, middle, LOW])
    for lane in (HIGH, middle, LOW):
        for number in range(500):
            scene.publish(lane, number, number)
        scene.fetch(lane)
    scene.take()
    scene.now = 6.0
    order = [scene.take()[0][0] for _ in range(60)]
    assert [lane for lane in order if lane != HIGH] == [middle, LOW] * 3


def test_strict_priorities_let_the_low_ones_wait() -> None:
    _, begun = _flood(None, low=10)
    assert LOW not in {lane for _, lane in begun}


def test_a_lane_that_goes_in_turn_is_aged_no_more() -> None:
    scene = Scene([HIGH, LOW])
    scene.publish(HIGH, 0, 0)
    for number in range(3):
        scene.publish(LOW, number, number)
    scene.fetch(LOW)
    assert scene.take() == [(HIGH, 0)]
    scene.now = 4.0
    assert scene.take() == [(LOW, 0)]
    for number in range(1, 30):
        scene.publish(HIGH, number, number)
    scene.fetch(HIGH)
    scene.now = 6.0
    assert scene.take() == [(HIGH, 1)]
    assert scene.next() == Choice(HIGH, 28, 30)
    assert scene.merge.wakeup_at() == 11.0
    scene.now = 11.0
    assert scene.take() == [(LOW, 1)]


def test_keys_decide_what_a_head_is() -> None:
    scene = Scene([HIGH, LOW])
    for number in range(3):
        scene.publish(HIGH, number, number)
        scene.publish(LOW, number, number)
    scene.fetch(HIGH)
    scene.fetch(LOW)
    scene.learn_ends()
    scene.merge.offer(HIGH, 1)
    assert scene.merge.next(0.0) == Choice(HIGH, 2, 3)
    scene.merge.took([1], 0.0)
    assert scene.merge.next(0.0) == Choice(LOW, 3, 3), "nothing of the high lane is offered"
    scene.merge.offer(HIGH, 0)
    assert scene.merge.next(0.0) == Choice(HIGH, 2, 3)
    scene.merge.took([0], 0.0)
    assert scene.merge.held(HIGH) == 1
    scene.merge.check()


def test_what_is_due_again_goes_first_in_its_priority() -> None:
    scene = Scene([DURABLE, TRANSIENT])
    scene.publish(DURABLE, 1, 0)
    scene.publish(TRANSIENT, 2, 1)
    scene.fetch(DURABLE)
    scene.fetch(TRANSIENT)
    scene.learn_ends()
    scene.merge.offer(TRANSIENT, DUE)
    choice = scene.merge.next(0.0)
    assert choice is not None
    assert (choice.lane, choice.below) == (TRANSIENT, 0)
    scene.merge.took([], 0.0, due=2)
    scene.merge.offer(TRANSIENT, 0)
    assert scene.merge.next(0.0) == Choice(DURABLE, 1, 1)


def test_a_paused_lane_holds_up_no_other() -> None:
    scene = Scene([HIGH, LOW])
    scene.publish(HIGH, 1, 0)
    scene.publish(LOW, 1, 0)
    scene.fetch(LOW)
    scene.merge.pause(HIGH)
    assert scene.merge.next(0.0) == Choice(LOW, 1, 1)
    scene.merge.resume(HIGH)
    assert scene.merge.next(0.0) is None


def test_what_comes_back_goes_first_again() -> None:
    scene = Scene([HIGH, LOW])
    for number in range(3):
        scene.publish(LOW, number, number)
    assert scene.take(2) == [(LOW, 0), (LOW, 1)]
    scene.merge.put_back(LOW, scene.logs[LOW][:2])
    scene.merge.offer(LOW, 0)
    scene.merge.check()
    assert scene.merge.held(LOW) == 3
    assert scene.merge.next(0.0) == Choice(LOW, 3, 3)


def test_a_lane_may_come_and_go() -> None:
    scene = Scene([LOW])
    for number in range(3):
        scene.publish(LOW, number, number)
    assert scene.take() == [(LOW, 0)]
    scene.logs[HIGH] = []
    scene.publish(HIGH, 5, 0)
    scene.merge.add(HIGH, 0)
    assert scene.merge.lanes == [HIGH, LOW]
    assert scene.play() == [(HIGH, 0), (LOW, 1), (LOW, 2)]
    scene.merge.forget(HIGH)
    scene.merge.forget(HIGH)
    assert scene.merge.lanes == [LOW]
    scene.merge.check()


@pytest.mark.parametrize(("lanes", "most"), [(10, 100), (1, 100)])
def test_a_choice_holds_for_a_run(lanes: int, most: int) -> None:
    """Lanes cost little for each message, because few choices are made."""
    names = [Lane(number // 2, number % 2 == 0) for number in range(lanes)]
    scene = Scene(names)
    for lane in names:
        for number in range(2000):
            scene.publish(lane, number // 50, number, publisher=str(lane))
    assert len(scene.play(most)) == 2000 * lanes
    assert scene.choices <= 2000 * lanes / 40
    assert scene.asked <= 60


def test_a_caller_that_takes_what_was_not_chosen_is_stopped() -> None:
    scene = Scene([HIGH, LOW])
    with pytest.raises(InvariantViolated, match="None was chosen"):
        scene.merge.took([0], 0.0)
    scene.publish(LOW, 1, 0)
    assert scene.next() == Choice(LOW, 1, 1)
    with pytest.raises(InvariantViolated, match="2 messages were taken"):
        scene.merge.took([0, 1], 0.0)
    with pytest.raises(InvariantViolated, match="offset -7 was taken, and isn't held"):
        scene.merge.took([-7], 0.0)
    with pytest.raises(InvariantViolated, match="offset 1 was taken, and Choice"):
        scene.merge.took([1], 0.0)
    with pytest.raises(InvariantViolated, match="was added twice"):
        scene.merge.add(LOW, 0)


def test_the_next_lane_alone_is_read_ahead_before_the_last_one_ends() -> None:
    scene = Scene([HIGH, Lane(4, True), LOW])
    for number in range(NEAR + 2):
        scene.publish(HIGH, number, number)
    for lane in (Lane(4, True), LOW):
        scene.publish(lane, 0, 0)
    assert scene.merge.read_ahead_to(9) == 9, "its end isn't known"
    scene.learn_ends()
    scene.fetch(HIGH, 1)
    assert scene.merge.read_ahead_to(9) == 9
    scene.fetch(HIGH, 1)
    assert scene.merge.read_ahead_to(9) == 4
    scene.fetch(HIGH, NEAR)
    assert scene.merge.read_ahead_to(9) == 0, "the next one is nearly read, too"
