"""The reason for which a policy gives an entry to nobody, against what it does: they agree for any state."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker.dispatch.policies.key_shared import KeyShared
from broker.dispatch.policies.refusal import Refusal, Why
from broker.dispatch.policies.shared import Chunk, Shared
from quire.wire.pulsar import PulsarApi_pb2 as pb

CONSUMERS = ("a", "b", "c")
HASHES = st.integers(1, 40)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("flow"), st.sampled_from(CONSUMERS), st.integers(1, 5)),
        st.tuples(st.just("pause"), st.sampled_from(CONSUMERS), st.booleans()),
        st.tuples(st.just("assign"), HASHES, st.integers(1, 3)),
        st.tuples(st.just("released"), st.sampled_from(CONSUMERS), HASHES),
    ),
    max_size=40,
)


def sticky(start: int, end: int) -> pb.KeySharedMeta:
    return pb.KeySharedMeta(keySharedMode=pb.STICKY, hashRanges=[pb.IntRange(start=start, end=end)])


@given(STEPS, st.sets(HASHES, max_size=3), st.booleans(), st.booleans())
def test_key_shared_refuses_what_it_does_not_assign(
    steps: list[tuple[str, str | int, int]], waiting: set[int], by_range: bool, ordered: bool
) -> None:
    policy: KeyShared[str] = KeyShared(points=10)
    for number, consumer in enumerate(CONSUMERS):
        meta = sticky(number * 12, number * 12 + 11) if by_range else pb.KeySharedMeta(keySharedMode=pb.AUTO_SPLIT)
        meta.allowOutOfOrderDelivery = not ordered
        policy.add(consumer, consumer, meta)
    for kind, what, value in steps:
        if kind == "flow":
            policy.flow(str(what), value, 100)
        elif kind == "pause":
            policy.pause(str(what), bool(value))
        elif kind == "released":
            policy.released(str(what), (value,))
        else:
            refused = policy.refusal(int(what), waiting)
            given_to, blocked = policy.assign([int(what)], [value], waiting)
            assert bool(blocked) == (refused is not None)
            assert bool(given_to) == (refused is None)


def test_key_shared_names_the_first_thing_in_the_way() -> None:
    policy: KeyShared[str] = KeyShared()
    for number, consumer in enumerate(CONSUMERS[:2]):
        policy.add(consumer, consumer, sticky(number * 10, number * 10 + 9))
    assert policy.refusal(30) == Refusal(Why.NO_OWNER)
    assert policy.refusal(5) == Refusal(Why.BUSY, "a", "a")
    policy.flow("a", 10, 100)
    assert policy.refusal(5) is None
    assert policy.refusal(5, [5]) == Refusal(Why.OLDER_WAITS, None, "a")


def test_key_shared_names_the_holder_of_a_key_that_has_moved() -> None:
    policy: KeyShared[str] = KeyShared()
    policy.add("a", "a")
    policy.flow("a", 1000, 1000)
    hashes = list(range(1, 60_000, 600))
    policy.assign([*hashes, *hashes], [1] * 200)
    policy.add("b", "b")
    policy.flow("b", 1000, 1000)
    moved = list(policy.draining())
    assert moved
    assert {policy.refusal(each) for each in moved} == {Refusal(Why.HELD, "a", "b", 2)}
    assert {policy.refusal(each) for each in set(hashes) - set(moved)} == {None}


@given(STEPS)
def test_shared_refuses_chunks_that_it_does_not_assign(steps: list[tuple[str, str | int, int]]) -> None:
    policy: Shared[str] = Shared()
    for consumer in CONSUMERS:
        policy.add(consumer)
    for kind, what, value in steps:
        if kind == "flow":
            policy.flow(str(what), value, 100)
        elif kind == "pause":
            policy.pause(str(what), bool(value))
        elif kind == "assign":
            refused = policy.refusal(int(what))
            assigned, _, _ = policy.assign_chunks([1], [Chunk(int(what), value == 3)])
            assert bool(assigned) == (refused is None)
