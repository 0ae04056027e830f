"""Stored form of an index, made in one go."""

from __future__ import annotations

from broker.dispatch.delayed.blocks import ROWS_MAX, StoredBlock
from broker.dispatch.delayed.index import DelayedIndex


def stored_blocks(index: DelayedIndex, most: int = ROWS_MAX) -> list[StoredBlock]:
    steps = index.storing(most)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            found: list[StoredBlock] = done.value
            return found
