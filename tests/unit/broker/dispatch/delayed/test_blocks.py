from __future__ import annotations

import random

import pytest

from broker.dispatch.delayed.blocks import BLOCK, ROWS_MAX, VERSION, decode_blocks, encode_blocks, is_readable
from broker.dispatch.delayed.index import STORED_IN_STEP, DelayedIndex
from tests.unit.broker.dispatch.delayed.stored import stored_blocks


def test_an_index_comes_back_from_its_stored_form() -> None:
    index = DelayedIndex()
    drawn = random.Random(3)
    for entry_id in drawn.sample(range(20 * BLOCK), 5000):
        index.add(drawn.randrange(1, 1 << 50), 7, entry_id)
    blocks = stored_blocks(index)
    stored = VERSION + encode_blocks(blocks[:3]) + encode_blocks(blocks[3:])
    assert is_readable(stored)
    assert list(decode_blocks(stored)) == blocks
    again = DelayedIndex()
    for block in decode_blocks(stored):
        again.restore(block)
    assert again.count == 5000
    assert all(again.holds(7, entry_id) == index.holds(7, entry_id) for entry_id in range(20 * BLOCK))


def test_a_block_is_stored_with_its_own_earliest_time_so_that_others_are_not_read_for_it() -> None:
    index = DelayedIndex()
    for number in range(8):
        for entry_id in range(9):
            index.add(1000 * (number + 1) + entry_id, 1, number * BLOCK + entry_id)
    assert [block.first_due_ms for block in stored_blocks(index)] == [1000 * (number + 1) for number in range(8)]


def test_a_million_delayed_messages_take_152_bytes_in_a_thousand_and_no_step_takes_more_than_512_blocks() -> None:
    index = DelayedIndex()
    for entry_id in range(0, 1024 * BLOCK, 50):
        index.add(10_000 + entry_id, 1, entry_id)
    blocks = stored_blocks(index)
    assert len(encode_blocks(blocks)) == 152 * 1024
    far = DelayedIndex()
    for block in blocks:
        far.restore(block)
    assert sum(1 for _ in far.storing(ROWS_MAX)) == 1 + 1024 // STORED_IN_STEP
    assert len(stored_blocks(index, 100)) == 100


@pytest.mark.parametrize("stored", [b"", b"\2", VERSION + b"x", b"\0" * 153])
def test_an_index_of_another_version_is_left_alone(stored: bytes) -> None:
    assert not is_readable(stored)
