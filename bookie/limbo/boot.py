"""The file DIRTY of a running bookie, from which the next start finds whether a kill has lost data.

    <kernel's boot id>                            entries were journaled
    <kernel's boot id> journalWriteData=false     they were not
    empty                                         written by the original

The kernel keeps what a killed process wrote until the machine restarts, so with the same boot id an unsynced journal is
whole. Entries that were only in memory are lost in any case.
"""

from __future__ import annotations

from typing import Final

from quire.world.doors import Disk

_BOOT_ID: Final = "/proc/sys/kernel/random/boot_id"


_BOOT_ID_MAX: Final = 64
UNJOURNALED: Final = b" " * _BOOT_ID_MAX + b"journalWriteData=false"
"""Follows the boot id. Its length alone marks such a run, so that no damaged bit can hide it."""


def dirty_mark(boot: bytes, *, journaled: bool) -> bytes:
    """Return the content of DIRTY."""
    return boot if journaled else boot + UNJOURNALED


def is_unjournaled(mark: bytes) -> bool:
    """Return whether the run that wrote this did not journal its entries."""
    return len(mark) > _BOOT_ID_MAX


def loss_of(mark: bytes, boot: bytes, *, journaled: bool, synced: bool) -> str:
    """Return why a bookie that was not shut down lacks data, "" if it does not. Pure.

    `mark`: what its DIRTY has; `boot`: the kernel's boot id now; `journaled`, `synced`: how it is configured now.

    >>> loss_of(dirty_mark(b"a", journaled=False), b"a", journaled=True, synced=True)
    'it was not shut down, with journalWriteData=false'
    >>> loss_of(b"", b"a", journaled=False, synced=True)
    'it was not shut down, with journalWriteData=false'
    >>> loss_of(b"a", b"b", journaled=True, synced=False), loss_of(b"a", b"a", journaled=False, synced=False)
    ('it was not shut down, with journalSyncData=false', '')
    """
    if is_unjournaled(mark) or (not journaled and not mark):
        return "it was not shut down, with journalWriteData=false"
    if not synced and (not mark or mark != boot):
        return "it was not shut down, with journalSyncData=false"
    return ""


def boot_id(disk: Disk) -> bytes:
    """Return an id that the kernel chooses when the machine starts; empty if it has none. Blocking."""
    try:
        return disk.read(_BOOT_ID).strip()
    except OSError:
        return b""
