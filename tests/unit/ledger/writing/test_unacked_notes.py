"""Writers and recoveries note ledgers whose copies may be missing: quire/ledger/writing/unacked_notes.py, appender.py,
ensemble_changes.py, recovery.py."""

from __future__ import annotations

import trio

from quire.ledger.errors import LedgerClosedError
from quire.metadata import unacked
from tests.unit.ledger.fake_bookie import FakeCluster, payloads

FOLDER = unacked.folder("/ledgers")


async def notes(cluster: FakeCluster) -> dict[int, int]:
    """Return, by ledger, the entry before which copies may be missing."""
    found: dict[int, int] = {}
    for name in await cluster.store.children(FOLDER):
        node = await cluster.store.get(f"{FOLDER}/{name}")
        ledger_id = unacked.ledger_of(name)
        assert node is not None
        assert ledger_id is not None
        found[ledger_id] = unacked.decode(node.value)
    return found


async def begun(size: int = 4) -> FakeCluster:
    cluster = FakeCluster(size)
    await cluster.store.create(FOLDER, make_parents=True)
    return cluster


async def test_a_member_that_is_replaced_and_lacks_confirmed_entries_is_noted() -> None:
    cluster = await begun()
    async with cluster.client() as client:
        writer = await client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
        [late, *_] = cluster.of(writer.metadata.fragments[0].bookies)
        await writer.write(b"0")
        late.hold = True
        for each in payloads(1, 5):
            await writer.write(each)
        late.lose_links()
        await writer.write(b"6")
        await trio.sleep(1)
        assert await notes(cluster) == {writer.ledger_id: writer.metadata.fragments[-1].first_entry_id}


async def test_a_member_that_fails_and_lacks_nothing_confirmed_is_not_noted() -> None:
    cluster = await begun()
    async with cluster.client() as client:
        writer = await client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
        [gone, *_] = cluster.of(writer.metadata.fragments[0].bookies)
        await writer.write(b"0")
        await trio.sleep(1)
        gone.stop()
        await writer.write(b"1")
        await writer.close()
        await trio.sleep(100)
        assert len(writer.metadata.fragments) == 2
        assert await notes(cluster) == {}


async def test_a_member_whose_last_acknowledgements_come_after_the_close_is_not_noted() -> None:
    cluster = await begun(3)
    async with cluster.client() as client:
        writer = await client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
        [late, *_] = cluster.of(writer.metadata.fragments[0].bookies)
        late.hold = True
        await writer.write(b"0")
        await writer.close()
        await trio.sleep(5)
        late.release()
        await trio.sleep(100)
        assert await notes(cluster) == {}


async def test_a_late_acknowledgement_confirms_nothing_behind_the_end() -> None:
    cluster = await begun(2)
    async with cluster.client() as client:
        writer = await client.create(ensemble_size=2, write_quorum=2, ack_quorum=1)
        confirmed: list[tuple[int, int]] = []
        writer.on_confirmed = lambda first, last: confirmed.append((first, last))
        late, other = cluster.of(writer.metadata.fragments[0].bookies)
        late.hold = True
        writer.append([b"0"])
        await trio.sleep(1)
        other.hold = True
        writer.append([b"1"])
        await trio.sleep(1)
        # As if the bookie answered while the metadata of the end are stored.
        writer.on_failed = lambda error: late.release()
        writer._appender.stop(LedgerClosedError("closed"))
        await trio.sleep(1)
        await writer.close()
        await trio.sleep(100)
        assert confirmed == [(0, 0)]
        assert writer.metadata.last_entry_id == 0
        assert await notes(cluster) == {}


async def test_a_member_whose_last_acknowledgements_never_come_is_noted_after_the_close() -> None:
    cluster = await begun(3)
    async with cluster.client(add_timeout_s=10) as client:
        silent = await client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
        [late, *_] = cluster.of(silent.metadata.fragments[0].bookies)
        late.hold = True
        await silent.write(b"0")
        await silent.close()
        await trio.sleep(9)
        assert await notes(cluster) == {}
        await trio.sleep(2)
        assert await notes(cluster) == {silent.ledger_id: unacked.WHOLE}

        cut_off = await client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
        await cut_off.write(b"0")
        await cut_off.close()
        late.lose_links()
        await trio.sleep(1)
        assert sorted(await notes(cluster)) == [silent.ledger_id, cut_off.ledger_id]


async def test_with_an_ack_quorum_of_all_copies_nothing_is_noted() -> None:
    cluster = await begun(3)
    async with cluster.client() as client:
        writer = await client.create(ensemble_size=3, write_quorum=2, ack_quorum=2)
        await writer.write(b"0")
        reader = await client.open(writer.ledger_id, recover=True)
        reader.close()
        await trio.sleep(100)
        assert await notes(cluster) == {}


async def test_a_recovery_notes_what_it_does_not_write_again() -> None:
    cluster = await begun(3)
    async with cluster.client() as client:
        writer = await client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
        empty = await client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
        for each in payloads(0, 3):
            await writer.write(each)
        for ledger in (writer, empty):
            reader = await client.open(ledger.ledger_id, recover=True)
            reader.close()
        await trio.sleep(1)
        assert await notes(cluster) == {writer.ledger_id: unacked.WHOLE}
