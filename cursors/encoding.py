"""Encoding of large cursors in steps: the pages of half-acknowledged batches that have changed since the last time.

An entry with the whole state joins what its pages were encoded to. If many have changed, that took 15 ms for 100,000
batches side by side, and 50 ms for as many that are 900 entries apart. So they are encoded before, some in each step of
the event loop; what changes in the meantime is little, and left to the entry.
"""

from __future__ import annotations

import trio

from cursors.ack_state import AckState
from cursors.batch_acks import LARGE_COST, PAGE_COST
from cursors.position_info import page_codec

STEP_COST = 8_000
"""Cost of a step: a batch costs 1, a page PAGE_COST more. It takes about 1.5 ms."""
ROUNDS_MAX = 10


def is_slow(state: AckState) -> bool:
    """Return whether an entry with the whole state would have to encode too much at once."""
    encode = page_codec(state)
    changed = [page for page in state.batches.pages() if not page.is_encoded(encode)]
    return sum(PAGE_COST + len(page.unacked) for page in changed) > LARGE_COST


async def encode_pages(state: AckState) -> None:
    """Encode changed pages in steps, until few are left."""
    for _ in range(ROUNDS_MAX):
        cost, encode = 0, page_codec(state)
        for page in state.batches.pages():
            if page.is_encoded(encode):
                continue
            cost += PAGE_COST + len(page.unacked)
            page.encode(encode)
            if cost >= STEP_COST:
                cost = 0
                await trio.lowlevel.checkpoint()
        if not is_slow(state):
            break
