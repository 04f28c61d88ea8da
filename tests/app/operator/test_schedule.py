"""The queue's rules: each key once, the earliest time wins, one turn at a time, and no turn before the rest is over."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from kvgate.app.operator.schedule import Schedule

KEYS = st.sampled_from(["ns/a", "ns/b", "ns/c"])
SECONDS = st.integers(0, 20).map(float)


def test_a_key_that_is_added_twice_is_given_out_once() -> None:
    schedule = Schedule()
    schedule.add("ns/a", 1)
    schedule.add("ns/a", 1)

    assert [schedule.take(1), schedule.take(1)] == ["ns/a", None]


def test_the_earliest_time_wins_whichever_was_asked_for_last() -> None:
    schedule = Schedule()
    schedule.add("ns/a", 9)
    schedule.add("ns/a", 2)
    schedule.add("ns/a", 5)

    assert schedule.next_due() == 2


def test_nothing_is_given_out_before_it_is_due() -> None:
    schedule = Schedule()
    schedule.add("ns/a", 2)

    assert [schedule.take(1.9), schedule.take(2)] == [None, "ns/a"]


def test_what_has_been_due_longest_comes_first() -> None:
    schedule = Schedule()
    for key, due in (("ns/b", 2), ("ns/a", 3), ("ns/c", 1)):
        schedule.add(key, due)

    assert [schedule.take(9) for _ in range(3)] == ["ns/c", "ns/b", "ns/a"]


def test_a_key_that_is_added_many_times_during_its_turn_runs_once_afterwards() -> None:
    schedule = Schedule()
    schedule.add("ns/a", 0)
    assert schedule.take(0) == "ns/a"
    for _ in range(3):
        schedule.add("ns/a", 0)

    assert schedule.take(9) is None
    schedule.done("ns/a", 0)
    assert [schedule.take(9), schedule.take(9)] == ["ns/a", None]


def test_nothing_brings_a_key_forward_into_its_rest() -> None:
    schedule = Schedule()
    schedule.add("ns/a", 0)
    schedule.take(0)
    schedule.add("ns/a", 1)
    schedule.done("ns/a", 5)
    schedule.add("ns/a", 2)

    assert [schedule.take(4.9), schedule.take(5)] == [None, "ns/a"]


def test_a_rest_that_is_over_is_forgotten_and_one_that_is_not_stands() -> None:
    schedule = Schedule()
    for key, until in (("ns/a", 5.0), ("ns/b", 9.0)):
        schedule.add(key, 0)
        schedule.take(0)
        schedule.done(key, until)
    schedule.forget_rests(7)
    schedule.add("ns/a", 1)
    schedule.add("ns/b", 1)

    assert [schedule.take(7), schedule.take(7), schedule.take(9)] == ["ns/a", None, "ns/b"]


class AsSlowAndPlain(RuleBasedStateMachine):
    """The schedule beside a model that keeps every wish and looks through all of them each time."""

    taken = Bundle("taken")

    @initialize()
    def begin(self) -> None:
        self.schedule = Schedule()
        self.now = 0.0
        self.wishes: dict[str, list[float]] = {}
        self.rests: dict[str, float] = {}
        self.working: set[str] = set()

    def due(self, key: str) -> float:
        return min(self.wishes[key])

    @rule(seconds=SECONDS)
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(key=KEYS, seconds=SECONDS)
    def add(self, key: str, seconds: float) -> None:
        self.schedule.add(key, self.now + seconds)
        self.wishes.setdefault(key, []).append(max(self.now + seconds, self.rests.get(key, 0)))

    @rule(target=taken)
    def take(self) -> str | None:
        due = {key: self.due(key) for key in self.wishes if key not in self.working and self.due(key) <= self.now}
        key = self.schedule.take(self.now)
        if not due:
            assert key is None
            return None
        assert key is not None
        assert due[key] == min(due.values())
        del self.wishes[key]
        self.rests.pop(key, None)
        self.working.add(key)
        return key

    @rule(key=consumes(taken), rest=SECONDS)
    def done(self, key: str | None, rest: float) -> None:
        if key is None:
            return
        self.schedule.done(key, self.now + rest)
        self.working.discard(key)
        self.rests[key] = self.now + rest
        if key in self.wishes:
            self.wishes[key] = [max(wish, self.now + rest) for wish in self.wishes[key]]

    @rule()
    def forget_rests(self) -> None:
        self.schedule.forget_rests(self.now)

    @invariant()
    def the_same_keys_wait(self) -> None:
        if hasattr(self, "wishes"):
            assert len(self.schedule) == len(self.wishes)

    @invariant()
    def the_next_free_key_is_due_when_the_model_says(self) -> None:
        if hasattr(self, "wishes"):
            free = [self.due(key) for key in self.wishes if key not in self.working]
            assert self.schedule.next_due() == min(free, default=None)


TestAsSlowAndPlain = AsSlowAndPlain.TestCase
TestAsSlowAndPlain.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
