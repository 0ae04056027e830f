"""Decides the next entry of a cursor ledger: the whole state, or only the changes since the last whole one. Pure.

A delta is cheap to write, but a recovery reads all deltas back to the whole state before them. So a chain of deltas
ends when it has grown to a multiple of that state, and a state that is small is always written whole.
"""

from __future__ import annotations

from cursors.ack_state import AckState
from cursors.position_info import (
    ENTRY_BYTES_MAX,
    delayed_index_field,
    delayed_place_field,
    encode_delta,
    encode_whole,
    estimate,
)

SMALL_BYTES = 1024
"""Size below which a state is always written whole."""
CHAIN_BYTES_MIN = 64 * 1024
CHAIN_ENTRIES_MAX = 1000
DELTA_BATCHES_MAX = 1000
"""Changed batches above which the whole state is written: it has them encoded by the page."""
_NO_ENTRY = -1
_FIELD_BYTES = 32


class EntryChain:
    """The entries of one cursor ledger."""

    __slots__ = (
        "_base_bytes",
        "_base_entry_id",
        "_chain_bytes",
        "_chain_entries",
        "_delayed",
        "_delayed_entry_id",
        "sent_at",
    )

    def __init__(self) -> None:
        self._base_entry_id = _NO_ENTRY
        self._base_bytes = self._chain_bytes = self._chain_entries = 0
        self._delayed = b""
        """Index of delayed messages as this ledger has it."""
        self._delayed_entry_id = _NO_ENTRY
        self.sent_at = 0.0
        """Time of the event loop at which the last entry was sent, noted by the writer."""

    def is_whole(self, state: AckState) -> bool:
        """Return whether the next entry has the whole state."""
        changes = state.changes
        return (
            changes.replaced
            or self._base_entry_id == _NO_ENTRY
            or estimate(state) <= SMALL_BYTES
            or self._chain_bytes > max(CHAIN_BYTES_MIN, 2 * self._base_bytes)
            or self._chain_entries >= CHAIN_ENTRIES_MAX
            or len(changes.batches) > DELTA_BATCHES_MAX
        )

    def next_entry(self, state: AckState, entry_id: int) -> bytes:
        """Everything acknowledged so far, as entry `entry_id` of the ledger. CursorTooLargeError."""
        is_whole, changes = self.is_whole(state), state.take_changes()
        if is_whole:
            data = encode_whole(state)
            data += self._delayed_field(state.delayed_index, entry_id, ENTRY_BYTES_MAX - len(data))
            self._base_entry_id, self._base_bytes = entry_id, len(data)
            self._chain_bytes = self._chain_entries = 0
        else:
            data = encode_delta(state, changes, self._base_entry_id)
            self._chain_bytes += len(data)
            self._chain_entries += 1
        return data

    def _delayed_field(self, index: bytes, entry_id: int, room: int) -> bytes:
        """Return the field of entry `entry_id` with the index of delayed messages, or with the place it has in this
        ledger. An index for which there is no room is left out: it is read from the log again."""
        if index is self._delayed:
            return delayed_place_field(self._delayed_entry_id) if index else b""
        if not index or len(index) + _FIELD_BYTES > room:
            return b""
        self._delayed, self._delayed_entry_id = index, entry_id
        return delayed_index_field(index)
