"""Recovery: a bookie is killed with a journal of which nothing is in its storage, and started again.

The time of a start without that is subtracted. The caches are so large while the journal is written that nothing is
flushed, and those of the default when it is read.
"""

from __future__ import annotations

import time

from bench.bookie_rows.run import Bound, Row, Run, kind_of
from bench.bookies import restart
from bench.procs import cpu_s
from bench.raw_bookie import LEDGERS, flood

SIZE = 4096
FORMER_SESSION_S = 15.0
"""Time after which ZooKeeper has ended the session of a killed bookie (zkTimeout is 10 s). A start waits for that
before it is ready, which is no part of the recovery."""
FLUSHED_LATE: dict[str, object] = {"flushInterval": 3_600_000, "gcWaitTime": 3_600_000}


def recovery_rows(run: Run, megabytes: int) -> list[Row]:
    bound = Bound(limit=150, better="more", alone=True)
    row = Row(title="recovery of the journal", unit="MB/s", bound=bound)
    cpu = Row(title="recovery of the journal, per second of CPU", unit="MB/s", bound=bound)
    cache = {"dbStorage_writeCacheMaxSizeMb": 5 * megabytes}
    ours: dict[str, object] = {**FLUSHED_LATE, **cache}
    for number in range(run.rounds):
        # The cache of the original has two halves, one of which is flushed when it is full.
        with run.clusters(
            f"recovery-{number}", ours, {**ours, "dbStorage_writeCacheMaxSizeMb": 3 * megabytes}
        ) as groups:
            for group in groups:
                kind = kind_of(group)
                port = group.bookies[0].port
                filled, _ = flood(port, 1, SIZE, 500, entries_max=(megabytes << 20) // SIZE // LEDGERS)
                group.bookies[0].kill()
                time.sleep(FORMER_SESSION_S)
                begun = time.perf_counter()
                restart(group, 0, {"dbStorage_writeCacheMaxSizeMb": 256})
                with_journal = time.perf_counter() - begun
                cpu_with_journal = cpu_s(group.bookies[0].pids)
                group.bookies[0].stop()
                begun = time.perf_counter()
                restart(group, 0)
                without = time.perf_counter() - begun
                cpu_without = cpu_s(group.bookies[0].pids)
                mb = filled.entries * LEDGERS * SIZE / 1e6
                row.add(kind, mb / max(with_journal - without, 1e-3))
                cpu.add(kind, mb / max(cpu_with_journal - cpu_without, 1e-2))
                run.say(
                    f"recovery, round {number + 1}, {kind}: {mb:,.0f} MB, start in {with_journal:.2f} s, without in "
                    f"{without:.2f} s: {row.found[kind][-1]:,.0f} MB/s, "
                    f"{cpu.found[kind][-1]:,.0f} MB per second of CPU"
                )
                group.bookies[0].stop()
    return [row, cpu]
