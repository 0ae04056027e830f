"""Acknowledgements of parts of batches, beside 0 to 100,000 other half-acknowledged batches of the subscription.

    scripts/bench acks [--rounds 1000]

One acknowledgement is applied to the cursor's memory and encoded as the next entry of its ledger, as for a client that
waits for each answer. The figures are CPU microseconds per acknowledgement, bytes of its entry, and bytes of the node.
"""

from __future__ import annotations

import time
from typing import Annotated

import typer

from cursors.ack_state import AckState
from cursors.config import CursorConfig
from cursors.entry_chain import EntryChain
from cursors.position_info import CursorNode, encode_node, encode_whole
from managed_ledger.ledger_list import LedgerInfo
from managed_ledger.log_index import LogIndex
from quire.ledger.position import Position
from quire.service.programs.command_line import run_command

COUNTS = (0, 1000, 10_000, 100_000)
ENTRIES = 1_000_000


def main() -> int:
    """Run the command line; return the exit code."""
    return run_command(acks, name="scripts/bench acks", text=__doc__)


def acks(
    rounds: Annotated[int, typer.Option()] = 1000,
) -> int:
    print(f"{'batches':>8} {'ack us':>8} {'entry':>8} {'whole':>9} {'node':>7}")
    for count in COUNTS:
        state = AckState(log(), Position(1, -1))
        for number in range(max(0, count - 1)):
            state.ack_batch(Position(1, 2 * number + 1), 0b1011)
        chain = EntryChain()
        chain.next_entry(state, 0)
        written = 0
        begun = time.process_time()
        for number in range(rounds):
            state.ack_batch(Position(1, ENTRIES - 1), (1 << 2 * rounds - number) - 1)
            written += len(chain.next_entry(state, number + 1))
        ack_us = (time.process_time() - begun) * 1e6 / rounds
        node = len(encode_node(CursorNode(ledger_id=2), state, count_max=CursorConfig().node_ranges_max))
        print(f"{count:>8} {ack_us:>8.1f} {written // rounds:>8} {len(encode_whole(state)):>9} {node:>7}")
    return 0


def log() -> LogIndex:
    """Return the index of a log with one ledger."""
    index = LogIndex()
    index.set([LedgerInfo(ledger_id=1, entries=ENTRIES)], 1)
    index.last_confirmed = Position(1, ENTRIES - 1)
    return index
