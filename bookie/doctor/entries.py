"""Check of entries in entry logs against the index that points to them and against their digests.

Only one type of digest needs the ledger's password, but a bookie does not know the type. So an entry that matches
neither of the two types without a key counts as damaged if another entry of its ledger matches one.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

from bookie.db_ledger_storage.entry_log_format import ENTRY_LENGTH_MIN, HEADER_LENGTH, SIZE_LENGTH, log_name
from quire.wire.bookkeeper.entry import Digest, DigestType
from quire.wire.bookkeeper.errors import DigestMismatchError
from quire.wire.bookkeeper.v2 import FRAME_MAX
from quire.world.doors import Disk, File

_IDS: Final = Struct("!qq")
_POSITION: Final = 0xFFFFFFFF
_GUESS: Final = 4096
_OPEN_FILES_MAX: Final = 64
_KEYLESS: Final = (DigestType.CRC32C, DigestType.CRC32)


class Damaged(NamedTuple):
    """An entry that cannot be read at the place that the index names."""

    ledger_id: int
    entry_id: int
    what: str


class EntryCheck:
    """Check of entries: call `check` for each row of the index, then read `damages`. Blocking."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._files: dict[int, File] = {}
        self._damages: dict[int, list[Damaged]] = {}
        self._digests: dict[int, Digest] = {}
        """Digest type by ledger, as matched by one of its entries."""
        self._unmatched: dict[int, list[tuple[int, int]]] = {}
        """Entries (log, entry) by ledger that match no digest without a key.

        They are damaged if other entries of the ledger match one.
        """

    def check(self, ledger_id: int, entry_id: int, location: int) -> None:
        log_id, position = location >> 32, (location & _POSITION) - SIZE_LENGTH
        file = self._file(log_id)
        if file is None:
            self._damaged(log_id, ledger_id, entry_id, "it is missing")
            return
        data = file.pread(_GUESS, position)
        size = int.from_bytes(data[:SIZE_LENGTH], "big", signed=True)
        if position < HEADER_LENGTH or not ENTRY_LENGTH_MIN <= size <= FRAME_MAX:
            self._damaged(log_id, ledger_id, entry_id, f"no entry {ledger_id}:{entry_id} at {position}")
            return
        if SIZE_LENGTH + size > len(data):
            data += file.pread(SIZE_LENGTH + size - len(data), position + len(data))
        if len(data) < SIZE_LENGTH + size:
            self._damaged(log_id, ledger_id, entry_id, f"it ends in entry {ledger_id}:{entry_id}")
            return
        entry = memoryview(data)[SIZE_LENGTH : SIZE_LENGTH + size]
        if _IDS.unpack_from(entry) != (ledger_id, entry_id):
            what = f"another entry at {position}, where {ledger_id}:{entry_id} should be"
            self._damaged(log_id, ledger_id, entry_id, what)
            return
        if not self._matches(ledger_id, entry_id, entry):
            self._unmatched.setdefault(ledger_id, []).append((log_id, entry_id))

    def _matches(self, ledger_id: int, entry_id: int, entry: memoryview) -> bool:
        known = self._digests.get(ledger_id)
        for digest in (known,) if known is not None else map(Digest, _KEYLESS):
            try:
                digest.open(ledger_id, entry_id, entry)
            except DigestMismatchError:
                continue
            self._digests[ledger_id] = digest
            return True
        return False

    def damages(self) -> Iterator[tuple[int, list[Damaged]]]:
        """Return damages by log, in order.

        Ledgers without any matching entry use a digest with a key, or none; they are left out.
        """
        for ledger_id, entries in self._unmatched.items():
            if ledger_id in self._digests:
                for log_id, entry_id in entries:
                    self._damaged(
                        log_id, ledger_id, entry_id, f"entry {ledger_id}:{entry_id} does not match its digest"
                    )
        yield from sorted(self._damages.items())

    def _damaged(self, log_id: int, ledger_id: int, entry_id: int, what: str) -> None:
        self._damages.setdefault(log_id, []).append(Damaged(ledger_id, entry_id, what))

    def _file(self, log_id: int) -> File | None:
        file = self._files.get(log_id)
        if file is None:
            if len(self._files) >= _OPEN_FILES_MAX:
                self._files.pop(next(iter(self._files))).close()
            try:
                file = self._files[log_id] = self._disk.open(f"{self._directory}/{log_name(log_id)}", writable=False)
            except FileNotFoundError:
                return None
        return file

    def close(self) -> None:
        for file in self._files.values():
            file.close()
