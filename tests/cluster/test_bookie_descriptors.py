"""A bookie with 64 descriptors: many entry logs, reads of all of them, compactions, and clients that take the rest."""

from __future__ import annotations

import os
import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
import trio
import trio.lowlevel

from quire.ledger import LedgerClient, open_client
from quire.world.real import real_world
from tests.support.bookies import BookieCluster, cluster, sees
from tests.support.waiting import until

pytestmark = pytest.mark.cluster
LIMIT = 64
LEDGERS, ENTRIES, SIZE = 8, 160, 1000
LOG_SIZE = 16_384
PASSWORD = b"few"
CONF = {
    "logSizeLimit": LOG_SIZE,
    "flushInterval": 100,
    "gcWaitTime": 1000,
    "minorCompactionInterval": 1,
    "minorCompactionThreshold": 0.2,
    "majorCompactionInterval": 2,
    "majorCompactionThreshold": 0.8,
    "compactionRateByEntries": 0,
}


@pytest.fixture
def bookies(tmp_path: Path) -> Iterator[BookieCluster]:
    with cluster(tmp_path, 1, CONF) as made:
        yield made


def payload(ledger: int, entry_id: int) -> bytes:
    return f"{ledger}/{entry_id}/".encode().ljust(SIZE, b".")


async def holds(client: LedgerClient, ledgers: dict[int, int]) -> None:
    """Read all entries of these ledgers, and compare."""
    for ledger_id, number in ledgers.items():
        reader = await client.open(ledger_id, password=PASSWORD, recover=False)
        first = 0
        while first < ENTRIES:
            found = await reader.read(first, ENTRIES - 1, size_max=1 << 20)
            assert [bytes(each) for each in found] == [payload(number, first + n) for n in range(len(found))]
            first += len(found)
        reader.close()


@pytest.mark.real_clock
async def test_a_bookie_with_64_descriptors_writes_reads_and_compacts_more_logs_than_that(bookies: BookieCluster):
    (bookie,) = bookies.bookies
    assert bookie.process is not None
    pid = bookie.process.pid
    _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (LIMIT, hard))
    folder = bookie.folder / "ledgers" / "current"

    def logs() -> int:
        return len(list(folder.glob("*.log")))

    with ExitStack() as stack:
        async with open_client(real_world(), bookies.uri) as client:
            await until(partial(sees, client, 1), "the bookie is seen")
            writers = [
                await client.create(ensemble_size=1, write_quorum=1, ack_quorum=1, password=PASSWORD)
                for _ in range(LEDGERS)
            ]
            ledgers = {writer.ledger_id: number for number, writer in enumerate(writers)}
            for first in range(0, ENTRIES, 2):  # all ledgers in every log
                for number, writer in enumerate(writers):
                    writer.append([payload(number, entry_id) for entry_id in (first, first + 1)])
            for writer in writers:
                await writer.wait_confirmed(ENTRIES - 1)
                await writer.close()
            await until(lambda: logs() > LIMIT, "there are more logs than descriptors")
            await holds(client, ledgers)
            crowd = [stack.enter_context(socket.socket()) for _ in range(LIMIT)]
            for each in crowd:
                each.connect(("127.0.0.1", bookie.port))
            await holds(client, ledgers)
            for ledger_id in list(ledgers)[: LEDGERS * 3 // 4]:
                await client.delete(ledger_id)
                del ledgers[ledger_id]
            await until(lambda: logs() < LIMIT / 2, "compactions have deleted logs", within=30)
            assert len(os.listdir(f"/proc/{pid}/fd")) <= LIMIT
            await holds(client, ledgers)
            for each in crowd:
                each.close()
            await trio.lowlevel.checkpoint()
    bookie.kill()
    bookie.start()
    async with open_client(real_world(), bookies.uri) as client:
        await until(partial(sees, client, 1), "the bookie is seen again")
        await holds(client, ledgers)
    lines = bookie.log().splitlines()
    assert not [line for line in lines if "Traceback" in line or "level=error" in line]
    assert any("accepting no connections until descriptors are free" in line for line in lines)
