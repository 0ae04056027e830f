from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from broker.dispatch.delayed.blocks import BLOCK
from broker.dispatch.delayed.index import FORGOTTEN_MAX, DelayedIndex, Reading
from broker.dispatch.delayed.near import NEAR_MAX, Near, packed, unpacked
from tests.unit.broker.dispatch.delayed.stored import stored_blocks

NEAR = 16
"""Due times in memory in these tests."""

Place = tuple[int, int]


class Model:
    """A dict beside the index; the log from which blocks are read again is `log`."""

    def __init__(self) -> None:
        self.index = DelayedIndex(NEAR, bucket_max=4)
        self.log: dict[Place, int] = {}
        self.waiting: dict[Place, int] = {}
        self.reading: Reading | None = None
        self.now = 0

    def add(self, place: Place, due: int) -> None:
        due = self.log.setdefault(place, due)
        self.index.add(due, *place, key_hash=place[1] % 7)
        self.waiting.setdefault(place, due)

    def release(self, most: int) -> None:
        before = dict(self.waiting)
        found = self.index.release(self.now, most)
        assert len(found) <= most
        assert found == sorted(found)
        for due, ledger_id, entry_id, key_hash in found:
            assert self.waiting.pop((ledger_id, entry_id)) == due <= self.now
            assert key_hash == entry_id % 7
        later = self.index.next_due is None or self.index.next_due > self.now
        if later and len(found) < most and self.reading is None and self.index.wanted(self.now) is None:
            assert not [place for place, due in self.waiting.items() if due <= self.now], (before, found)

    def read_some(self, most: int) -> None:
        if self.reading is None:
            key = self.index.wanted(self.now)
            if key is None:
                return
            self.reading = self.index.begin(key)
        while most > 0 and (run := self.reading.next_run()):
            first, count = run
            for entry_id in range(first, first + min(count, most)):
                due = self.log.get((self.reading.key[0], entry_id))
                if due is None:
                    self.index.lost(self.reading, entry_id)
                else:
                    self.index.learn(self.reading, entry_id, due, entry_id % 7)
                most -= 1
        if self.reading.next_run() is None:
            self.end()

    def end(self) -> None:
        if self.reading is not None:
            self.index.end(self.reading)
            self.reading = None

    def forget_through(self, place: Place) -> None:
        self.index.forget_through(*place)
        self.waiting = {each: due for each, due in self.waiting.items() if each > place}

    def restart(self) -> None:
        """Go on with an index that was made of what the last one stored."""
        self.end()
        before, self.index = self.index, DelayedIndex(NEAR, bucket_max=4)
        for block in stored_blocks(before):
            assert block.first_due_ms <= min(
                due
                for (ledger_id, entry_id), due in self.waiting.items()
                if (ledger_id, entry_id // BLOCK) == (block.ledger_id, block.number)
            )
            self.index.restore(block)

    def check(self) -> None:
        index = self.index
        assert index.count == len(self.waiting)
        assert index.near_count <= NEAR
        for ledger_id in (1, 2):
            for entry_id in range(0, 2 * BLOCK + 2, 111):
                held = (ledger_id, entry_id) in self.waiting
                assert index.holds(ledger_id, entry_id) is held
                free = index.first_free(ledger_id, entry_id)
                assert (ledger_id, free) not in self.waiting
                assert all((ledger_id, each) in self.waiting for each in range(entry_id, free))

    def drain(self) -> None:
        """All that is left is released in the end, in few steps."""
        self.end()
        self.now = 1 << 40
        for _ in range(10 * len(self.waiting) + 10):
            self.read_some(1 << 20)
            self.release(3)
            if not self.waiting:
                break
        assert not self.waiting
        assert self.index.count == 0
        assert self.index.next_far is None


places = st.tuples(st.integers(1, 2), st.integers(0, 2 * BLOCK))
steps = st.one_of(
    st.tuples(st.just("add"), places, st.integers(1, 60)),
    st.tuples(st.just("run"), places, st.integers(1, 60), st.integers(1, 40), st.integers(0, 2)),
    st.tuples(st.just("pass"), st.integers(0, 12)),
    st.tuples(st.just("release"), st.integers(1, 20)),
    st.tuples(st.just("read"), st.integers(0, 30)),
    st.tuples(st.just("end")),
    st.tuples(st.just("skip"), st.integers(1, 3)),
    st.tuples(st.just("forget"), places),
    st.tuples(st.just("clear")),
    st.tuples(st.just("restart")),
)


@given(st.lists(steps, max_size=60))
def test_the_index_releases_what_a_dict_would(done: list[tuple[object, ...]]) -> None:
    model = Model()
    marked: Place = (0, 0)
    for step in done:
        match step:
            case ("add", (int(ledger_id), int(entry_id)), int(due)):
                if due > model.now and (ledger_id, entry_id) > marked and (ledger_id, entry_id) not in model.log:
                    model.add((ledger_id, entry_id), due)
            case ("run", (int(ledger_id), int(entry_id)), int(due), int(count), int(apart)):
                for each in range(count):
                    place = ledger_id, entry_id + each
                    if due > model.now and place > marked and place not in model.log:
                        model.add(place, due + apart * each)
            case ("pass", int(ticks)):
                model.now += ticks
            case ("release", int(most)):
                model.release(most)
            case ("read", int(most)):
                model.read_some(most)
            case ("skip", int(most)):
                more = model.index.skip_forgotten(most)
                assert more or model.index.next_due in {None, *model.waiting.values()}
            case ("end",):
                model.end()
            case ("forget", (int(ledger_id), int(entry_id))):
                marked = max(marked, (ledger_id, entry_id))
                model.forget_through(marked)
            case ("clear",):
                model.end()
                model.index.clear()
                model.waiting.clear()
            case ("restart",):
                model.restart()
        model.check()
    model.drain()


@given(st.lists(st.integers(1, 50)))
def test_near_gives_the_earliest_and_drops_the_latest(keys: list[int]) -> None:
    near, model = Near(4), list[int]()
    for key in keys:
        near.add(key)
        model = sorted([*model, key])
        if len(near) > 12:
            floor, dropped = near.drop_last()
            assert 0 < len(dropped) <= 4
            assert sorted(dropped) == model[-len(dropped) :]
            assert floor <= min(dropped)
            del model[-len(dropped) :]
        assert near.first == model[0]
        if key % 3 == 0:
            assert near.pop() == model.pop(0)
            assert near.first == (model[0] if model else None)
        assert len(near) == len(model)


def test_a_message_is_packed_in_the_order_of_time_and_place() -> None:
    messages = [(5, 1, 9, 3), (5, 2, 0, 1), (6, 0, 0, 0), (6, 0, 1, 0), (1 << 62, 1 << 62, 1 << 62, (1 << 32) - 1)]
    keys = [packed(*message) for message in messages]
    assert keys == sorted(keys)
    assert [tuple(unpacked(key)) for key in keys] == messages


def test_a_message_that_was_read_twice_is_released_once() -> None:
    index = DelayedIndex()
    for _ in range(2):
        index.add(10, 1, 5)
    assert index.count == 1
    assert [each.entry_id for each in index.release(10, 9)] == [5]
    assert index.release(10, 9) == []


def test_nothing_is_released_before_its_time() -> None:
    index = DelayedIndex()
    index.add(10, 1, 5)
    assert index.release(9, 9) == []
    assert index.next_due == 10


def test_what_is_acknowledged_below_the_mark_delete_position_is_forgotten() -> None:
    index = DelayedIndex()
    for entry_id in (0, 1023, 1024, 1030, 5000):
        index.add(10, 7, entry_id)
    index.add(10, 8, 0)
    index.forget_through(7, 1024)
    assert index.count == 3
    assert [(each.ledger_id, each.entry_id) for each in index.release(10, 9)] == [(7, 1030), (7, 5000), (8, 0)]
    assert index.size_bytes == 0


def test_many_forgotten_due_times_are_passed_over_in_bounded_steps() -> None:
    index = DelayedIndex()
    for entry_id in range(2000):
        index.add(10, 1, entry_id)
    index.add(20, 1, 5000)
    index.forget_through(1, 4000)
    assert index.release(15, 10) == []
    assert index.next_due == 10
    steps = 0
    while index.skip_forgotten(100):
        steps += 1
    assert steps == (2000 - 10 - FORGOTTEN_MAX) // 100
    assert index.next_due == 20
    index.forget_through(1, 6000)
    assert index.near_count == 0


def test_what_no_longer_exists_when_it_is_read_again_is_given_up() -> None:
    index = DelayedIndex(8, bucket_max=2)
    for entry_id in range(20):
        index.add(10 + entry_id, 1, entry_id)
    near = index.near_count
    assert len(index.release(10 + near, 100)) == near
    key = index.wanted(1000)
    assert key == (1, 0)
    reading = index.begin(key)
    assert index.wanted(1000) is None, "it is being read"
    index.lost(reading, 19)
    index.end(reading)
    assert index.count == 20 - near - 1
    assert index.wanted(1000) == key, "the rest was not read"


def test_many_messages_due_in_any_order_take_a_bit_each_beside_the_next_ones_and_come_in_order() -> None:
    count, ledger_id = 300_000, 3
    rng = random.Random(4)
    due = [rng.randrange(1000, 3_600_000) for _ in range(count)]
    index = DelayedIndex()
    for entry_id, at in enumerate(due):
        index.add(at, ledger_id, entry_id)
    assert index.count == count
    assert index.near_count <= NEAR_MAX
    assert index.size_bytes < NEAR_MAX * 60 + count
    released = 0
    for time_ms in range(0, 200_000, 20_000):
        while (key := index.wanted(time_ms)) is not None:
            reading = index.begin(key)
            while (run := reading.next_run()) is not None:
                for entry_id in range(run[0], run[0] + run[1]):
                    index.learn(reading, entry_id, due[entry_id], 0)
            index.end(reading)
        found = index.release(time_ms, count)
        assert all(time_ms - 20_000 < each.due_ms <= time_ms for each in found)
        released += len(found)
    assert released == sum(at <= 180_000 for at in due)


def test_messages_with_one_delay_are_read_again_once() -> None:
    """The usual pattern: all are delayed by the same time, so they are due in the order of the log."""
    count = 50_000
    index = DelayedIndex(4096, bucket_max=512)
    for entry_id in range(count):
        index.add(1000 + entry_id, 1, entry_id)
    assert index.near_count <= 4096
    read = released = 0
    for time_ms in range(1000, 1000 + count, 500):
        while (key := index.wanted(time_ms + 1000)) is not None:
            reading = index.begin(key)
            while (run := reading.next_run()) is not None:
                for entry_id in range(run[0], run[0] + run[1]):
                    index.learn(reading, entry_id, 1000 + entry_id, 0)
                    read += 1
            index.end(reading)
        released += len(index.release(time_ms, count))
    assert released == count - 499
    assert read < 1.2 * count


def test_the_due_times_of_forgotten_messages_are_dropped_a_bucket_at_a_time() -> None:
    index = DelayedIndex(4 * 64, bucket_max=16)
    for entry_id in range(200):
        index.add(1000 + entry_id * 37 % 200, 1, entry_id)
    index.forget_through(1, 149)
    assert index.near_count > index.count == 50
    steps = index.drop_forgotten()
    next(steps)
    index.add(5, 1, 300)  # the first bucket changes meanwhile
    for _ in steps:
        assert index.near_count <= 201
    assert index.near_count == index.count == 51
    assert sorted(each.entry_id for each in index.release(9999, 100)) == [*range(150, 200), 300]
