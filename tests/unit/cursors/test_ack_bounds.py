"""Bounds of acknowledgements: no client makes a cursor too large to store (`cursors.ack_state`, `batch_acks`,
`position_info`)."""

from __future__ import annotations

import pytest

from cursors import ack_state
from cursors.ack_ranges import CHUNK
from cursors.ack_state import BATCH_WORDS_MAX, BATCHES_MAX, AckState
from cursors.batch_acks import ACK_SET_WORDS_MAX, BATCH_SIZE_MAX, PAGE, RECOVERED_IN_STEP, BatchAcks
from cursors.cursor import Cursor
from cursors.entry_chain import EntryChain
from cursors.errors import CursorDamagedError, InvalidAckError, TooManyAcksError
from cursors.opening import create_cursor, memory_cursor, recover_cursor
from cursors.position_info import (
    ENTRY_BYTES_MAX,
    NODE_BYTES_MAX,
    CursorNode,
    decode_chain,
    decode_node,
    decoding,
    encode_node,
    encode_whole,
    node_takes,
)
from quire.ledger.position import Position
from quire.wire.pulsar import MLDataFormats_pb2 as pb
from tests.support.refusals import refuses
from tests.support.waiting import until
from tests.unit.cursors.fake_log import LOG_NAME, LOG_PATH, Bench, at, close, fake_log

LOG = fake_log((1, 100_000_000))


def state() -> AckState:
    return AckState(LOG, Position(1, -1))


def memory() -> Cursor:
    return memory_cursor(LOG, "reader", Position(1, -1))


@pytest.mark.parametrize("position", at((1, 5), (7, 5), (1, 100_000_000)))
def test_an_ack_set_longer_than_any_batch_is_refused(position: Position) -> None:
    cursor = memory()
    refuses(InvalidAckError, lambda: cursor.ack_batch(position, [-1] * (ACK_SET_WORDS_MAX + 1)))
    refuses(InvalidAckError, lambda: cursor.ack_cumulative(position, [-1] * (ACK_SET_WORDS_MAX + 1)))
    assert not cursor.has_ack_sets
    assert cursor.mark_delete == Position(1, -1)


def test_the_longest_ack_set_is_taken_and_comes_back() -> None:
    cursor = memory()
    words = [-1] * (ACK_SET_WORDS_MAX - 1) + [5]
    assert not cursor.ack_batch(Position(1, 5), words)
    assert cursor.ack_set(Position(1, 5)) == words


def test_batches_in_part_are_bounded_in_number_and_in_words_and_whole_acks_go_on() -> None:
    many = state()
    for entry in range(BATCHES_MAX):
        many.ack_batch(Position(1, 2 * entry + 1), 0b10)
    refuses(TooManyAcksError, lambda: many.ack_batch(Position(1, 999_999), 0b10))
    assert many.ack_batch(Position(1, 1), 0b11) == 0b10
    many.ack_individual(at((1, 3)))
    assert many.ack_batch(Position(1, 999_999), 0b10) == 0b10
    long = state()
    for entry in range(BATCH_WORDS_MAX // ACK_SET_WORDS_MAX):
        long.ack_batch(Position(1, 2 * entry + 1), (1 << BATCH_SIZE_MAX) - 1)
    refuses(TooManyAcksError, lambda: long.ack_batch(Position(1, 999_999), 0b10))
    assert len(encode_whole(long)) < ENTRY_BYTES_MAX
    long.ack_cumulative(Position(1, 999_999))
    assert (len(long.batches), long.batches.words) == (0, 0)


def test_the_largest_state_there_may_be_fits_an_entry() -> None:
    largest = state()
    for number in range(ack_state.PARTIAL_CHUNKS_MAX):
        largest.ack_individual([Position(1, number * CHUNK + 1)])
    for entry in range(BATCHES_MAX):
        largest.ack_batch(
            Position(1, 20_000 * CHUNK + 700 * entry), (1 << (64 * BATCH_WORDS_MAX // BATCHES_MAX - 64)) - 1
        )
    largest.with_redeliveries({Position(1, CHUNK * number + 7): 1 << 31 for number in range(20_000, 26_000)})
    beyond = [Position(1, number * CHUNK + 1) for number in range(90_000, 92_000)]
    with pytest.raises(TooManyAcksError) as refused:
        largest.ack_individual([Position(1, 3), *beyond])
    assert refused.value.positions == tuple(beyond)
    assert largest.is_acked(Position(1, 3))
    data = encode_whole(largest)
    assert len(data) < ENTRY_BYTES_MAX
    found = decode_chain([data])
    assert list(found.ranges.ranges()) == list(largest.ranges.ranges())
    assert list(found.batches.items()) == list(largest.batches.items())
    assert list(found.redeliveries) == [Position(1, CHUNK * number + 7) for number in range(21_000, 26_000)]
    largest.ack_cumulative(Position(1, 99_999_998))
    assert largest.ranges.partial_chunks == 0
    largest.ack_individual(beyond)


def test_batches_far_from_each_other_are_bounded_by_what_they_take_when_stored() -> None:
    index = fake_log((1, 1 << 40))
    scattered = AckState(index, Position(1, -1))

    def ack_all() -> None:
        for entry in range(BATCHES_MAX):
            scattered.ack_batch(Position(1, (1 << 39) + 10_000 * entry), 1 << 63)

    refuses(TooManyAcksError, lambda: ack_all())
    assert len(scattered.batches) > 40_000
    assert len(encode_whole(scattered)) < ENTRY_BYTES_MAX - ack_state.PARTIAL_CHUNKS_MAX * 133


def test_a_node_has_as_many_batches_as_ranges_and_never_more_bytes_than_metadata_take() -> None:
    many = state()
    for entry in range(BATCHES_MAX):
        many.ack_batch(Position(1, 2 * entry + 1), 0b10)
    assert not node_takes(many, 1000)
    _, snapshot = decode_node(encode_node(CursorNode(), many, count_max=1000))
    shown = list(snapshot.batches.items())
    assert 500 < len(shown) <= 1000
    assert shown == list(many.batches.items())[: len(shown)]
    assert not node_takes(state().with_redeliveries({Position(1, entry): 1 for entry in range(1001)}), 1000)
    long = state()
    for entry in range(BATCH_WORDS_MAX // ACK_SET_WORDS_MAX):
        long.ack_batch(Position(1, 2 * entry + 1), (1 << BATCH_SIZE_MAX) - 1)
    assert not node_takes(long, 1000)
    assert len(encode_node(CursorNode(), long, count_max=1000)) < NODE_BYTES_MAX


async def test_a_closed_cursor_with_as_many_ranges_as_a_node_takes_has_them_all(bench: Bench) -> None:
    made = await create_cursor(bench.services, LOG, LOG_PATH, LOG_NAME, "sub", Position(1, -1), [], bench.on_fenced)
    made.ack_individual(at(*((1, 2 * number + 1) for number in range(1000))))
    await close(made)
    assert bench.ledgers.listed() == set()
    found = await recover_cursor(bench.services, LOG, LOG_PATH, LOG_NAME, "sub", bench.on_fenced)
    assert all(found.is_acked(Position(1, 2 * number + 1)) for number in range(1000))


async def node_size(bench: Bench) -> int:
    """Return the size of the node of cursor `sub`."""
    found = await bench.metadata.get(f"{LOG_PATH}/sub")
    assert found is not None
    return len(found.value)


async def test_a_hundred_thousand_batches_in_part_keep_the_node_below_64_kb_and_come_back_from_the_ledger(
    bench: Bench,
) -> None:
    made = await create_cursor(bench.services, LOG, LOG_PATH, LOG_NAME, "sub", Position(1, -1), [], bench.on_fenced)
    for entry in range(100_000):
        made.ack_batch(Position(1, 2 * entry + 1), [0b1011])
    assert made.store is not None
    await made.store.wait_persisted()
    made.ack_individual(at(*((1, 4 * entry) for entry in range(2000))))
    made.ack_batch(Position(1, 7), [0b1000])
    assert made.store is not None
    await made.store.wait_persisted()
    assert await node_size(bench) < 65_536
    await made.store.close()
    assert await node_size(bench) < 65_536
    found = await recover_cursor(bench.services, LOG, LOG_PATH, LOG_NAME, "sub", bench.on_fenced)
    assert found.ack_set(Position(1, 7)) == [0b1000]
    assert all(found.ack_set(Position(1, 2 * entry + 1)) == [0b1011] for entry in range(4, 100_000))
    assert all(found.is_acked(Position(1, 4 * entry)) for entry in range(2000))


def test_an_ack_among_a_hundred_thousand_batches_changes_one_page_and_writes_one_batch() -> None:
    """Costs are counted: pages that are encoded again, and bytes of the entry that is written."""
    many = state()
    for entry in range(100_000):
        many.ack_batch(Position(1, 2 * entry + 1), 0b1011)
    chain = EntryChain()
    chain.next_entry(many, 0)
    many.ack_batch(Position(1, 100_001), 0b0011)
    assert sum(page.encoded is None for page in many.batches.pages()) == 1
    assert len(chain.next_entry(many, 1)) < 64
    many.ack_cumulative(Position(1, 150_000))
    assert len(many.batches) == 25_000
    assert sum(page.encoded is None for page in many.batches.pages()) == 1


def test_a_recovery_of_a_hundred_thousand_batches_goes_by_parts_of_pages() -> None:
    """A full page took 10 ms to decode."""
    many = state()
    for entry in range(100_000):
        many.ack_batch(Position(1, entry + 1), 0b1011)
    assert sum(1 for _ in decoding([encode_whole(many)])) > 100_000 // RECOVERED_IN_STEP
    pages = -(-100_001 // PAGE)
    assert sum(1 for _ in many.fitting_to_log()) in range(
        100_000 // RECOVERED_IN_STEP, 100_000 // RECOVERED_IN_STEP + pages + 1
    )


@pytest.mark.parametrize(
    "columns", [(b"\1\0", b"", b"x"), (b"\1\0", b"\2\0", b"x"), (b"\1\0", b"\0\0", b""), (b"\1", b"\1", b"x")]
)
def test_a_page_of_batches_with_inconsistent_columns_is_damage(columns: tuple[bytes, bytes, bytes]) -> None:
    info = pb.PositionInfo(ledgerId=1, entryId=0)
    entries, sizes, bitmaps = columns
    info.quireAcks.batches.add(ledgerId=1, firstEntryId=0, entries=entries, sizes=sizes, bitmaps=bitmaps)
    refuses(CursorDamagedError, lambda: decode_chain([info.SerializeToString()]))


async def test_more_batches_in_part_than_a_node_takes_stay_in_the_ledger_at_a_close_and_come_back(bench: Bench) -> None:
    made = await create_cursor(bench.services, LOG, LOG_PATH, LOG_NAME, "sub", Position(1, -1), [], bench.on_fenced)
    for entry in range(1500):
        made.ack_batch(Position(1, 2 * entry + 1), [0b100])
    await close(made)
    assert bench.ledgers.listed() == {100}
    found = await recover_cursor(bench.services, LOG, LOG_PATH, LOG_NAME, "sub", bench.on_fenced)
    assert all(found.ack_set(Position(1, 2 * entry + 1)) == [0b100] for entry in range(1500))


async def test_a_crash_before_the_first_entry_of_a_ledger_keeps_what_the_node_told(bench: Bench) -> None:
    """This holds although newer acknowledgements leave no room in the node for those that were durable in it."""
    made = await create_cursor(bench.services, LOG, LOG_PATH, LOG_NAME, "sub", Position(1, -1), [], bench.on_fenced)
    durable = at(*((1, 10_000 + 2 * number) for number in range(900)))
    made.ack_individual(durable)
    await close(made)
    assert bench.ledgers.listed() == set()
    owner = await recover_cursor(bench.services, LOG, LOG_PATH, LOG_NAME, "sub", bench.on_fenced)
    bench.ledgers.hold = True
    owner.ack_individual(at(*((1, 2 * number + 1) for number in range(900))))
    owner.persisted(lambda error: None)
    await until(lambda: bool(bench.ledgers.writers))
    bench.ledgers.close_by_others(100)
    found = await recover_cursor(bench.services, LOG, LOG_PATH, LOG_NAME, "sub", bench.on_fenced)
    assert all(map(found.is_acked, durable))


def test_passing_a_batch_costs_by_what_is_passed() -> None:
    batches = BatchAcks()
    for entry in range(50_000):
        batches.ack(Position(1, entry), 0b10)
    batches.forget_through(Position(1, 9))
    heaps = [page.heap for page in batches.pages()]
    assert sum(map(len, heaps)) == len(batches) == 49_990
    for _ in range(3):
        for entry in range(10, 50_000):
            batches.forget(Position(1, entry))
        for entry in range(10, 50_000):
            batches.ack(Position(1, entry), 0b10)
    assert sum(len(page.heap) for page in batches.pages()) < 4 * 50_000
    assert len(batches._heap) < 4 * batches.page_count + 64
    batches.forget_through(Position(1, 49_999))
    assert (len(batches), batches.page_count, batches.words) == (0, 0, 0)
