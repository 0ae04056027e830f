"""`python -m bench.bookie_rows.drain FOLDER PORT LEDGER ENTRIES SIZE`: read ledgers of a bookie by batch reads, again
and again until it is terminated, each time without the kernel's pages of their entry logs."""

from __future__ import annotations

import sys
from pathlib import Path

from bench.bookie_rows.run import drop_pages
from bench.raw_bookie import Filled, batch_reads


def main() -> None:
    folder, port, first, entries, size = sys.argv[1:]
    logs = list(Path(folder).rglob("*.log"))
    print("begun", flush=True)
    while True:
        drop_pages(logs)
        batch_reads(int(port), Filled(first_ledger=int(first), entries=int(entries), size=int(size)))


if __name__ == "__main__":
    main()
