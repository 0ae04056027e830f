"""Fences that outlive their ledgers: a ledger deleted while fenced accepts no more adds from a writer.

A writer may be suspended while other clients recover, close and delete its ledger and the bookies drop it. Without its
fence the ledger would look new when the writer resumes; its adds would be confirmed and never found. The bookie
therefore remembers such ledgers, also after restarts, for KEPT_MS and at most the newest KEPT_MAX of them. Recovery's
adds are still accepted: a ledger that was moved away from here but not deleted may come back that way, still fenced.

A ledger that was never fenced is not remembered: a caller that deletes it under its only writer knows of both, and an
id chosen by a caller may be used again. A ledger that was never here is not remembered either: it has no fence.

Source: BookKeeper's #4462, which remembers them for seven days from their last use, in memory.

    file   magic(8)   (ledger id(8)   forgotten at(8), ms since 1970)*   crc32c(4) of all before it; the oldest first,
           ledgers that had no entry here come first, with the time negated

A client may fence any number of ledgers that do not exist. KEPT_MAX applies separately to ledgers with and without
entries, so that such fences evict no fence of a ledger that was written here.

The original's programs ignore a file of this name.
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
"""Milliseconds by the wall clock for which a fence is remembered: longer than any process is expected to be suspended.
"""
KEPT_MAX: Final = 100_000
"""Ledgers remembered at most: 16 bytes of the file and about 100 of memory for each."""
_MAGIC: Final = b"QUIREFF1"
_SUM_LENGTH: Final = 4
_REMEDY: Final = (
    "If no client that was writing before this bookie went down is still running, create an empty file instead: "
    f"echo {(_MAGIC + crc32c(_MAGIC).to_bytes(_SUM_LENGTH, 'big')).hex()} | xxd -r -p > {FILE_NAME}"
)


class ForgottenFences:
    """Forgotten fences of one bookie directory. Only `load` and `save` block. `wall_ms` returns the date."""

    def __init__(self, disk: Disk, path: str, wall_ms: Callable[[], int]) -> None:
        self._disk = disk
        self._path = path
        self._wall_ms = wall_ms
        self._forgotten_at: dict[int, int] = {}
        """Time of forgetting by ledger, in the order in which they were forgotten."""
        self._empty_forgotten_at: dict[int, int] = {}
        """The same for ledgers that had no entry here."""

    def __contains__(self, ledger_id: int) -> bool:
        at = self._forgotten_at.get(ledger_id)
        if at is None:
            at = self._empty_forgotten_at.get(ledger_id)
        return at is not None and self._wall_ms() - at < KEPT_MS

    def __len__(self) -> int:
        return len(self._forgotten_at) + len(self._empty_forgotten_at)

    def ledgers(self) -> list[int]:
        """Return the ids of the remembered ledgers, also of those whose time is over."""
        return [*self._empty_forgotten_at, *self._forgotten_at]

    def load(self, *, must_exist: bool = False) -> None:
        """Read the file; create an empty one if there was none yet.

        StorageDamagedError, OSError: without its fence a ledger would accept its old writer's adds.
        """
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
        """Remember these ledgers from now on, in memory; call `save` before their rows are deleted.

        `written`: those of them that had entries here (None: all).
        """
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
                log.warning("fences of deleted ledgers were evicted before they expired", ledgers=too_many)

    def save(self) -> None:
        """Write everything remembered; durable on return.

        Not concurrently with another `save` or `add`. OSError: the file is as before.
        """
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
    """Return what `encode` was given. ValueError if these are not bytes of `encode`."""
    body = data[:-_SUM_LENGTH]
    if crc32c(body) != int.from_bytes(data[-_SUM_LENGTH:], "big"):
        raise ValueError("its checksum is wrong")
    if not body.startswith(_MAGIC) or len(body) % 16 != len(_MAGIC):
        raise ValueError(f"it is not a file of {_MAGIC.decode()}")
    numbers = unpack(f"!{(len(body) - len(_MAGIC)) // 8}q", body[len(_MAGIC) :])
    rows = list(zip(numbers[::2], numbers[1::2], strict=True))
    return {each: at for each, at in rows if at >= 0}, {each: -at for each, at in rows if at < 0}
