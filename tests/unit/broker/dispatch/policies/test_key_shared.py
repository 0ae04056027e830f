from __future__ import annotations

import mmh3
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.dispatch.policies.key_shared import KeyShared
from broker.dispatch.policies.redelivery import PendingAcks, Redelivery
from broker.errors import ConsumerAssignError
from quire.ledger.position import Position
from quire.wire.pulsar import PulsarApi_pb2 as pb
from tests.support.effort import effort

MOST = 1 << 20
LOOK_AHEAD = 20
ANY_ORDER = pb.KeySharedMeta(keySharedMode=pb.AUTO_SPLIT, allowOutOfOrderDelivery=True)


def sticky(*ranges: tuple[int, int], any_order: bool = False) -> pb.KeySharedMeta:
    return pb.KeySharedMeta(
        keySharedMode=pb.STICKY,
        hashRanges=[pb.IntRange(start=start, end=end) for start, end in ranges],
        allowOutOfOrderDelivery=any_order,
    )


def with_permits(*names: str, meta: pb.KeySharedMeta | None = None) -> KeyShared[str]:
    policy: KeyShared[str] = KeyShared()
    for name in names:
        join(policy, name, meta)
    return policy


def join(policy: KeyShared[str], name: str, meta: pb.KeySharedMeta | None = None, permits: int = 1000) -> None:
    policy.add(name, name, meta)
    policy.flow(name, permits, MOST)


def owner(policy: KeyShared[str], key_hash: int) -> str | None:
    """Return the consumer that would get an entry of a free hash."""
    assigned, _ = policy.assign([key_hash], [1])
    if not assigned:
        return None
    policy.released(assigned[0][0], (key_hash,))
    return assigned[0][0]


def moved_hash(before: list[str], newcomer: str) -> tuple[str, int]:
    """Return a hash that moves to the new consumer, and its former consumer."""
    old, new = with_permits(*before), with_permits(*before, newcomer)
    for key_hash in range(1, 65536):
        if owner(new, key_hash) == newcomer:
            was = owner(old, key_hash)
            assert was is not None
            return was, key_hash
    raise AssertionError("a newcomer gets something")


def test_the_hash_of_a_key_is_that_of_the_original_in_each_mode() -> None:
    ring = with_permits("a")
    ranges = with_permits("a", meta=sticky((0, 65535)))
    for key in (b"", b"key", "größe".encode(), b"x" * 1000):
        full = mmh3.hash(key, 0, signed=False) & 0x7FFFFFFF
        assert ring.hash_of(key) == full % 65535 + 1
        assert ranges.hash_of(key) == (full % 65536 or 1)


def test_all_entries_of_a_hash_go_to_one_consumer_in_order() -> None:
    policy = with_permits("a", "b", "c")
    hashes = [1 + n * 2003 % 65535 for n in range(100)] * 3
    assigned, blocked = policy.assign(hashes, [1] * 300)
    assert blocked == []
    assert sorted(index for _, indexes in assigned for index in indexes) == list(range(300))
    assert all(indexes == sorted(indexes) for _, indexes in assigned)
    by_hash = {hashes[index]: consumer for consumer, indexes in assigned for index in indexes}
    assert all(by_hash[hashes[index]] == consumer for consumer, indexes in assigned for index in indexes)
    assert set(by_hash.values()) == {"a", "b", "c"}


def test_permits_count_messages_and_end_below_zero_by_one_batch_at_most() -> None:
    policy: KeyShared[str] = KeyShared()
    join(policy, "a", permits=10)
    assert policy.assign([5, 5, 5], [6, 6, 6]) == ([("a", [0, 1])], [2])
    assert policy.permits("a") == -2
    assert not policy.has_permits
    assert is_blocked(policy, 5)


def test_a_paused_consumer_blocks_its_hashes_only() -> None:
    policy = with_permits("a", "b")
    mine = next(h for h in range(1, 65536) if owner(policy, h) == "a")
    other = next(h for h in range(1, 65536) if owner(policy, h) == "b")
    policy.pause("a", True)
    assert policy.assign([mine, other, mine], [1, 1, 1]) == ([("b", [1])], [0, 2])
    assert is_blocked(policy, mine)
    assert not is_blocked(policy, other)


def test_a_hash_that_moved_waits_until_the_one_before_has_acknowledged_everything() -> None:
    before, key_hash = moved_hash(["a", "b"], "c")
    policy = with_permits("a", "b")
    assert policy.assign([key_hash] * 2, [1, 1]) == ([(before, [0, 1])], [])
    join(policy, "c")
    assert policy.draining() == {key_hash: 2}
    assert policy.assign([key_hash], [1]) == ([], [0])
    policy.released(before, (key_hash,))
    assert is_blocked(policy, key_hash)
    assert policy.draining() == {key_hash: 1}
    policy.released(before, (key_hash,))
    assert policy.draining() == {}
    assert not is_blocked(policy, key_hash)
    assert policy.assign([key_hash], [1]) == ([("c", [0])], [])


def test_a_hash_that_moved_is_free_when_the_one_before_has_left() -> None:
    before, key_hash = moved_hash(["a", "b"], "c")
    policy = with_permits("a", "b")
    policy.assign([key_hash], [1])
    join(policy, "c")
    assert is_blocked(policy, key_hash)
    policy.remove(before)
    assert policy.assign([key_hash], [1]) == ([("c", [0])], [])


def test_a_hash_that_moves_away_and_back_is_not_draining() -> None:
    before, key_hash = moved_hash(["a", "b"], "c")
    policy = with_permits("a", "b")
    policy.assign([key_hash], [1])
    join(policy, "c")
    policy.remove("c")
    assert policy.assign([key_hash], [1]) == ([(before, [0])], [])


def test_an_older_entry_that_waits_holds_back_newer_ones_of_its_hash() -> None:
    policy = with_permits("a")
    assert policy.assign([5, 6, 5], [1, 1, 1], waiting={5: 1}) == ([("a", [1])], [0, 2])


def test_with_any_order_allowed_nothing_drains_and_nothing_waits() -> None:
    before, key_hash = moved_hash(["a", "b"], "c")
    policy = with_permits("a", "b", meta=ANY_ORDER)
    assert policy.assign([key_hash], [1]) == ([(before, [0])], [])
    join(policy, "c", ANY_ORDER)
    assert not is_blocked(policy, key_hash)
    assert policy.assign([key_hash], [1], waiting={key_hash}) == ([("c", [0])], [])
    policy.released(before, (key_hash,))
    policy.remove(before)
    assert policy.draining() == {}


def test_sticky_consumers_get_their_ranges_and_the_rest_waits() -> None:
    policy: KeyShared[str] = KeyShared()
    join(policy, "a", sticky((0, 99), (200, 299)))
    join(policy, "b", sticky((100, 199)))
    assigned, blocked = policy.assign([1, 99, 100, 199, 200, 299, 300], [1] * 7)
    assert assigned == [("a", [0, 1, 4, 5]), ("b", [2, 3])]
    assert blocked == [6]


def test_newcomers_that_do_not_fit_are_refused_and_change_nothing() -> None:
    policy = with_permits("a", meta=sticky((0, 99)))
    for meta in (
        None,
        pb.KeySharedMeta(keySharedMode=pb.AUTO_SPLIT),
        sticky(),
        sticky((99, 120)),
        sticky((120, 119)),
        sticky((100, 65536)),
        sticky((100, 120), any_order=True),
    ):
        with pytest.raises(ConsumerAssignError):
            policy.add("b", "b", meta)
    assert len(policy) == 1
    ring = with_permits("a")
    for meta in (ANY_ORDER, sticky((0, 65535))):
        with pytest.raises(ConsumerAssignError):
            ring.add("b", "b", meta)
    assert len(ring) == 1


def test_the_mode_may_change_when_all_have_left() -> None:
    policy = with_permits("a")
    policy.assign([5], [1])
    policy.remove("a")
    assert policy.assign([5], [1]) == ([], [0])
    join(policy, "b", sticky((0, 9)))
    assert policy.assign([5, 10], [1, 1]) == ([("b", [0])], [1])


def test_news_of_strangers_and_of_what_is_not_held_is_ignored() -> None:
    policy = with_permits("a", "b")
    policy.released("a", (5,))
    ((holder, _),) = policy.assign([5], [1])[0]
    policy.released("b" if holder == "a" else "a", (5,))
    policy.released("nobody", (5,))
    assert policy.assign([5], [1])[0] == [(holder, [0])]


def is_blocked(policy: KeyShared[str], key_hash: int) -> bool:
    """Return whether no consumer can have an entry of this hash now, apart from older entries of the hash."""
    return policy.group_of(key_hash) not in list(policy.ready_groups())


class Model:
    """A subscription that uses the policy as the pump does, and checks every delivery."""

    def __init__(self, keys: list[int]) -> None:
        self.hashes = [1 + key * 7919 % 65535 for key in keys]
        self.policy: KeyShared[str] = KeyShared(10)
        self.replay = Redelivery(self.policy.group_of)
        self.pending: dict[str, PendingAcks] = {}
        self.read = 0
        self.acked: set[int] = set()
        self.trace: list[tuple[str, int]] = []

    def join(self, name: str) -> None:
        if name not in self.pending:
            self.policy.add(name, name)
            self.replay.regroup()
            self.replay.settle(1 << 16)
            self.pending[name] = PendingAcks()

    def leave(self, name: str) -> None:
        if name in self.pending:
            pending = self.pending.pop(name)
            for position, key_hash in zip(pending.positions(), pending.hashes(), strict=True):
                self.replay.add(position, key_hash, again=True)
            self.policy.remove(name)
            self.replay.regroup()
            self.replay.settle(1 << 16)

    def flow(self, name: str, permits: int) -> None:
        if name in self.pending:
            self.policy.flow(name, permits, MOST)

    def ack(self, name: str, count: int, *, again: bool) -> None:
        """Acknowledge, or return, the `count` entries that were held longest."""
        if name not in self.pending:
            return
        for position in self.pending[name].positions()[:count]:
            entry = self.pending[name].pop(position)
            assert entry is not None
            if again:
                self.replay.add(position, entry.key_hash, again=True)
            else:
                self.acked.add(position.entry_id)
                self.replay.discard(position)
            self.policy.released(name, (entry.key_hash,))
            self.replay.regroup(entry.key_hash)

    def pump(self, run: int = 7) -> None:
        while self.policy.has_permits and (ready := self.first_run(run)):
            position, count = ready
            indexes = range(position.entry_id, position.entry_id + count)
            blocked = self.offer(indexes, replay=True)
            assert len(blocked) < count, "the first one was not blocked"
        while self.policy.has_permits and self.read < len(self.hashes) and len(self.replay) < LOOK_AHEAD:
            self.take_new(run)

    def first_run(self, run: int) -> tuple[Position, int] | None:
        """Return the first run to redeliver: it begins with the oldest entry that any consumer can have."""
        ready = self.replay.first_run(run, self.policy.ready_groups())
        able = [
            each
            for each in range(len(self.hashes))
            if self.waits(each) and not is_blocked(self.policy, self.hashes[each])
        ]
        assert (None if ready is None else ready[0].entry_id) == min(able, default=None)
        return ready

    def waits(self, entry: int) -> bool:
        return Position(1, entry) in self.replay

    def take_new(self, run: int) -> None:
        """Offer the next entries of the log, possibly late: older ones may have become possible in the meantime."""
        indexes = range(self.read, min(self.read + run, len(self.hashes)))
        for index in self.offer(indexes, replay=False):
            self.replay.add(Position(1, index), self.hashes[index], again=False)
        self.read = indexes.stop

    def offer(self, entries: range, *, replay: bool) -> list[int]:
        hashes = [self.hashes[entry] for entry in entries]
        counts = [1 + entry % 3 for entry in entries]
        before = {name: self.policy.permits(name) for name in self.pending}
        waiting = () if replay else self.replay.hashes
        assigned, blocked = self.policy.assign(hashes, counts, waiting)
        given = [index for _, indexes in assigned for index in indexes]
        assert sorted([*given, *blocked]) == list(range(len(hashes)))
        for index in sorted(given):
            (name,) = [name for name, indexes in assigned if index in indexes]
            self.deliver(name, entries[index], replay)
            assert before[name] > 0
            before[name] -= counts[index]
        assert all(self.policy.permits(name) == left for name, left in before.items())
        return [entries[index] for index in blocked]

    def deliver(self, name: str, entry: int, replay: bool) -> None:
        position, key_hash = Position(1, entry), self.hashes[entry]
        assert (position in self.replay) == replay
        self.replay.discard(position, keep_count=True)
        for older in range(entry):
            if self.hashes[older] == key_hash and older not in self.acked:
                assert Position(1, older) not in self.replay, "an older one of the hash waits"
                held = [each for each, pending in self.pending.items() if Position(1, older) in pending.positions()]
                assert held == [name], "an older one of the hash is elsewhere"
        for pending in self.pending.values():
            assert position not in pending.positions(), "nobody else has it"
        self.pending[name].add(position, 1 + entry % 3, key_hash)
        self.trace.append((name, entry))


actions = st.lists(
    st.tuples(
        st.sampled_from(["join", "leave", "flow", "flow", "late", "ack", "ack", "nack"]),
        st.integers(0, 3),
        st.integers(1, 12),
    ),
    min_size=5,
    max_size=60,
)


@settings(max_examples=effort(quick=50, full=150), deadline=None)
@given(st.lists(st.integers(0, 7), min_size=20, max_size=60), actions)
def test_a_keys_messages_stay_in_order_however_consumers_come_and_go(
    keys: list[int], steps: list[tuple[str, int, int]]
) -> None:
    traces = []
    for _ in range(2):
        model = Model(keys)
        for action, number, amount in [("join", 0, 0), ("flow", 0, 15), *steps, ("join", 0, 0)]:
            name = f"c{number}"
            if action == "join":
                model.join(name)
                model.flow(name, amount)
            elif action == "leave":
                model.leave(name)
            elif action == "flow":
                model.flow(name, amount)
            elif action == "late":
                model.flow(name, amount)
                model.take_new(amount)
            else:
                model.ack(name, amount, again=action == "nack")
            model.pump()
        for _ in range(2 * len(keys) + 2):  # no consumer is slow any more: everything is delivered
            for name in list(model.pending):
                model.flow(name, 20)
                model.ack(name, 1000, again=False)
            model.pump()
        assert model.acked == set(range(len(keys)))
        assert len(model.replay) == 0
        assert model.policy.draining() == {}
        traces.append(model.trace)
    assert traces[0] == traces[1]
