"""Bits change on the disk of a bookie in a running cluster; the bookie finds and heals it, without any reader."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from quire.ledger import open_client
from quire.world.real import real_world
from tests.support.bookie_process import BookieProcess
from tests.support.bookies import BookieCluster, cluster, sees
from tests.support.server import free_port
from tests.support.stories.payloads import check, has, payload
from tests.support.zookeeper import until

pytestmark = [pytest.mark.cluster, pytest.mark.real_clock]
ENTRIES = 300
FAST = {"localScrubInterval": 1, "localScrubRateLimit": 100_000, "flushInterval": 100}


@pytest.fixture
def bookies(tmp_path: Path) -> Iterator[BookieCluster]:
    with cluster(tmp_path, 2, FAST) as made:
        made.add(1, {**FAST, "httpServerEnabled": "true", "httpServerHost": "127.0.0.1", "httpServerPort": free_port()})
        yield made


def report(bookie: BookieProcess) -> Any:
    url = f"http://127.0.0.1:{bookie.settings['httpServerPort']}/api/v1/bookie/scrub"
    with urllib.request.urlopen(url, timeout=10) as answer:
        return json.load(answer)


async def test_a_flipped_bit_is_healed_within_one_round_without_a_reader(bookies: BookieCluster) -> None:
    victim = bookies.bookies[2]
    async with open_client(real_world(), bookies.uri) as client:
        await until(partial(sees, client, 3), "all are seen")
        writer = await client.create(ensemble_size=3, write_quorum=3, ack_quorum=3)
        writer.append([payload(number) for number in range(ENTRIES)])
        await writer.wait_confirmed(ENTRIES - 1)
        await writer.close()
        victim.stop()
        (log,) = (victim.folder / "ledgers" / "current").glob("*.log")
        data = bytearray(log.read_bytes())
        for number in (17, 200):
            data[data.index(payload(number)) + 1] ^= 4
        log.write_bytes(data)
        victim.announced.append("an entry is damaged, the ledger is to be healed")
        victim.start()

        async def healed() -> bool:
            found = await trio.to_thread.run_sync(report, victim)
            return bool(found["healedEntries"] == found["damagedEntries"] == 2)

        await until(healed, "both are healed")
        for other in bookies.bookies[:2]:
            other.kill()  # only the victim can answer
        assert await has(victim, writer.ledger_id, 17)
        for number in (17, 200):
            wire = victim.connect()
            assert payload(number) in wire.read(writer.ledger_id, number)[1]
        bookies.start(*bookies.bookies[:2])
        await check(client, writer.ledger_id, ENTRIES)
