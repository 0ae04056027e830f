"""Syncs of the disk itself, beside a bare reader and a bare writer, without any bookie.

The sync is that of a journal: 4 KB into reserved space of a file, past the page cache, a thousand times per second. The
reader takes pieces of a file in order, as a bookie that serves a cold drain; the writer writes at the rate of the
compactions of latency.py. Their programs run in processes of their own.
"""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.bookie_rows.run import beside, p99

PIECE = 1 << 20
FILE_MB = 256
WRITTEN_PER_S = 30_000_000
SYNCED_EVERY = 4 << 20
_BLOCK = 4096
_DIRECT = getattr(os, "O_DIRECT", 0)
QUIET, READER, WRITER = LOADS = "quiet", "reader", "writer"


def measure_syncs(folder: Path, load: str, per_s: float, seconds: float) -> float:
    """Return how many milliseconds 99 % of the syncs take at most, beside a load."""
    with _running(folder, load):
        return p99(_syncs(folder / "journal", per_s, seconds))


def _syncs(path: Path, per_s: float, seconds: float) -> list[float]:
    """Return the milliseconds from the moment at which each sync was due to its end."""
    total = int(per_s * seconds)
    took: list[float] = []
    file = os.open(path, os.O_RDWR | os.O_CREAT | _DIRECT, 0o644)
    try:
        os.posix_fallocate(file, 0, (total + 1) * _BLOCK)
        with mmap.mmap(-1, _BLOCK) as block:  # aligned, as writes past the page cache have to be
            begun = time.perf_counter()
            while len(took) < total:
                pause = begun + len(took) / per_s - time.perf_counter()
                if pause > 0:
                    time.sleep(pause)
                os.pwritev(file, [block], len(took) * _BLOCK, os.RWF_DSYNC)
                now = time.perf_counter() - begun
                # As in a journal, one sync serves all that came due in the meantime.
                due = min(total, max(len(took) + 1, int(now * per_s) + 1))
                took += [1000 * max(0.0, now - number / per_s) for number in range(len(took), due)]
    finally:
        os.close(file)
        path.unlink()
    return took


@contextmanager
def _running(folder: Path, load: str) -> Iterator[None]:
    if load == QUIET:
        yield
        return
    program = f"from bench.bookie_rows.device import {load}; {load}({str(folder / load)!r})"
    with beside(program, load):
        yield


def reader(path: str) -> None:
    """Print a line, and read a file again and again, each time from the disk; the kernel reads nothing ahead."""
    piece = os.urandom(PIECE)
    with open(path, "wb") as file:
        for _ in range(FILE_MB):
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())
    with open(path, "rb", buffering=0) as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        print("begun", flush=True)
        while True:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            for offset in range(0, FILE_MB << 20, PIECE):
                os.pread(file.fileno(), PIECE, offset)


def writer(path: str) -> None:
    """Print a line, and write a file again and again at the rate of a compaction."""
    piece = os.urandom(PIECE // 2)
    begun, written = time.perf_counter(), 0
    print("begun", flush=True)
    with open(path, "wb", buffering=0) as file:
        while True:
            file.write(piece)
            written += len(piece)
            if written % SYNCED_EVERY == 0:
                os.fdatasync(file.fileno())
            if written % (64 << 20) == 0:
                file.seek(0)
                file.truncate()
            time.sleep(max(0.0, begun + written / WRITTEN_PER_S - time.perf_counter()))
