"""Ledger index: existence, fence, master key and explicit LAC of each ledger, in memory and in an ordered map.

`flush` writes the changes to the map `current/ledgers`.

    key    int64 ledger id; 16 bytes are read as well (a tool of the original appends entry id 0); negative: not ours
    value  LedgerData (quire/wire/bookkeeper/DbLedgerStorageDataFormats.proto)

A ledger that was fenced and then forgotten is unknown but still fenced: see forgotten_fences.py.

The journal has every change too, so nothing is lost before the flush. But the journal's mark must not pass a change
that `flush` has not written, so `flush` is called for every mark, also when there are no entries to write.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

from google.protobuf.message import DecodeError

from bookie.db_ledger_storage.ledger_removal import id_ranges
from bookie.errors import StorageDamagedError
from quire.wire.bookkeeper.DbLedgerStorageDataFormats_pb2 import LedgerData
from quire.world.doors import KeyValue

_ROWS_PER_BATCH: Final = 1000
_SHARED_MAX: Final = 1000
"""Different rows that are shared when all are read."""
_FIRST_KEY: Final = bytes(8)
_PAST_LAST_KEY: Final = b"\x80"
"""Above every key of an id >= 0; those of negative ids begin here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRow:
    """Facts of one ledger.

    `explicit_lac` is a LAC package with its digest, as the client sent it. `limbo`: acknowledged entries may be missing
    here, so "not here" proves nothing.
    """

    master_key: bytes = b""
    fenced: bool = False
    explicit_lac: bytes | None = None
    limbo: bool = False

    def encode(self) -> bytes:
        """
        >>> LedgerRow(master_key=b"k", fenced=True).encode().hex()
        '080110011a016b'
        """
        data = LedgerData(exists=True, fenced=self.fenced, masterKey=self.master_key)
        if self.explicit_lac is not None:
            data.explicitLac = self.explicit_lac
        if self.limbo:
            data.limbo = True
        encoded: bytes = data.SerializeToString()
        return encoded

    @classmethod
    def decode(cls, value: bytes) -> LedgerRow:
        """Decode a row. StorageDamagedError if it is no LedgerData."""
        data = LedgerData()
        try:
            data.ParseFromString(value)
        except DecodeError as error:
            raise StorageDamagedError(f"a row of the ledger index is no LedgerData: {error}") from error
        if not data.IsInitialized():
            raise StorageDamagedError("a row of the ledger index lacks a required field")
        return cls(
            master_key=data.masterKey,
            fenced=data.fenced,
            explicit_lac=data.explicitLac if data.HasField("explicitLac") else None,
            limbo=data.limbo,
        )


_UNKNOWN: Final = LedgerRow()
_FENCED: Final = LedgerRow(fenced=True)


class LedgerIndex:
    """Ledger index of one bookie directory.

    Only `load`, `write`, `delete_rows` and `close` block; they may run in a worker.
    """

    def __init__(self, rows: KeyValue, was_fenced: Callable[[int], bool] = lambda ledger_id: False) -> None:
        """Create an empty index.

        `was_fenced`: returns whether a ledger that is unknown now was fenced when it was forgotten.
        """
        self._rows = rows
        self._was_fenced = was_fenced
        self._states: dict[int, LedgerRow] = {}
        self._last_made = _UNKNOWN
        self._dirty: dict[int, None] = {}
        self._taken: list[int] = []
        """Ledgers whose rows were taken last, and may not be written yet."""

    def load(self) -> None:
        """Read all rows into memory.

        StorageDamagedError if one cannot be read: without its fence a ledger would be unsafe.
        """
        known: dict[bytes, LedgerRow] = {}  # nearly all ledgers have one password: they share the object
        for key, value in self._rows.scan(_FIRST_KEY, _PAST_LAST_KEY):
            if len(key) not in (8, 16):
                raise StorageDamagedError(f"a key of the ledger index has {len(key)} bytes")
            ledger_id = int.from_bytes(key[:8], "big")
            # A 16-byte row from a rebuild sorts after a row that we wrote later, and is older.
            if len(key) == 8 or ledger_id not in self._states:
                state = known.get(value)
                if state is None:
                    state = LedgerRow.decode(value)
                    if len(known) < _SHARED_MAX:
                        known[value] = state
                self._states[ledger_id] = state

    def __contains__(self, ledger_id: int) -> bool:
        return ledger_id in self._states

    def __len__(self) -> int:
        return len(self._states)

    def ledgers(self) -> list[int]:
        """Return the ids of all known ledgers, sorted."""
        return sorted(self._states)

    def known(self) -> list[int]:
        """As `ledgers`, unsorted."""
        return list(self._states)

    def unwritten(self) -> list[int]:
        """Return known ledgers, among them all that may have no rows yet."""
        return [ledger_id for ledger_id in (*self._dirty, *self._taken) if ledger_id in self._states]

    def ids_from(self, first: int, count_max: int) -> list[int]:
        """Return the lowest `count_max` ids from `first` on that have rows. Blocking."""
        rows = islice(self._rows.scan(first.to_bytes(8, "big"), _PAST_LAST_KEY), count_max)
        return [int.from_bytes(key[:8], "big") for key, _ in rows]

    def get(self, ledger_id: int) -> LedgerRow | None:
        """Return the state of the ledger, None if it is unknown."""
        return self._states.get(ledger_id)

    def is_fenced(self, ledger_id: int) -> bool:
        """Return whether only recovery may add to the ledger, known or not."""
        state = self._states.get(ledger_id)
        return self._was_fenced(ledger_id) if state is None else state.fenced

    def key_and_fence(self, ledger_id: int) -> tuple[bytes | None, bool]:
        """The key, None if there is none, and as `is_fenced`."""
        state = self._states.get(ledger_id)
        if state is None:
            return None, self._was_fenced(ledger_id)
        return state.master_key or None, state.fenced

    def _known(self, ledger_id: int) -> LedgerRow:
        """Return the state of a ledger, or a new one: a ledger that comes back is fenced if it was fenced before."""
        state = self._states.get(ledger_id)
        if state is None:
            return _FENCED if self._was_fenced(ledger_id) else _UNKNOWN
        return state

    def _put(self, ledger_id: int, state: LedgerRow) -> None:
        if self._states.get(ledger_id) != state:
            self._states[ledger_id] = state
            self._dirty[ledger_id] = None

    def set_master_key(self, ledger_id: int, key: bytes) -> None:
        state = replace(self._known(ledger_id), master_key=key)
        if state == self._last_made:
            state = self._last_made  # nearly all ledgers are new and have one password: share the object
        else:
            self._last_made = state
        self._put(ledger_id, state)

    def set_fenced(self, ledger_id: int) -> None:
        """Fence the ledger permanently; makes an unknown ledger known."""
        self._put(ledger_id, replace(self._known(ledger_id), fenced=True))

    def set_explicit_lac(self, ledger_id: int, package: bytes) -> None:
        self._put(ledger_id, replace(self._known(ledger_id), explicit_lac=package))

    def set_limbo(self, ledger_id: int, key: bytes) -> None:
        """Put the ledger into limbo and fence it; makes an unknown ledger known. `key`: used if none is known."""
        state = self._known(ledger_id)
        self._put(ledger_id, replace(state, master_key=state.master_key or key, fenced=True, limbo=True))

    def clear_limbo(self, ledger_id: int) -> None:
        """End the limbo of the ledger; no effect if it is unknown."""
        state = self._states.get(ledger_id)
        if state is not None:
            self._put(ledger_id, replace(state, limbo=False))

    def take_dirty(self) -> list[tuple[int, LedgerRow]]:
        """Return the changes since the last call. The caller writes them, or returns them with `mark_dirty`."""
        taken = [(ledger_id, self._states[ledger_id]) for ledger_id in self._dirty if ledger_id in self._states]
        self._dirty.clear()
        self._taken = [ledger_id for ledger_id, _ in taken]
        return taken

    @property
    def dirty_ledgers(self) -> list[int]:
        """Return the ledgers with changes that were not taken."""
        return list(self._dirty)

    def mark_dirty(self, taken: Sequence[tuple[int, LedgerRow]]) -> None:
        """Take back changes that were not written."""
        for ledger_id, _ in taken:
            if ledger_id in self._states:
                self._dirty[ledger_id] = None

    def write(self, taken: Sequence[tuple[int, LedgerRow]]) -> None:
        """Write taken changes; durable on return. OSError: nothing is certain; return them with `mark_dirty`."""
        for begin in range(0, len(taken), _ROWS_PER_BATCH):
            batch = self._rows.batch()
            for ledger_id, state in taken[begin : begin + _ROWS_PER_BATCH]:
                batch.put(ledger_id.to_bytes(8, "big"), state.encode())
            self._rows.write(batch, sync=begin + _ROWS_PER_BATCH >= len(taken))

    def forget(self, ledger_id: int) -> None:
        """Drop a ledger from memory; `delete_rows` drops it from the disk."""
        self._states.pop(ledger_id, None)
        self._dirty.pop(ledger_id, None)

    def delete_rows(self, ledgers: Sequence[int]) -> None:
        """Delete these ledgers' rows, of both key lengths, durably on return."""
        batch = self._rows.batch()
        for first, last in id_ranges(ledgers):
            batch.delete_range(first.to_bytes(8, "big"), (last + 1).to_bytes(8, "big"))
        self._rows.write(batch, sync=True)

    def close(self) -> None:
        self._rows.close()
