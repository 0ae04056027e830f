"""One bookie of the original's and two of Quire's in one ensemble: a kill of any of them is invisible to clients."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import trio

from quire.ledger import LedgerConfig, open_client
from quire.ledger.bookies.pool import WireProtocol
from quire.world.real import real_world
from tests.interop import exchange
from tests.interop.exchange import MIXED, Exchanged, payload
from tests.interop.java import ApacheBookie, run_tester
from tests.interop.mixed import mixed_bookies
from tests.support.bookie_process import BookieProcess
from tests.support.bookies import BookieCluster, sees
from tests.support.waiting import until

COUNT = 60
PASSWORD = "exchange-CRC32C"
WRITING_S = 60.0


@pytest.fixture
def mixed(tmp_path: Path) -> Iterator[tuple[BookieCluster, ApacheBookie]]:
    """Run two of Quire's bookies and one of the original's."""
    with mixed_bookies(tmp_path, 2) as bookies:
        yield bookies


async def written_across_a_kill(
    ours: BookieCluster, theirs: ApacheBookie, doomed: ApacheBookie | BookieProcess, protocol: WireProtocol
) -> Exchanged:
    """Write a ledger on all three bookies and a spare one; one of the three is killed in the meantime."""
    three = {theirs.id, *(bookie.id for bookie in ours.bookies)}
    third = COUNT // 3
    config = LedgerConfig(protocol=protocol)
    with trio.fail_after(WRITING_S):
        async with open_client(real_world(), ours.uri, config) as client:
            writer = await client.create(ensemble_size=3, write_quorum=3, ack_quorum=2, password=PASSWORD.encode())
            entries = [payload(writer.ledger_id, each, MIXED) for each in range(COUNT)]
            writer.append(entries[:third])
            await writer.wait_confirmed(third - 1)
            await trio.to_thread.run_sync(ours.add)
            await until(partial(sees, client, 4), "the client sees the spare bookie")
            writer.append(entries[third : 2 * third])
            await trio.to_thread.run_sync(doomed.kill)
            writer.append(entries[2 * third :])
            await writer.wait_confirmed(COUNT - 1)
            await writer.close()
            first, *later = (await client.read_metadata(writer.ledger_id)).fragments
            assert set(first.bookies) == three
            assert [set(fragment.bookies) for fragment in later] == [three - {doomed.id} | {ours.bookies[2].id}]
            assert later[0].first_entry_id >= third
            return Exchanged(
                ledger=writer.ledger_id, digest="CRC32C", password=PASSWORD, entries=COUNT, size=MIXED, closed=True
            )


@pytest.mark.parametrize(("protocol", "kill"), [("v2", "theirs"), ("v2", "ours"), ("v3", "theirs")])
def test_a_bookie_that_is_killed_costs_no_entry(
    protocol: WireProtocol, kill: str, mixed: tuple[BookieCluster, ApacheBookie], tmp_path: Path
) -> None:
    ours, theirs = mixed
    doomed = theirs if kill == "theirs" else ours.bookies[0]
    ledgers = [trio.run(written_across_a_kill, ours, theirs, doomed, protocol)]
    path = tmp_path / "list.jsonl"
    exchange.write_list(path, ledgers)
    ways: list[tuple[WireProtocol, list[str]]] = [("v2", ["--v2"]), ("v3", [])]
    for version, options in ways:
        exchange.verify(ours.uri, version, ledgers, recover=False)
        run_tester(ours.uri, "verify", str(path), *options)
    doomed.start()
    exchange.verify(ours.uri, protocol, ledgers, recover=False)


def test_the_originals_client_passes_its_scenarios_on_both_kinds_of_bookies(
    mixed: tuple[BookieCluster, ApacheBookie],
) -> None:
    ours, theirs = mixed
    process = theirs.process
    assert process is not None
    told = run_tester(
        ours.uri,
        "--only",
        "write-read-.*|recovery.*|pipelined.*|many.*|explicit.*|long-poll.*|deferred.*|batch.*|ensemble-change",
        "--break",
        f"kill -9 {process.pid}",
    )
    assert " 0 failed, 0 skipped, 3 bookies" in told
