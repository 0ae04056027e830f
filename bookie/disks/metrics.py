"""Metrics of the disks of a bookie, also of the one within a standalone server."""

from __future__ import annotations

from bookie.disks.watch import DiskWatch
from quire.service.metrics import Metrics


def register_disks(metrics: Metrics, disks: DiskWatch) -> None:
    """Register free room and size of each folder's disk, as last measured, and whether adds are refused for it."""
    metrics.family(
        "gauge",
        "quire_disk_free_bytes",
        "Bytes free on the disk of a folder.",
        ("folder",),
        lambda: [((folder,), free) for folder, (free, _) in disks.sizes.items()],
    )
    metrics.family(
        "gauge",
        "quire_disk_size_bytes",
        "Size of the disk of a folder.",
        ("folder",),
        lambda: [((folder,), size) for folder, (_, size) in disks.sizes.items()],
    )
    metrics.gauge("quire_disk_full", "1: adds are refused for lack of room; 0: not.", lambda: int(disks.reason != ""))
    metrics.gauge(
        "quire_bookie_flushes_fail",
        "1: the bookie is read-only because its last flush failed; 0: not.",
        lambda: int(disks.flushes_fail),
    )
