"""Fences that outlive their ledgers: what garbage collection dropped while it was fenced takes no writer's adds any more.

A writer may sleep while others recover, close and delete its ledger and the bookies drop it. Without its fence the ledger would
look like a new one when the writer wakes up, and what it adds would be confirmed and never found. So the bookie remembers
such ledgers, over restarts too, for KEPT_MS, and the newest KEPT_MAX of them at most. Recovery's adds are taken as ever:
a ledger that is only moved away from here, and not deleted, may come back that way, still fenced.

A ledger that was never fenced is not remembered: who deletes it under its only writer knows both, and an id that the caller
chose may be used again. Nor is one that never was here: there is no fence to forget.

Source: BookKeeper's #4462, which remembers them for seven days from their last use, in memory.

    file   magic(8)   (ledger id(8)   forgotten at(8), ms since 1970)*   crc32c(4) of all before it; the oldest first,
           of ledgers that had no entry here with the time negated, before the others

Anyone may fence any number of ledgers that do not exist. KEPT_MAX holds for ledgers with and without entries apart, so that
those push out no fence of a ledger that was written here.

The original's programs leave a file of this name alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from itertools import chain, islice, takewhile
from struct import pack, unpack
from typing import Final

from crc32c import crc32c

from bookie.errors import StorageDamagedError
from quire.service.log import get_logger
from quire.world.doors import Disk

log = get_logger(__name__)

FILE_NAME: Final = "forgottenFences"
KEPT_MS: Final = 7 * 24 * 3600 * 1000
"""Milliseconds by the wall clock for which a fence is remembered: no process sleeps for longer."""
KEPT_MAX: Final = 100_000
"""Ledgers remembered at most: 16 bytes of the file and about 100 of memory for each."""
_MAGIC: Final = b"QUIREFF1"
_SUM_LENGTH: Final = 4
_REMEDY: Final = (
    "If no client that was writing before this bookie went down still runs, an empty one may take its place: "
    f"echo {(_MAGIC + crc32c(_MAGIC).to_bytes(_SUM_LENGTH, 'big')).hex()} | xxd -r -p > {FILE_NAME}"
)


class ForgottenFences:
    """Of one bookie directory. Only `load` and `save` block. `wall_ms` tells the date."""

    def __init__(self, disk: Disk, path: str, wall_ms: Callable[[], int]) -> None:
        self._disk = disk
        self._path = path
        self._wall_ms = wall_ms
        self._forgotten_at: dict[int, int] = {}
        """By ledger, in the order in which they were forgotten."""
        self._empty_forgotten_at: dict[int, int] = {}
        """The same, of ledgers that had no entry here."""

    def __contains__(self, ledger_id: int) -> bool:
        at = self._forgotten_at.get(ledger_id)
        if at is None:
            at = self._empty_forgotten_at.get(ledger_id)
        return at is not None and self._wall_ms() - at < KEPT_MS

    def __len__(self) -> int:
        return len(self._forgotten_at) + len(self._empty_forgotten_at)

    def load(self, *, must_exist: bool = False) -> None:
        """Read the file; an empty one is made where none was yet. StorageDamagedError, OSError: a lost fence lets a writer go on."""
        try:
            data = self._disk.read(self._path)
        except FileNotFoundError as error:
            if must_exist:
                raise StorageDamagedError(f"{self._path} is missing: {_REMEDY}") from error
            self.save()
            return
        try:
            self._forgotten_at, self._empty_forgotten_at = decode(data)
        except ValueError as error:
            raise StorageDamagedError(f"{self._path} is damaged: {error}. {_REMEDY}") from error

    def add(self, ledgers: Iterable[int], written: Collection[int] | None = None) -> None:
        """Remember these from now on, in memory; `save` before their rows are deleted. `written`: those of them that had
        entries here (None: all)."""
        now = self._wall_ms()
        for ledger_id in ledgers:
            self._forgotten_at.pop(ledger_id, None)
            self._empty_forgotten_at.pop(ledger_id, None)
            has_entries = written is None or ledger_id in written
            (self._forgotten_at if has_entries else self._empty_forgotten_at)[ledger_id] = now
        for kept in (self._forgotten_at, self._empty_forgotten_at):
            for ledger_id, _ in list(takewhile(lambda row: now - row[1] >= KEPT_MS, kept.items())):
                del kept[ledger_id]
            if (too_many := len(kept) - KEPT_MAX) > 0:
                for ledger_id in list(islice(kept, too_many)):
                    del kept[ledger_id]
                log.warning("fences of deleted ledgers were forgotten before their time", ledgers=too_many)

    def save(self) -> None:
        """Write all that is remembered, durably on return. Not beside another `save` or `add`. OSError: as before."""
        self._disk.write_atomic(self._path, encode(self._forgotten_at, self._empty_forgotten_at))


def encode(forgotten_at: dict[int, int], empty_forgotten_at: dict[int, int] | None = None) -> bytes:
    """
    >>> encode({7: 1}).hex()
    '515549524546463100000000000000070000000000000001d2a151c4'
    """
    empty = [(ledger_id, -at) for ledger_id, at in (empty_forgotten_at or {}).items()]
    rows = [*empty, *forgotten_at.items()]
    data = _MAGIC + pack(f"!{2 * len(rows)}q", *chain.from_iterable(rows))
    return data + crc32c(data).to_bytes(_SUM_LENGTH, "big")


def decode(data: bytes) -> tuple[dict[int, int], dict[int, int]]:
    """What `encode` was given. ValueError if these are not the bytes of `encode`."""
    body = data[:-_SUM_LENGTH]
    if crc32c(body) != int.from_bytes(data[-_SUM_LENGTH:], "big"):
        raise ValueError("its checksum is wrong")
    if not body.startswith(_MAGIC) or len(body) % 16 != len(_MAGIC):
        raise ValueError(f"it is not a file of {_MAGIC.decode()}")
    numbers = unpack(f"!{(len(body) - len(_MAGIC)) // 8}q", body[len(_MAGIC) :])
    rows = list(zip(numbers[::2], numbers[1::2], strict=True))
    return {each: at for each, at in rows if at >= 0}, {each: -at for each, at in rows if at < 0}
