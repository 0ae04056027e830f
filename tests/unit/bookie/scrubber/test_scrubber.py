"""Bits that change in cold data are found by the scrubber, and healed from other bookies. Covers bookie/scrubber."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from dataclasses import replace
from struct import Struct

import pytest
import trio
import trio.lowlevel

from bookie.db_ledger_storage.compaction.plan import CompactionKind
from bookie.db_ledger_storage.entry_log_format import MAP_FIELDS_BYTES, MAP_FIELDS_OFFSET
from bookie.errors import StorageDamagedError
from bookie.scrubber.record import FILE_NAME
from bookie.scrubber.rows import check_rows
from bookie.scrubber.scrubber import RETRY_S
from bookie.scrubber.start_check import check_all
from quire.metadata.ledger_metadata import Fragment, LedgerMetadata
from quire.wire.bookkeeper.entry import Digest, DigestType
from quire.wire.bookkeeper.run import Run
from quire.wire.bookkeeper.v2 import Rc
from simulation.machines.world import Universe
from tests.support.effort import effort
from tests.support.waiting import until
from tests.unit.bookie.build import KEY, Client, entry
from tests.unit.bookie.integrity.rig import CONFIG, IntegrityCluster, integrity_cluster
from tests.unit.bookie.scrubber.rig import ENTRIES, FAST, FOUND, flip, logs, scrub, scrubber, written

RECORD = Struct("!iqq")
NOT_HEALED = "damaged entries cannot be healed now"


@pytest.fixture
async def cluster(universe: Universe) -> AsyncIterator[IntegrityCluster]:
    async with integrity_cluster(universe) as cluster:
        yield cluster


@pytest.mark.expect_error(FOUND)
@pytest.mark.parametrize("offset", [1, 3, 8, 19, 30, 38, 60])  # size, ledger id, entry id, length, digest, payload
async def test_a_flipped_bit_is_found_and_healed_within_one_round(offset: int, cluster: IntegrityCluster) -> None:
    (a, _, _), ledger_id = await written(cluster)
    flip(a, ledger_id, 7, offset)
    done = await scrub(a)
    assert done.counts.damaged >= 1
    assert done.counts.healed == done.counts.damaged
    assert not done.records[0].damages
    await Client(a.bookie).holds(ledger_id, range(ENTRIES))
    await a.kill(lose_unsynced=True)
    await a.start()
    await Client(a.bookie).holds(ledger_id, range(ENTRIES))
    assert (await scrub(a)).counts.damaged == 0


async def test_intact_data_is_read_and_verified_once_a_round(cluster: IntegrityCluster) -> None:
    (a, _, _), _ = await written(cluster)
    counts = (await scrub(a)).counts
    assert (counts.entries, counts.unverified, counts.damaged) == (ENTRIES, 0, 0)


@pytest.mark.expect_error(FOUND, NOT_HEALED)
async def test_damage_that_no_member_can_heal_stays_marked_and_is_tried_again(cluster: IntegrityCluster) -> None:
    (a, b, c), ledger_id = await written(cluster)
    flip(a, ledger_id, 7)
    for member in (b, c):
        await member.kill()
    record = (await scrub(a)).records[0]
    assert list(record.damages[ledger_id]) == [7]
    assert record.lost[ledger_id]
    await a.kill()
    await a.start()
    await until(lambda: scrubber(a).records[0].damages, "it is remembered")
    await b.start()
    await until(lambda: not scrubber(a).records[0].damages, "it is healed", within=3 * RETRY_S)
    assert scrubber(a).counts.rounds == 0
    await Client(a.bookie).holds(ledger_id, range(ENTRIES))


@pytest.mark.expect_error(FOUND, NOT_HEALED)
async def test_entries_lost_everywhere_do_not_prevent_others_from_being_healed(cluster: IntegrityCluster) -> None:
    (a, b, c), ledger_id = await written(cluster)
    flip(a, ledger_id, 3)
    for member in (a, b, c):
        flip(member, ledger_id, 7)
    done = await scrub(a)
    assert list(done.records[0].damages[ledger_id]) == [7]
    assert done.counts.healed == 1
    client = Client(a.bookie)
    assert (await client.read(ledger_id, 3)).rc == Rc.OK


@pytest.mark.expect_error(FOUND)
@pytest.mark.parametrize("digest_type", [DigestType.HMAC, DigestType.CRC32])
async def test_a_mac_is_verified_with_the_password_of_the_metadata(digest_type, cluster: IntegrityCluster) -> None:
    members = await cluster.begin("a", "b", config=FAST)
    ids = tuple(member.id for member in members)
    metadata = LedgerMetadata(
        ensemble_size=2,
        write_quorum=2,
        ack_quorum=2,
        fragments=(Fragment(0, ids),),
        digest_type=digest_type,
        password=b"p",
    )
    ledger_id = (await cluster.manager.create(metadata))[0]
    digest = Digest(digest_type, b"p")
    payloads = [b"payload number %d" % number for number in range(3)]
    entries = [(i, digest.seal(ledger_id, i, i - 1, len(each), each) + each) for i, each in enumerate(payloads)]
    for member in members:
        member.bookie.storage.set_master_key(ledger_id, KEY)
        member.bookie.storage.add(Run.of(ledger_id, entries))
        await member.bookie.checkpoint()
    (path,) = logs(members[0])
    members[0].host.disk.flip(path, members[0].host.disk.read(path).index(payloads[1]) + 4, 2)
    counts = (await scrub(members[0])).counts
    assert (counts.damaged, counts.healed, counts.unverified) == (1, 1, 0)


async def test_without_the_metadata_of_a_ledger_only_the_index_is_checked(cluster: IntegrityCluster) -> None:
    (a, _, _), ledger_id = await written(cluster)
    flip(a, ledger_id, 7)
    await cluster.manager.delete(ledger_id)
    counts = (await scrub(a)).counts
    assert (counts.unverified, counts.damaged) == (ENTRIES, 0)


@pytest.mark.expect_error("an entry log has a damaged header or map")
@pytest.mark.parametrize("place", ["magic", "offset", "count", "seal", "map"])
async def test_a_damaged_header_or_map_of_a_log_is_reported_once(place: str, cluster: IntegrityCluster) -> None:
    (a, _, _), _ = await written(cluster)
    await a.stop()
    await a.start()
    (path,) = logs(a)
    size = len(a.host.disk.read(path))
    at = {"magic": 1, "offset": 14, "count": 19, "seal": 1018, "map": size - 3}[place]
    a.host.disk.flip(path, at, 0)
    for _ in range(2):
        done = await scrub(a)
        assert list(done.records[0].damaged_logs) == [0]
        assert done.counts.damaged == 0
    a.host.disk.flip(path, at, 0)
    assert not (await scrub(a)).records[0].damaged_logs


async def test_a_log_whose_sealing_was_cut_by_a_power_loss_is_not_damaged(cluster: IntegrityCluster) -> None:
    (a, _, _), _ = await written(cluster)
    await a.stop()
    (path,) = logs(a)
    a.host.disk.overwrite(path, MAP_FIELDS_OFFSET, bytes(MAP_FIELDS_BYTES))  # written after the checksum, and lost
    await a.start()
    done = await scrub(a)
    assert (list(done.records[0].damaged_logs), done.counts.damaged, done.counts.entries) == ([], 0, ENTRIES)


async def test_rows_that_were_moved_or_deleted_meanwhile_are_no_damage(cluster: IntegrityCluster) -> None:
    (a, _, _), ledger_id = await written(cluster)
    parts = a.bookie.storage.of(ledger_id).parts
    rows, _ = parts.locations.rows(ledger_id, 0, 100)
    stale = [(entry_id, location + 4) for entry_id, location in rows]
    parts.locations.rows = lambda *_: (stale, -1)  # type: ignore[method-assign]
    assert not check_rows(parts, ledger_id, 0, 100, None).damages


@pytest.mark.expect_error(FOUND, "an entry is damaged, its log stays")
async def test_compaction_empties_the_log_of_entries_that_were_healed(cluster: IntegrityCluster) -> None:
    (a, _, _), ledger_id = await written(cluster)
    await a.stop()
    await a.start()
    flip(a, ledger_id, 7, 8)
    storage = a.bookie.storage.of(ledger_id)

    async def compact() -> list[int]:
        async def live():
            yield ledger_id

        await storage.collect_garbage(live)
        return list((await storage.compact(CompactionKind.MAJOR, 1.1)).logs)

    assert await compact() == []
    await scrub(a)
    assert await compact() == [0]
    await Client(a.bookie).holds(ledger_id, range(ENTRIES))


async def test_a_round_goes_on_after_a_restart_and_keeps_its_rate(cluster: IntegrityCluster) -> None:
    (a,) = await cluster.begin("a", config=replace(CONFIG, scrub_rate=10))
    ledger_ids = [await cluster.ledger(a, ack_quorum=1) for _ in range(10)]
    for ledger_id in ledger_ids:
        await a.add(ledger_id, 10)
    await a.bookie.checkpoint()
    began = trio.current_time()
    scrubber(a).ask()
    await until(lambda: scrubber(a).counts.entries >= 70)
    assert 6 <= trio.current_time() - began <= 9
    position = scrubber(a).records[0].position
    await trio.lowlevel.checkpoint()
    scrubber(a)._saved_at = -1000  # the record is written with the next ledger
    await until(lambda: scrubber(a).records[0].position > position)
    await a.kill()
    await a.start()
    await until(lambda: scrubber(a).counts.rounds)
    assert 10 <= scrubber(a).counts.entries <= 30
    assert scrubber(a).records[0].entries >= 90


async def test_rounds_begin_at_the_interval_and_never_without_one(cluster: IntegrityCluster) -> None:
    (a,) = await cluster.begin("a", config=replace(FAST, scrub_interval_s=600))
    (b,) = [each for each in await cluster.begin("b", config=FAST) if each.name == "b"]
    await trio.sleep(10)
    assert scrubber(a).counts.rounds == 1
    await trio.sleep(550)
    assert scrubber(a).counts.rounds == 1
    await trio.sleep(100)
    assert (scrubber(a).counts.rounds, scrubber(b).counts.rounds) == (2, 0)


@pytest.mark.expect_error(FOUND)
async def test_each_of_several_directories_is_scrubbed(cluster: IntegrityCluster) -> None:
    config = replace(FAST, ledger_directories=("/ledgers/0", "/ledgers/1"))
    members = await cluster.begin("a", "b", config=config)
    ledger_ids = [await cluster.ledger(*members) for _ in range(8)]
    for member in members:
        for ledger_id in ledger_ids:
            await member.add(ledger_id, 5)
        await member.bookie.checkpoint()
    a = members[0]
    for ledger_id in ledger_ids:
        flip(a, ledger_id, 2)
    done = await scrub(a)
    assert [record.entries > 0 for record in done.records] == [True, True]
    assert done.counts.healed == len(ledger_ids)
    for ledger_id in ledger_ids:
        await Client(a.bookie).holds(ledger_id, range(5))


async def test_a_damaged_record_of_the_scrubber_is_forgotten(cluster: IntegrityCluster) -> None:
    (a, _, _), _ = await written(cluster)
    await scrub(a)
    path = f"/ledgers/current/{FILE_NAME}"
    await a.stop()
    a.host.disk.flip(path, 0, 2)
    await a.start()
    assert (await scrub(a)).counts.entries == ENTRIES


@pytest.mark.expect_error("the bookie does not start with localConsistencyCheckOnStartup=true")
async def test_the_check_at_the_start_refuses_a_row_that_leads_elsewhere(cluster: IntegrityCluster) -> None:
    (a, _, _), ledger_id = await written(cluster)
    await check_all(a.bookie)
    flip(a, ledger_id, 7, 17)
    with pytest.raises(StorageDamagedError, match=f"1 of {ENTRIES} entries are damaged"):
        await check_all(a.bookie)


@pytest.mark.parametrize("seed", range(effort(quick=3, full=200)))
async def test_whichever_bit_of_the_logs_flips_everything_is_good_after_one_round(
    seed: int, cluster: IntegrityCluster, expect_error
) -> None:
    (a, _, _), ledger_id = await written(cluster)
    await a.stop()
    await a.start()
    rng = random.Random(seed)
    (path,) = logs(a)
    data = a.host.disk.read(path)
    end = data.rindex(entry(ledger_id, ENTRIES - 1)) + len(entry(ledger_id, ENTRIES - 1))
    at = rng.randrange(1024 - 12 * (seed % 2), end)
    a.host.disk.flip(path, at, rng.randrange(8))
    done = await scrub(a)
    if done.counts.damaged:
        expect_error(FOUND)
    if done.records[0].damaged_logs:
        expect_error("an entry log has a damaged header or map")
    assert done.counts.damaged or at < 1024
    assert done.counts.healed == done.counts.damaged
    await Client(a.bookie).holds(ledger_id, range(ENTRIES))
