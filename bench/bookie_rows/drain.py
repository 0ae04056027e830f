"""A reader that drains ledgers of a bookie by batch reads, in a process of its own: latency.py starts it."""

from __future__ import annotations

from pathlib import Path

from bench.bookie_rows.run import drop_pages
from bench.raw_bookie import Filled, batch_reads


def drain_forever(folder: str, port: int, filled: Filled) -> None:
    """Print a line, and read the ledgers again and again, each time without the kernel's pages of their logs."""
    logs = list(Path(folder).rglob("*.log"))
    drop_pages(logs)  # at first all that was written; that takes the processor for 50 ms
    print("begun", flush=True)
    while True:
        batch_reads(port, filled)
        drop_pages(logs)
