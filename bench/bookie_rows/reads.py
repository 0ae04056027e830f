"""Reads of entries that are in none of the caches: single ones in a random order, and ledgers from their start by batch
reads, as a reader that catches up does.

The caches of the bookies are small, and the kernel's pages are dropped before each round. Random reads are compared
with a loop of RocksDB get and pread too.
"""

from __future__ import annotations

import contextlib
import os
import random
import threading
import time
from pathlib import Path
from struct import Struct

from rocksdict import AccessType, Options, Rdict

from bench.bookie_rows.run import QUIRE, Bound, Row, Run, drop_page_cache, kind_of
from bench.bookies import restart
from bench.procs import cpu_s
from bench.raw_bookie import LEDGERS, Filled, batch_reads, flood, random_reads

THREADS = 8
WINDOW = 1000
SIZE = 1024
SMALL_CACHES: dict[str, object] = {"dbStorage_writeCacheMaxSizeMb": 16, "dbStorage_readAheadCacheMaxSizeMb": 16}
_LOCATION_KEY = Struct("!qq")


def bare_reads(folder: Path, filled: Filled, count: int) -> float:
    """Return the rate of random reads by THREADS threads of RocksDB get and pread alone. The bookie is stopped."""
    current = folder / "ledgers/current"
    options = Options(raw_mode=True)
    rows = Rdict(str(current / "locations"), options, access_type=AccessType.read_only())
    files: dict[int, int] = {}
    for path in current.glob("*.log"):
        with contextlib.suppress(ValueError):
            files[int(path.stem, 16)] = os.open(path, os.O_RDONLY)
    places = random.Random(2).sample(range(LEDGERS * filled.entries), min(count, LEDGERS * filled.entries))

    def loop(part: list[int]) -> None:
        for place in part:
            value = rows.get(_LOCATION_KEY.pack(filled.first_ledger + place % LEDGERS, place // LEDGERS))
            assert value is not None
            location = int.from_bytes(value, "big")
            os.pread(files[location >> 32], 32 + filled.size, location & 0xFFFFFFFF)

    threads = [threading.Thread(target=loop, args=(places[i::THREADS],)) for i in range(THREADS)]
    begun = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = time.perf_counter() - begun
    rows.close()
    for file in files.values():
        os.close(file)
    return len(places) / took


def read_rows(run: Run, entries: int, reads: int) -> list[Row]:
    """`entries`: number written to each bookie; `reads`: random ones of a round."""
    rate = Row(title="cold random reads, rate", unit="entries/s", bound=Bound(limit=1.5, better="more"))
    rate_cpu = Row(title="cold random reads, CPU", unit="us", bound=Bound(limit=1.0, better="less"))
    catch_up = Row(title="catch-up by batch reads, rate", unit="entries/s", bound=Bound(limit=1.5, better="more"))
    catch_up_cpu = Row(title="catch-up by batch reads, CPU", unit="us", bound=Bound(limit=1.0, better="less"))
    bare = Row(title="cold random reads, bare loop", unit="entries/s", bound=Bound(limit=0, better="more", alone=True))
    with run.clusters("reads", SMALL_CACHES, SMALL_CACHES) as groups:
        filled = {}
        for group in groups:
            run.say(f"reads: writing {entries:,} entries of {SIZE} bytes to {kind_of(group)}")
            bookie = group.bookies[0]
            filled[group.name], _ = flood(bookie.port, 1, SIZE, WINDOW, entries_max=entries // LEDGERS)
            restart(group, 0)
            random_reads(group.bookies[0].port, filled[group.name], WINDOW, reads, seed=99)  # compiles the original
            batch_reads(group.bookies[0].port, filled[group.name])
        for number in range(run.rounds):
            for group in groups:
                bookie, kind = group.bookies[0], kind_of(group)
                drop_page_cache(bookie.folder)
                before = cpu_s(bookie.pids)
                took = random_reads(bookie.port, filled[group.name], WINDOW, reads, seed=number)
                rate.add(kind, reads / took)
                rate_cpu.add(kind, (cpu_s(bookie.pids) - before) / reads * 1e6)
                drop_page_cache(bookie.folder)
                before = cpu_s(bookie.pids)
                count, took = batch_reads(bookie.port, filled[group.name])
                catch_up.add(kind, count / took)
                catch_up_cpu.add(kind, (cpu_s(bookie.pids) - before) / count * 1e6)
                run.say(
                    f"reads, round {number + 1}, {kind}: {rate.found[kind][-1]:,.0f}/s at random, "
                    f"{catch_up.found[kind][-1]:,.0f}/s in batches"
                )
        ours = groups[0].bookies[0]
        ours.stop()
        drop_page_cache(ours.folder)
        bare.add(QUIRE, bare_reads(ours.folder, filled[groups[0].name], reads))
    return [rate, rate_cpu, bare, catch_up, catch_up_cpu]
