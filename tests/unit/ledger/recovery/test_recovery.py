from __future__ import annotations

import gc
import itertools
import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
import trio

from quire.ledger.client import LedgerClient
from quire.ledger.errors import (
    LedgerError,
    LedgerFencedError,
    LedgerRecoveryError,
    LedgerUnauthorizedError,
    NoSuchLedgerError,
)
from quire.ledger.recovery.recovery import ASKED_BYTES_MAX, LENGTH_WAIT_S, Recovery
from quire.ledger.writing.writer import LedgerWriter
from quire.metadata.ledgers import Fragment, LedgerMetadata, LedgerState
from quire.wire.bookkeeper import v2
from quire.wire.bookkeeper.entry import read_header
from quire.wire.bookkeeper.run import Run
from quire.wire.bookkeeper.v2 import Rc
from tests.support.refusals import raises
from tests.unit.ledger.fake_bookie import Confirmations, FakeCluster, begun, payloads, total
from tests.unit.ledger.reads import read_all

QUORUMS = [(1, 1, 1), (2, 2, 1), (3, 3, 2), (3, 2, 2), (5, 3, 2), (4, 4, 4)]


async def abandoned(
    cluster: FakeCluster, client: LedgerClient, quorum: tuple[int, int, int], confirmed: int, unconfirmed: int
) -> LedgerWriter:
    """Return the writer of an open ledger with `confirmed` entries, and `unconfirmed` more without any answer."""
    writer, seen = await begun(client, quorum)
    for first in range(0, confirmed, 5):
        writer.append(payloads(first, min(first + 4, confirmed - 1)))
        await seen.until(min(first + 4, confirmed - 1))
    cluster.hold()
    if unconfirmed:
        writer.append(payloads(confirmed, confirmed + unconfirmed - 1))
    cluster.hold(False)
    return writer


@pytest.mark.parametrize("quorum", QUORUMS)
@pytest.mark.parametrize(("confirmed", "unconfirmed"), [(0, 0), (1, 0), (20, 0), (20, 30), (0, 9), (300, 200)])
@pytest.mark.bookies(5)
async def test_recovery_closes_the_ledger_with_everything_that_was_written(
    cluster: FakeCluster, client: LedgerClient, quorum: tuple[int, int, int], confirmed: int, unconfirmed: int
) -> None:
    writer = await abandoned(cluster, client, quorum, confirmed, unconfirmed)
    count = confirmed + unconfirmed
    reader = await client.open(writer.ledger_id, recover=True)
    assert reader.closed
    assert reader.last_entry_id == count - 1
    assert reader.length == total(0, count - 1)
    assert await read_all(reader) == payloads(0, count - 1)
    metadata = await cluster.metadata(writer.ledger_id)
    assert metadata == reader.metadata
    members = cluster.of(metadata.fragments[-1].bookies)
    for entry_id in range(count):
        copies = sum(entry_id in each.entries.get(writer.ledger_id, {}) for each in members)
        assert copies >= quorum[2], "AllCommittedEntriesReachAckQuorum"


async def test_the_old_writer_can_confirm_nothing_more(cluster: FakeCluster, client: LedgerClient) -> None:
    writer = await abandoned(cluster, client, (3, 3, 2), 5, 0)
    seen = Confirmations(writer)
    await client.open(writer.ledger_id, recover=True)
    writer.append(payloads(5, 5))
    assert isinstance(await seen.until_failed(), LedgerFencedError)
    assert seen.ranges == []
    await writer.close()
    assert (await cluster.metadata(writer.ledger_id)).last_entry_id == 4


async def test_recover_without_a_reader_fences_an_open_ledger_and_only_looks_up_a_closed_one(cluster, client):
    writer = await abandoned(cluster, client, (3, 3, 2), 5, 2)
    seen = Confirmations(writer)
    end = 6, total(0, 6)
    assert await client.recover(writer.ledger_id) == end
    writer.append(payloads(7, 7))
    assert isinstance(await seen.until_failed(), LedgerFencedError)
    for bookie in cluster.bookies.values():
        bookie.requests.clear()
    assert await client.recover(writer.ledger_id) == end
    assert all(bookie.requests == [] for bookie in cluster.bookies.values())


async def test_recover_without_a_reader_refuses_what_an_open_refuses(client: LedgerClient) -> None:
    await raises(NoSuchLedgerError, client.recover(4711))
    await raises(NoSuchLedgerError, client.open(4711, recover=True))
    writer = await client.create(password=b"secret")
    await writer.close()
    await raises(LedgerUnauthorizedError, client.recover(writer.ledger_id))


async def test_bookkeeper_2614_every_read_of_a_recovery_fences(cluster: FakeCluster, client: LedgerClient) -> None:
    writer = await abandoned(cluster, client, (3, 3, 2), 5, 3)
    for bookie in cluster.bookies.values():
        bookie.requests.clear()
    await client.open(writer.ledger_id, recover=True)
    for bookie in cluster.bookies.values():
        reads = [each for each in bookie.requests if isinstance(each, v2.ReadRequest)]
        assert (reads[0].entry_id, reads[0].flags) == (-1, v2.DO_FENCING)
        assert {each.flags for each in reads[1:]} == {v2.DO_FENCING | v2.HIGH_PRIORITY}
        adds = [each for each in bookie.requests if isinstance(each, Run)]
        assert {each.flags for each in adds} == {v2.RECOVERY_ADD | v2.HIGH_PRIORITY}


async def test_an_entry_on_one_bookie_only_is_kept_and_copied() -> None:
    for index in range(3):
        cluster = FakeCluster(3)
        async with cluster.client() as client:
            writer = await abandoned(cluster, client, (3, 3, 2), 5, 1)
            members = cluster.members(writer)
            for bookie in members:
                if bookie is not members[index]:
                    del bookie.entries[writer.ledger_id][5]
            reader = await client.open(writer.ledger_id, recover=True)
            # Two denials of three are enough to call it absent, if they come first: it was never confirmed.
            assert reader.last_entry_id in (4, 5)
            if reader.last_entry_id == 5:
                assert all(5 in bookie.entries[writer.ledger_id] for bookie in members)


async def test_an_entry_that_may_have_been_confirmed_is_never_cut_off() -> None:
    """AllAckedEntriesAreReadable: the last entry is kept, whichever ack quorum has it and whichever bookie is away."""
    for holders in itertools.combinations(range(3), 2):
        for away in range(3):
            cluster = FakeCluster(4)
            async with cluster.client() as client:
                writer = await abandoned(cluster, client, (3, 3, 2), 5, 1)
                members = cluster.members(writer)
                for index, bookie in enumerate(members):
                    if index not in holders:
                        del bookie.entries[writer.ledger_id][5]
                members[away].stop()
                reader = await client.open(writer.ledger_id, recover=True)
                assert reader.last_entry_id == 5
                assert await read_all(reader) == payloads(0, 5)


@pytest.mark.bookies(4)
async def test_a_bookie_lost_on_the_way_is_replaced_in_the_metadata_only_with_the_close(cluster, client):
    async with cluster.client() as dead:
        writer = await abandoned(cluster, dead, (3, 3, 2), 5, 4)
    before = writer.metadata.fragments[0].bookies
    cluster.bookies[before[1]].stop()
    versions = []

    async def before_write(ledger_id: int, metadata: LedgerMetadata) -> None:
        versions.append((metadata.state, len(metadata.fragments)))

    cluster.ledgers.before_write = before_write
    reader = await client.open(writer.ledger_id, recover=True)
    assert versions == [(LedgerState.IN_RECOVERY, 1), (LedgerState.CLOSED, 2)]
    first, second = reader.metadata.fragments
    assert first == Fragment(0, before)
    assert second.first_entry_id == 5
    assert before[1] not in second.bookies
    assert await read_all(reader) == payloads(0, 8)


async def test_without_coverage_recovery_fails_and_the_ledger_stays_in_recovery(cluster, client):
    writer = await abandoned(cluster, client, (3, 3, 2), 5, 4)
    first, second, _ = cluster.bookies.values()
    first.stop()
    second.stop()
    await raises(LedgerRecoveryError, client.open(writer.ledger_id, recover=True))
    assert (await cluster.metadata(writer.ledger_id)).state is LedgerState.IN_RECOVERY
    first.down = second.down = False
    reader = await client.open(writer.ledger_id, recover=True)
    assert reader.last_entry_id == 8


@pytest.mark.parametrize("fault", ["hung", "unsure", "damaged"])
async def test_what_is_no_answer_does_not_count_for_coverage(fault: str) -> None:
    for faulty, recovers in ((1, True), (2, False)):
        cluster = FakeCluster(4)
        async with cluster.client(read_timeout_s=3, add_timeout_s=3) as client:
            writer = await abandoned(cluster, client, (3, 3, 2), 5, 4)
            for bookie in cluster.members(writer)[:faulty]:
                bookie.fail(fault, writer.ledger_id)
            if recovers:
                reader = await client.open(writer.ledger_id, recover=True)
                assert await read_all(reader) == payloads(0, 8)
            else:
                await raises(LedgerRecoveryError, client.open(writer.ledger_id, recover=True))


async def test_bookkeeper_2908_a_damaged_copy_in_the_tail_is_neither_a_copy_nor_a_denial(
    cluster: FakeCluster, client: LedgerClient
):
    writer = await abandoned(cluster, client, (3, 3, 2), 0, 3)
    members = cluster.members(writer)
    for bookie in members[:2]:
        bookie.damage(writer.ledger_id, 1)
    reader = await client.open(writer.ledger_id, recover=True)
    assert await read_all(reader) == payloads(0, 2)

    other = await abandoned(cluster, client, (3, 3, 2), 0, 3)
    for bookie in cluster.members(other):
        bookie.damage(other.ledger_id, 1)
    await raises(LedgerRecoveryError, client.open(other.ledger_id, recover=True), "digest")
    assert (await cluster.metadata(other.ledger_id)).state is LedgerState.IN_RECOVERY


@pytest.mark.bookies(6)
async def test_recovery_never_goes_below_the_start_of_the_last_fragment(cluster: FakeCluster, client: LedgerClient):
    """The invalid ensemble sequence of BookKeeper 4.13: the last ensemble has no entry, so its LAC is -1."""
    writer = await abandoned(cluster, client, (3, 3, 2), 10, 0)
    others = tuple(each for each in cluster.bookies if each not in writer.metadata.fragments[0].bookies)
    await cluster.ledgers.update(
        writer.ledger_id,
        lambda stored: replace(stored, fragments=(*stored.fragments, Fragment(10, others))),
    )
    reader = await client.open(writer.ledger_id, recover=True)
    assert [each.first_entry_id for each in reader.metadata.fragments] == [0, 10]
    assert (reader.last_entry_id, reader.length) == (9, total(0, 9))


@pytest.mark.parametrize("back_after_s", [0.0, 2.5, 60.0])
@pytest.mark.bookies(5)
async def test_a_ledger_whose_last_copies_are_away_is_closed_without_them_but_not_before_they_had_a_moment(
    cluster: FakeCluster, client: LedgerClient, back_after_s: float, log_events: list[dict[str, object]]
) -> None:
    """Its last fragment is empty, so only the bookies of the previous one have its length."""
    writer = await abandoned(cluster, client, (2, 2, 2), 10, 0)
    before = cluster.members(writer)
    others = [each for each in cluster.bookies if each not in writer.metadata.fragments[0].bookies]
    await cluster.ledgers.update(
        writer.ledger_id,
        lambda stored: replace(stored, fragments=(*stored.fragments, Fragment(10, tuple(others[:2])))),
    )
    for bookie in before:
        bookie.stop()

    async def come_back() -> None:
        await trio.sleep(back_after_s)
        before[1].down = False

    async with trio.open_nursery() as nursery:
        nursery.start_soon(come_back)
        reader = await client.open(writer.ledger_id, recover=True)
        took = trio.current_time()
        nursery.cancel_scope.cancel()
    assert reader.last_entry_id == 9
    if back_after_s < LENGTH_WAIT_S:
        assert reader.length == total(0, 9)
        assert took < back_after_s + 0.3
    else:
        assert LENGTH_WAIT_S <= took < LENGTH_WAIT_S + 0.1
        assert [each["last_entry_id"] for each in log_events if "without its length" in str(each["event"])] == [9]
        before[1].down = False
        assert await read_all(reader) == payloads(0, 9), "the length says nothing about what can be read"


async def test_recovered_entries_keep_their_bytes_ids_and_lengths(cluster: FakeCluster, client: LedgerClient) -> None:
    writer = await abandoned(cluster, client, (3, 3, 2), 5, 4)
    bookie = cluster.bookie
    before = {each: read_header(entry) for each, entry in bookie.entries[writer.ledger_id].items()}
    await client.open(writer.ledger_id, recover=True)
    after = {each: read_header(entry) for each, entry in bookie.entries[writer.ledger_id].items()}
    assert [(each.entry_id, each.length) for each in after.values()] == [
        (each.entry_id, each.length) for each in before.values()
    ]


@pytest.mark.bookies(recovery_window=2)
async def test_what_a_recovery_confirms_is_no_last_confirmed_entry_for_another_that_closes_first(cluster, client):
    """Recovery may confirm in a changed ensemble, which is stored only with the close: no tail may begin after it."""
    writer = await abandoned(cluster, client, (3, 3, 2), 5, 9)
    lacks = cluster.members(writer)[1].entries[writer.ledger_id]
    for entry_id in range(5, 14):
        del lacks[entry_id]
    for bookie in cluster.bookies.values():
        bookie.delay_s = lambda: 0.001  # entries are confirmed before the next ones are read
    await client.open(writer.ledger_id, recover=True)
    copied = {entry_id: read_header(lacks[entry_id]).lac for entry_id in range(5, 14)}
    assert copied == dict.fromkeys(range(5, 14), 4), "the LAC that recovery found"


async def test_a_wrong_password_is_refused_before_and_by_the_bookies(cluster: FakeCluster, client: LedgerClient):
    writer, _ = await begun(client, (3, 3, 2), password=b"right", entries=2)
    await raises(LedgerUnauthorizedError, client.open(writer.ledger_id, password=b"wrong", recover=True))
    assert (await cluster.metadata(writer.ledger_id)).state is LedgerState.OPEN
    cluster.bookies["bookie1:3181"].refuse = lambda request: Rc.UNAUTHORIZED
    cluster.bookies["bookie2:3181"].hung = True
    await raises(LedgerUnauthorizedError, client.open(writer.ledger_id, password=b"right", recover=True))


@pytest.mark.bookies(1)
async def test_a_closed_ledger_is_opened_without_asking_a_bookie(cluster: FakeCluster, client: LedgerClient) -> None:
    writer = await abandoned(cluster, client, (1, 1, 1), 5, 0)
    await writer.close()
    cluster.bookie.requests.clear()
    reader = await client.open(writer.ledger_id, recover=True)
    assert reader.last_entry_id == 4
    assert cluster.bookie.requests == []


async def test_a_recovery_whose_ledger_is_closed_by_others_meanwhile_takes_their_result(cluster, client):
    writer = await abandoned(cluster, client, (3, 3, 2), 5, 4)

    async def before_write(ledger_id: int, metadata: LedgerMetadata) -> None:
        if metadata.state is LedgerState.CLOSED:
            cluster.ledgers.before_write = None
            await writer.close()

    cluster.ledgers.before_write = before_write
    reader = await client.open(writer.ledger_id, recover=True)
    assert reader.last_entry_id == 4
    assert await cluster.metadata(writer.ledger_id) == reader.metadata


async def test_a_recovery_that_fails_takes_the_result_of_one_that_succeeded(cluster: FakeCluster, client: LedgerClient):
    writer = await abandoned(cluster, client, (3, 3, 2), 5, 0)
    first, second, _ = cluster.bookies.values()

    async def close_meanwhile(ledger_id: int, metadata: LedgerMetadata) -> None:
        cluster.ledgers.before_write = None
        await writer.close()
        first.stop()
        second.stop()
        await cluster.ledgers.update(ledger_id, lambda stored: replace(stored, custom_metadata=(("touched", b""),)))

    await cluster.ledgers.update(writer.ledger_id, lambda stored: replace(stored, state=LedgerState.IN_RECOVERY))
    async with trio.open_nursery() as nursery:
        first.hung = second.hung = True
        nursery.start_soon(close_meanwhile, writer.ledger_id, writer.metadata)
        reader = await client.open(writer.ledger_id, recover=True)
    assert (reader.last_entry_id, reader.closed) == (4, True)


@pytest.mark.parametrize("seed", range(15))
async def test_parallel_recoveries_and_a_living_writer_agree_in_the_end(seed: int) -> None:
    """NoDivergenceBetweenClientAndMetaData: confirmed entries are in the ledger, and all readers find the same end."""
    rng = random.Random(seed)
    cluster = FakeCluster(5, seed=seed)
    async with cluster.client() as writing, cluster.client() as one, cluster.client() as two:
        writer = await writing.create(ensemble_size=3, write_quorum=rng.choice([2, 3]), ack_quorum=2)
        seen = Confirmations(writer)
        ends: list[int] = []

        async def write() -> None:
            next_id = 0
            while writer.error is None:
                count = rng.randrange(1, 5)
                writer.append(payloads(next_id, next_id + count - 1))
                next_id += count
                await trio.sleep(rng.random() * 0.02)

        async def recover(client: LedgerClient) -> None:
            await trio.sleep(0.1 + rng.random() * 0.05)
            ends.append((await client.open(writer.ledger_id, recover=True)).last_entry_id)

        async def nemesis() -> None:
            await trio.sleep(0.1 + rng.random() * 0.05)
            rng.choice(list(cluster.bookies.values())).stop()

        async def slow_metadata(ledger_id: int, metadata: LedgerMetadata) -> None:
            await trio.sleep(rng.random() * 0.05)

        cluster.ledgers.before_write = slow_metadata
        async with trio.open_nursery() as nursery:
            nursery.start_soon(write)
            nursery.start_soon(recover, one)
            nursery.start_soon(recover, two)
            nursery.start_soon(nemesis)
        assert seen.errors
        reader = await one.open(writer.ledger_id, recover=False)
        assert ends == [reader.last_entry_id] * 2
        assert reader.last_entry_id >= seen.last
        assert await read_all(reader) == payloads(0, reader.last_entry_id)
        firsts = [each.first_entry_id for each in reader.metadata.fragments]
        assert firsts == sorted(set(firsts)), "OnlyValidFragments"


async def test_an_open_ledger_is_read_up_to_what_its_bookies_know_to_be_confirmed_without_fencing(cluster, client):
    writer = await abandoned(cluster, client, (3, 3, 2), 10, 0)
    seen = Confirmations(writer)
    reader = await client.open(writer.ledger_id, recover=False)
    assert not reader.closed
    assert reader.last_entry_id == 4, "the last run carried the LAC before it"
    assert await read_all(reader) == payloads(0, 4)
    await seen.write(10, 10)


async def test_recovery_says_why_it_cannot_write_the_tail(cluster: FakeCluster, client: LedgerClient) -> None:
    writer = await abandoned(cluster, client, (3, 3, 2), 5, 4)
    cluster.bookie.refuse = lambda request: Rc.READ_ONLY if isinstance(request, Run) else None
    await raises(LedgerError, client.open(writer.ledger_id, recover=True), "READ_ONLY")


async def test_recovery_tries_each_bookie_once_and_then_gives_up(cluster: FakeCluster, client: LedgerClient) -> None:
    writer = await abandoned(cluster, client, (1, 1, 1), 0, 4)
    for bookie in cluster.bookies.values():
        bookie.refuse = lambda request: Rc.IO if isinstance(request, Run) else None
    await raises(LedgerRecoveryError, client.open(writer.ledger_id, recover=True))


@pytest.mark.bookies(read_timeout_s=3)
async def test_a_busy_bookie_is_asked_again_by_recovery(cluster: FakeCluster, client: LedgerClient) -> None:
    writer = await abandoned(cluster, client, (3, 3, 2), 5, 40)
    rng = random.Random(4)

    def refuse(request: v2.Request) -> Rc | None:
        busy = isinstance(request, v2.ReadRequest) and rng.random() < 0.7
        return Rc.TOO_MANY_REQUESTS if busy else None

    cluster.every(refuse=refuse)
    reader = await client.open(writer.ledger_id, recover=True)
    assert reader.last_entry_id == 44

    other = await abandoned(cluster, client, (3, 3, 2), 0, 0)
    cluster.every(refuse=lambda request: Rc.TOO_MANY_REQUESTS)
    began = trio.current_time()
    await raises(LedgerRecoveryError, client.open(other.ledger_id, recover=True), "TOO_MANY_REQUESTS")
    assert 2 < trio.current_time() - began <= 3


@pytest.mark.bookies(read_timeout_s=30)
async def test_recovery_does_not_wait_for_a_bookie_that_hangs_when_one_that_was_away_comes_back(cluster, client):
    writer = await abandoned(cluster, client, (3, 3, 2), 5, 4)
    hanging, starting, _ = cluster.bookies.values()
    hanging.hung = True
    starting.stop()

    async def come_back() -> None:
        await trio.sleep(2)
        starting.down = False

    async with trio.open_nursery() as nursery:
        nursery.start_soon(come_back)
        reader = await client.open(writer.ledger_id, recover=True)
    assert reader.last_entry_id == 8
    assert trio.current_time() < 2.5


@pytest.mark.parametrize("quorum", [(3, 3, 2), (5, 3, 2), (5, 4, 2), (7, 5, 3), (1, 1, 1)])
@pytest.mark.bookies(7)
async def test_no_bookie_is_asked_for_more_bytes_at_once_than_recovery_may_hold(quorum, cluster, client):
    writer = await abandoned(cluster, client, quorum, 1, 400)
    asked: Counter[tuple[str, float]] = Counter()
    for bookie in cluster.bookies.values():
        bookie.delay_s = lambda: 0.01

        def count(request: Any, bookie_id: str = bookie.bookie_id) -> None:
            if isinstance(request, v2.ReadRequest):
                asked[bookie_id, trio.current_time()] += 1

        bookie.refuse = count
    reader = await client.open(writer.ledger_id, recover=True)
    assert reader.last_entry_id == 400
    most = max(asked.values())
    assert most * v2.FRAME_MAX <= ASKED_BYTES_MAX
    assert most > 8, "a window is more than a few entries"


@pytest.mark.bookies(3)
async def test_a_recovery_leaves_nothing_to_the_collector_of_garbage(cluster: FakeCluster, client: LedgerClient):
    """After a kill a broker recovers a ledger of each topic that is loaded: 2.5 KB of each stayed until the collector
    looked at all objects, which it hardly ever does."""
    writer = await abandoned(cluster, client, (3, 2, 2), 5, 0)
    gc.collect()  # of what failed in other tests
    gc.disable()
    try:
        await client.open(writer.ledger_id, recover=True)
        assert not [each for each in gc.get_objects() if isinstance(each, Recovery)]
    finally:
        gc.enable()
