"""Checks that the directories of a bookie are on file systems of their own, if it is configured so.

Source: BookKeeper's BookieImpl, allowMultipleDirsUnderSameDiskPartition.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bookie.errors import SharedPartitionError
from quire.world.doors import Disk

if TYPE_CHECKING:
    from bookie.config import BookieConfig


def check_partitions(disk: Disk, config: BookieConfig) -> None:
    """Raise SharedPartitionError if two directories of one kind are on one file system. Blocking. OSError."""
    if not config.may_share_partition:
        for kind, folders in (
            ("journal", config.journal_directories),
            ("ledger", config.ledger_directories),
            ("index", config.indexes),
        ):
            _check(disk, kind, folders)


def _check(disk: Disk, kind: str, folders: Sequence[str]) -> None:
    found: dict[int, str] = {}
    for folder in folders:
        other = found.setdefault(disk.device(folder), folder)
        if other != folder:
            raise SharedPartitionError(
                f"the {kind} directories {other} and {folder} are on the same file system: mount one elsewhere, "
                "or set allowMultipleDirsUnderSameDiskPartition=true"
            )
