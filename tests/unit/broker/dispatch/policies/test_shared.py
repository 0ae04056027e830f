from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker.dispatch.policies.shared import Shared

MOST = 1 << 20


def policy(*consumers: tuple[str, int, int], batch_max: int = 20) -> Shared[str]:
    """Return a policy with consumers of (name, priority, permits)."""
    made: Shared[str] = Shared(batch_max)
    for name, priority, permits in consumers:
        made.add(name, priority)
        made.flow(name, permits, MOST)
    return made


def test_entries_go_around_in_turns_of_the_batch_size() -> None:
    made = policy(("a", 0, 100), ("b", 0, 100), ("c", 0, 100))
    assert made.assign([1] * 50) == [("a", 0, 20), ("b", 20, 40), ("c", 40, 50)]
    assert made.assign([1]) == [("a", 0, 1)]
    assert made.assign([1]) == [("b", 0, 1)]
    assert [made.permits(name) for name in "abc"] == [79, 79, 90]


def test_turns_of_the_only_consumer_are_one_assignment() -> None:
    made = policy(("a", 0, 100))
    assert made.assign([1] * 90) == [("a", 0, 90)]


def test_a_lower_priority_gets_only_what_the_higher_ones_cannot_take() -> None:
    made = policy(("low", 3, 100), ("high", 0, 5), ("middle", 1, 2))
    assert made.assign([1] * 10) == [("high", 0, 5), ("middle", 5, 7), ("low", 7, 10)]
    made.flow("high", 1, MOST)
    assert made.assign([1, 1]) == [("high", 0, 1), ("low", 1, 2)]


def test_permits_count_messages_and_end_below_zero_by_one_batch_at_most() -> None:
    made = policy(("a", 0, 10), ("b", 0, 3))
    assert made.assign([6, 6, 6, 6]) == [("a", 0, 2), ("b", 2, 3)]
    assert (made.permits("a"), made.permits("b")) == (-2, -3)
    assert not made.has_permits
    made.flow("a", 2, MOST)
    assert made.assign([1]) == []
    made.flow("a", 1, MOST)
    assert made.assign([1, 1]) == [("a", 0, 1)]


def test_a_paused_consumer_gets_nothing_and_keeps_its_permits() -> None:
    made = policy(("a", 0, 10), ("b", 0, 10))
    made.pause("a", True)
    assert made.assign([1] * 12) == [("b", 0, 10)]
    assert not made.has_permits
    made.pause("a", False)
    assert made.has_permits
    assert made.assign([1] * 12) == [("a", 0, 10)]


def test_what_one_flow_may_ask_for_is_bounded() -> None:
    made = policy(("a", 0, 0))
    made.flow("a", 1 << 31, 1000)
    made.flow("a", 1 << 31, 1000)
    assert made.permits("a") == 1000


def test_the_turn_stays_with_the_next_one_when_somebody_leaves() -> None:
    for leaving in "abcd":
        made = policy(*((name, 0, 100) for name in "abcd"))
        made.assign([1])
        made.assign([1])  # it is c's turn
        made.remove(leaving)
        expected = [name for name in "cdab" if name != leaving]
        assert [made.assign([1])[0][0] for _ in range(3)] == expected


def test_a_newcomer_waits_for_its_turn() -> None:
    made = policy(("a", 0, 100), ("b", 0, 100), ("c", 0, 100))
    made.assign([1])
    made.assign([1])
    made.remove("c")  # the one whose turn it was
    made.add("d")
    made.flow("d", 100, MOST)
    assert [made.assign([1])[0][0] for _ in range(3)] == ["a", "b", "d"]


def test_a_level_that_empties_is_gone_and_may_come_back() -> None:
    made = policy(("a", 0, 10), ("b", 1, 10))
    made.remove("a")
    assert made.permits("a") == 0
    assert made.assign([1]) == [("b", 0, 1)]
    made.remove("b")
    assert made.assign([1]) == []
    assert len(made) == 0
    made.add("a", 1)
    made.flow("a", 1, MOST)
    assert made.assign([1]) == [("a", 0, 1)]


steps = st.lists(
    st.one_of(
        st.tuples(st.just("join"), st.integers(0, 7), st.integers(0, 2)),
        st.tuples(st.just("leave"), st.integers(0, 7), st.just(0)),
        st.tuples(st.just("flow"), st.integers(0, 7), st.integers(1, 60)),
        st.tuples(st.just("pause"), st.integers(0, 7), st.integers(0, 1)),
        st.tuples(st.just("offer"), st.integers(1, 50), st.integers(0, 1 << 16)),
    ),
    max_size=60,
)


@given(steps, st.integers(1, 20))
def test_runs_are_covered_in_order_within_permits_by_the_highest_priority(
    actions: list[tuple[str, int, int]], batch_max: int
) -> None:
    made: Shared[str] = Shared(batch_max)
    again: Shared[str] = Shared(batch_max)
    priority: dict[str, int] = {}
    permits: dict[str, int] = {}
    paused: set[str] = set()
    for action, number, value in actions:
        name = f"consumer {number}"
        if action == "offer":
            counts = [1 + (value * (n + 1) >> n % 5) % 9 for n in range(number)]
            found = made.assign(counts)
            assert found == again.assign(counts)
            at = 0
            for consumer, start, stop in found:
                assert start == at < stop
                at = stop
                for index in range(start, stop):
                    able = [c for c in priority if permits[c] > 0 and c not in paused]
                    assert consumer in able
                    assert priority[consumer] == min(priority[c] for c in able)
                    permits[consumer] -= counts[index]
            able = [c for c in priority if permits[c] > 0 and c not in paused]
            assert at == len(counts) or not able
            assert made.has_permits == bool(able)
            assert all(made.permits(c) == permits[c] for c in priority)
            continue
        for each in (made, again):
            if action == "join" and name not in priority:
                each.add(name, value)
            elif action == "leave" and name in priority:
                each.remove(name)
            elif action == "flow" and name in priority:
                each.flow(name, value, MOST)
            elif action == "pause" and name in priority:
                each.pause(name, bool(value))
        if action == "join" and name not in priority:
            priority[name] = value
            permits[name] = 0
        elif action == "leave":
            priority.pop(name, None)
            paused.discard(name)
        elif action == "flow" and name in priority:
            permits[name] += value
        elif action == "pause" and name in priority:
            (paused.add if value else paused.discard)(name)
