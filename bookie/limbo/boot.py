"""Id of the kernel's run, which tells a killed process from a machine that restarted."""

from __future__ import annotations

from typing import Final

from quire.world.doors import Disk

_BOOT_ID: Final = "/proc/sys/kernel/random/boot_id"


def boot_id(disk: Disk) -> bytes:
    """Return an id that the kernel chooses when the machine starts; empty if it has none. Blocking."""
    try:
        return disk.read(_BOOT_ID).strip()
    except OSError:
        return b""
