from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
import trio

from quire.ledger import LedgerClient
from quire.ledger.errors import (
    EntryTooLargeError,
    LedgerClosedError,
    LedgerConflictError,
    LedgerError,
    LedgerFencedError,
    LedgerReadError,
    LedgerUnauthorizedError,
    LedgerWriteError,
    NoSuchEntryError,
    NotEnoughBookiesError,
)
from quire.metadata.ledgers import Fragment, LedgerMetadata, LedgerState
from quire.metadata.store import Versioned
from quire.wire.bookkeeper import v2
from quire.wire.bookkeeper.entry import read_header
from quire.wire.bookkeeper.v2 import Rc
from tests.support.refusals import raises, refuses
from tests.unit.ledger.fake_bookie import FakeCluster, begun, payloads, total


@pytest.mark.bookies(1)
async def test_entries_are_confirmed_in_order_and_their_payloads_are_at_hand_in_the_callback(client: LedgerClient):
    writer, seen = await begun(client)
    assert writer.append(payloads(0, 4)) == 0
    assert writer.append(payloads(5, 5)) == 5
    await seen.until(5)
    assert seen.payloads == payloads(0, 5)
    assert writer.pending_bytes == 0
    assert writer.last_confirmed == writer.last_pushed == 5
    assert writer.length == total(0, 5)
    assert writer.sealed(0, 5) == []


@pytest.mark.bookies(1)
async def test_nothing_is_reported_from_within_append(cluster: FakeCluster, client: LedgerClient) -> None:
    writer, seen = await begun(client)
    writer.append(payloads(0, 4))
    assert not seen.ranges, "the fake bookie answers from within send"
    await seen.until(4)
    cluster.bookie.refuse = lambda request: Rc.FENCED
    writer.append(payloads(5, 5))
    assert not seen.errors
    assert isinstance(await seen.until_failed(), LedgerFencedError)


@pytest.mark.parametrize("quorum", [(1, 1, 1), (3, 3, 2), (3, 2, 2), (5, 3, 2), (4, 1, 1)])
@pytest.mark.parametrize("seed", range(5))
async def test_answers_in_any_order_confirm_entries_in_order(quorum: tuple[int, int, int], seed: int) -> None:
    rng = random.Random(seed)
    cluster = FakeCluster(5, seed=seed)
    cluster.hold()
    async with cluster.client() as client:
        writer, seen = await begun(client, quorum)
        first = 0
        for _ in range(20):
            last = first + rng.randrange(6)
            assert writer.append(payloads(first, last)) == first
            first = last + 1
            for bookie in cluster.bookies.values():
                if rng.random() < 0.3:
                    bookie.release(rng.shuffle)
        for bookie in cluster.bookies.values():
            bookie.release(rng.shuffle)
        await seen.until(first - 1)
        assert (seen.payloads, seen.confirmed) == (payloads(0, first - 1), list(range(first)))
        assert len(seen.ranges) > 1 or seed, "some were confirmed on the way"
        metadata = await cluster.metadata(writer.ledger_id)
        for entry_id in range(first):
            copies = [
                bookie for bookie in cluster.of(metadata.fragments[0].bookies)
                if entry_id in bookie.entries[writer.ledger_id]
            ]  # fmt: skip
            assert len(copies) == quorum[1]


async def test_an_ack_quorum_is_enough_and_less_is_not(cluster: FakeCluster, client: LedgerClient) -> None:
    cluster.hold()
    first, second, _ = cluster.bookies.values()
    writer, seen = await begun(client, (3, 3, 2))
    writer.append(payloads(0, 9))
    first.release()
    assert seen.ranges == []
    assert writer.pending_bytes > 0
    second.release()
    assert seen.ranges == [(0, 9)]
    assert writer.pending_bytes == 0


@pytest.mark.bookies(1)
async def test_the_last_confirmed_entry_travels_with_the_next_run(cluster: FakeCluster, client: LedgerClient) -> None:
    writer, seen = await begun(client, entries=3)
    await seen.write(3, 4)
    entries = cluster.bookie.entries[writer.ledger_id]
    assert [read_header(entries[each]).lac for each in range(5)] == [-1, -1, -1, 2, 2]


@pytest.mark.bookies(1)
async def test_an_append_from_within_the_callback_is_fine(client: LedgerClient) -> None:
    writer = await client.create()
    done = trio.Event()
    ranges = []

    def confirmed(first: int, last: int) -> None:
        ranges.append((first, last))
        if last < 5:
            writer.append([b"next"])
        else:
            done.set()

    writer.on_confirmed = confirmed
    writer.append([b"first"])
    await done.wait()
    assert ranges == [(each, each) for each in range(6)]


@pytest.mark.bookies(1)
async def test_an_entry_that_is_too_large_changes_nothing(client: LedgerClient) -> None:
    writer, seen = await begun(client)
    refuses(EntryTooLargeError, lambda: writer.append([b"small", bytes(v2.FRAME_MAX)]))
    assert (writer.last_pushed, writer.length, writer.pending_bytes) == (-1, 0, 0)
    assert writer.append([b"fine"]) == 0
    await seen.until(0)


@pytest.mark.parametrize(("rc", "kind"), [(Rc.FENCED, LedgerFencedError), (Rc.UNAUTHORIZED, LedgerUnauthorizedError)])
@pytest.mark.bookies(4)
async def test_a_fenced_writer_is_dead(cluster: FakeCluster, client: LedgerClient, rc: Rc, kind: type[LedgerError]):
    writer, seen = await begun(client, (3, 3, 2), entries=4)
    before = await cluster.ledgers.read(writer.ledger_id)
    cluster.members(writer)[1].refuse = lambda request: rc
    cluster.hold()
    writer.append(payloads(4, 6))
    cluster.release()
    assert isinstance(await seen.until_failed(), kind)
    refuses(kind, lambda: writer.append(payloads(7, 7)))
    assert len(seen.errors) == 1
    if kind is LedgerFencedError:
        await writer.close()
    assert await cluster.ledgers.read(writer.ledger_id) == before, "the metadata is for whom fenced it"
    assert [bytes(each) for each in writer.sealed(4, 6)] == payloads(4, 6), "for whoever sends them elsewhere"


@pytest.mark.parametrize("fault", ["stopped", "refusing", "hung"])
@pytest.mark.parametrize("quorum", [(1, 1, 1), (3, 3, 2), (3, 3, 3), (4, 2, 2)])
@pytest.mark.bookies(6, add_timeout_s=5)
async def test_a_failed_bookie_is_replaced_and_every_entry_reaches_its_write_quorum(quorum, fault, cluster, client):
    writer, seen = await begun(client, quorum, entries=10)
    before = writer.metadata.fragments[0].bookies
    cluster.bookies[before[0]].fail(fault)
    writer.append(payloads(10, 19))
    await trio.sleep(20)  # In virtual time: well past the timeout.
    await seen.write(20, 29)
    await writer.close()
    assert seen.payloads == payloads(0, 29)
    metadata = await cluster.metadata(writer.ledger_id)
    assert metadata == writer.metadata
    assert metadata.last_entry_id == 29
    assert metadata.fragments[0] == Fragment(0, before)
    assert metadata.fragments[1].first_entry_id >= 10
    assert before[0] not in metadata.fragments[1].bookies
    assert metadata.fragments[1].bookies[1:] == before[1:]
    for entry_id in range(metadata.fragments[1].first_entry_id, 30):
        members = cluster.of(metadata.fragment_at(entry_id).bookies)
        copies = [each for each in members if entry_id in each.entries.get(writer.ledger_id, {})]
        assert len(copies) == quorum[1], f"entry {entry_id}"


@pytest.mark.bookies(4)
async def test_acks_that_come_while_the_ensemble_changes_move_nothing_until_the_new_bookie_has_them(cluster, client):
    writer, seen = await begun(client, (3, 3, 3), entries=1)
    members = cluster.members(writer)
    cluster.hold()
    writer.append(payloads(1, 5))
    members[2].release()
    members[0].stop()
    for _ in range(10):
        await trio.lowlevel.checkpoint()
    members[1].release()
    assert seen.last == 0
    [other] = [each for each in cluster.bookies.values() if each not in members]
    other.release()
    await seen.until(5)
    assert writer.metadata.fragments[1] == Fragment(1, (other.bookie_id, members[1].bookie_id, members[2].bookie_id))


@pytest.mark.bookies(add_timeout_s=5)
async def test_the_ack_of_a_replaced_bookie_does_not_count_for_its_successor(cluster, client):
    writer, seen = await begun(client, (2, 2, 2))
    members = cluster.members(writer)
    [other] = [each for each in cluster.bookies.values() if each not in members]
    members[0].hold = members[1].hold = other.hold = True
    writer.append(payloads(0, 3))
    members[1].release()
    await trio.sleep(8)
    assert writer.metadata.fragments[0].bookies[0] == other.bookie_id
    members[0].release()
    await trio.lowlevel.checkpoint()
    assert seen.ranges == []
    other.release()
    await seen.until(3)
    assert writer.metadata.fragments == (Fragment(0, (other.bookie_id, members[1].bookie_id)),)


@pytest.mark.bookies(6)
async def test_bookies_that_fail_during_a_change_are_replaced_in_another_round(cluster, client):
    writer, seen = await begun(client, (3, 3, 2))
    members = cluster.members(writer)
    rounds = []

    async def before_write(ledger_id: int, metadata: LedgerMetadata) -> None:
        rounds.append(metadata.fragments[-1])
        if len(rounds) == 1:
            members[1].stop()

    cluster.ledgers.before_write = before_write
    cluster.hold()
    writer.append(payloads(0, 3))
    members[0].stop()
    await trio.sleep(5)
    assert len(rounds) == 2
    cluster.release()
    await seen.until(3)
    [fragment] = writer.metadata.fragments
    assert fragment == rounds[1]
    assert fragment.bookies[2] == members[2].bookie_id
    assert not {members[0].bookie_id, members[1].bookie_id} & set(fragment.bookies)


async def test_without_a_replacement_the_writer_fails_and_can_be_closed_at_its_last_confirmed_entry(cluster, client):
    writer, seen = await begun(client, (3, 3, 2), entries=10)
    cluster.hold()
    writer.append(payloads(10, 19))
    cluster.bookie.stop()
    assert isinstance(await seen.until_failed(), NotEnoughBookiesError)
    cluster.release()
    assert seen.last == 9, "what was not confirmed when the writer failed is never confirmed"
    await writer.close()
    metadata = await cluster.metadata(writer.ledger_id)
    assert (metadata.state, metadata.last_entry_id) == (LedgerState.CLOSED, 9)
    assert metadata.length == total(0, 9)
    assert [bytes(each) for each in writer.sealed(10, 19)] == payloads(10, 19)


async def test_a_bookie_that_failed_is_not_chosen_again_for_a_while() -> None:
    for pause, returns in ((1, False), (31, True)):
        cluster = FakeCluster(2)
        async with cluster.client(quarantine_s=30) as client:
            writer, seen = await begun(client)
            for last in (0, 1):
                await seen.write(last, last)
                cluster.bookies[writer.metadata.fragments[-1].bookies[0]].refuse = lambda request: Rc.IO
                if last == 1:
                    break
            for bookie in cluster.bookies.values():
                if bookie.bookie_id != writer.metadata.fragments[-1].bookies[0]:
                    bookie.refuse = lambda request: None
            await trio.sleep(pause)
            writer.append(payloads(2, 2))
            if returns:
                await seen.until(2)
            else:
                assert isinstance(await seen.until_failed(), NotEnoughBookiesError)


@pytest.mark.bookies(1)
async def test_an_idle_writer_survives_the_restart_of_its_bookie(cluster: FakeCluster, client: LedgerClient) -> None:
    writer, seen = await begun(client, entries=2)
    cluster.bookie.lose_links()
    await trio.sleep(1)
    await seen.write(2, 3)
    assert len(writer.metadata.fragments) == 1


@pytest.mark.bookies(1)
async def test_a_busy_bookie_gets_the_same_entries_again(cluster: FakeCluster, client: LedgerClient) -> None:
    bookie = cluster.bookie
    writer, seen = await begun(client)
    answers = [None, Rc.TOO_MANY_REQUESTS, None, Rc.TOO_MANY_REQUESTS, Rc.TOO_MANY_REQUESTS]
    bookie.refuse = lambda request: answers.pop(0) if answers else None
    for entry_id in range(3):
        writer.append(payloads(entry_id, entry_id))
    await seen.until(2)
    assert seen.payloads == payloads(0, 2)
    assert answers == []


@pytest.mark.bookies(1, add_timeout_s=4)
async def test_a_bookie_that_stays_busy_until_the_timeout_has_failed(cluster: FakeCluster, client: LedgerClient):
    cluster.bookie.refuse = lambda request: Rc.TOO_MANY_REQUESTS
    writer, seen = await begun(client)
    writer.append(payloads(0, 3))
    began = trio.current_time()
    assert isinstance(await seen.until_failed(), NotEnoughBookiesError)
    assert 4 <= trio.current_time() - began < 5


@pytest.mark.bookies(4, add_timeout_s=4)
async def test_a_bookie_that_never_answers_is_found_out_even_if_the_others_make_the_ack_quorum(cluster, client):
    writer, seen = await begun(client, (3, 3, 2))
    slow = writer.metadata.fragments[0].bookies[1]
    cluster.bookies[slow].hung = True
    for entry_id in range(20):
        writer.append(payloads(entry_id, entry_id))
        await trio.sleep(0.5)
    await seen.until(19)
    assert len(writer.metadata.fragments) == 2
    assert slow not in writer.metadata.fragments[1].bookies
    assert 5 <= writer.metadata.fragments[1].first_entry_id <= 12


@pytest.mark.bookies(1)
async def test_an_answer_to_an_add_that_was_never_sent_costs_the_bookie_its_place(cluster, client):
    bookie = cluster.bookie
    bookie.hold = True
    writer, seen = await begun(client)
    writer.append(payloads(0, 3))
    session, _ = bookie.held[0]
    bookie.held[:] = [(session, v2.add_responses(Rc.OK, writer.ledger_id, range(9)))]
    bookie.release()
    assert isinstance(await seen.until_failed(), NotEnoughBookiesError)
    assert seen.ranges == []


# --- races for the metadata


def in_state(state: LedgerState) -> Callable[[LedgerMetadata], LedgerMetadata]:
    return lambda metadata: replace(metadata, state=state)


@pytest.mark.parametrize(
    ("theirs", "kind"),
    [(in_state(LedgerState.CLOSED), LedgerClosedError), (in_state(LedgerState.IN_RECOVERY), LedgerFencedError)],
)
@pytest.mark.bookies(4)
async def test_a_writer_that_finds_its_ledger_taken_while_changing_the_ensemble_stops(cluster, client, theirs, kind):
    writer, seen = await begun(client, (3, 3, 2))

    async def before_write(ledger_id: int, metadata: LedgerMetadata) -> None:
        cluster.ledgers.before_write = None
        await cluster.ledgers.update(ledger_id, theirs)

    cluster.ledgers.before_write = before_write
    cluster.hold()
    writer.append(payloads(0, 3))
    cluster.members(writer)[0].stop()
    assert type(await seen.until_failed()) is kind


async def test_a_close_reads_the_metadata_only_if_others_changed_them(cluster: FakeCluster, client: LedgerClient):
    reads: list[int] = []
    read = cluster.ledgers.read

    async def counted(ledger_id: int) -> Versioned[LedgerMetadata] | None:
        reads.append(ledger_id)
        return await read(ledger_id)

    alone = await client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
    disturbed = await client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
    await cluster.ledgers.update(disturbed.ledger_id, in_state(LedgerState.IN_RECOVERY))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cluster.ledgers, "read", counted)
        await alone.close()
        await disturbed.close()
    assert reads == [disturbed.ledger_id]
    for writer in (alone, disturbed):
        stored = await cluster.ledgers.read(writer.ledger_id)
        assert stored is not None
        assert stored.value.state is LedgerState.CLOSED


@pytest.mark.bookies(5)
async def test_a_replacement_made_by_others_is_adopted(cluster: FakeCluster, client: LedgerClient) -> None:
    writer, seen = await begun(client, (3, 3, 2))
    ours = writer.metadata.fragments[0].bookies
    theirs: list[str] = []

    async def before_write(ledger_id: int, metadata: LedgerMetadata) -> None:
        cluster.ledgers.before_write = None
        chosen = metadata.fragments[-1].bookies[0]
        theirs.extend(each for each in cluster.available() if each not in ours and each != chosen)
        fragment = Fragment(0, (theirs[0], *ours[1:]))
        await cluster.ledgers.update(ledger_id, lambda stored: replace(stored, fragments=(fragment,)))

    cluster.ledgers.before_write = before_write
    cluster.hold()
    writer.append(payloads(0, 3))
    cluster.bookies[ours[0]].stop()
    await trio.sleep(1)
    cluster.release()
    await seen.until(3)
    assert writer.metadata.fragments == (Fragment(0, (theirs[0], *ours[1:])),)
    assert sorted(cluster.bookies[theirs[0]].entries[writer.ledger_id]) == [0, 1, 2, 3]


@pytest.mark.parametrize("after", [False, True])
async def test_a_metadata_store_that_fails_for_a_while_only_delays_the_change(after: bool) -> None:
    cluster = FakeCluster(4)
    async with cluster.client() as client:
        writer, seen = await begun(client, (3, 3, 3))
        cluster.ledgers.failures = 3
        cluster.ledgers.after = after
        await seen.write(0, 3)
        gone = writer.metadata.fragments[0].bookies[0]
        cluster.bookies[gone].stop()
        await seen.write(4, 7)
        metadata = await cluster.metadata(writer.ledger_id)
        assert metadata == writer.metadata
        assert [each.first_entry_id for each in metadata.fragments] == [0, 4]


@pytest.mark.bookies(2)
async def test_a_metadata_store_that_stays_away_ends_the_writer(cluster: FakeCluster, client: LedgerClient) -> None:
    writer, seen = await begun(client)
    cluster.ledgers.failures = 10**6
    cluster.bookies[writer.metadata.fragments[0].bookies[0]].down = True
    writer.append(payloads(0, 3))
    assert isinstance(await seen.until_failed(), LedgerWriteError)


# --- close


@pytest.mark.bookies(1)
async def test_close_stores_the_last_confirmed_entry_and_gives_up_the_rest(cluster: FakeCluster, client: LedgerClient):
    bookie = cluster.bookie
    writer, seen = await begun(client)
    writer.append(payloads(0, 3))
    bookie.hold = True
    writer.append(payloads(4, 9))
    await writer.close()
    assert seen.ranges == [(0, 3)]
    assert [type(error) for error in seen.errors] == [LedgerClosedError]
    bookie.release()
    assert seen.ranges == [(0, 3)]
    metadata = await cluster.metadata(writer.ledger_id)
    assert (metadata.state, metadata.last_entry_id) == (LedgerState.CLOSED, 3)
    assert metadata.length == total(0, 3)
    refuses(LedgerClosedError, lambda: writer.append([b"late"]))
    writes = cluster.ledgers.writes
    await writer.close()
    assert cluster.ledgers.writes == writes


@pytest.mark.bookies(1)
async def test_close_of_an_empty_ledger_says_that_it_is_empty(cluster: FakeCluster, client: LedgerClient) -> None:
    writer, seen = await begun(client)
    await writer.close()
    metadata = await cluster.metadata(writer.ledger_id)
    assert (metadata.state, metadata.last_entry_id, metadata.length) == (LedgerState.CLOSED, -1, 0)
    assert seen.errors == []


@pytest.mark.bookies(1)
async def test_close_overrides_a_recovery_under_way(cluster: FakeCluster, client: LedgerClient) -> None:
    writer, _ = await begun(client, entries=4)
    await cluster.ledgers.update(writer.ledger_id, in_state(LedgerState.IN_RECOVERY))
    await writer.close()
    metadata = await cluster.metadata(writer.ledger_id)
    assert (metadata.state, metadata.last_entry_id) == (LedgerState.CLOSED, 3)


@pytest.mark.parametrize(("last", "agrees"), [(3, True), (2, False)])
@pytest.mark.bookies(1)
async def test_close_accepts_an_equal_close_by_others_and_no_other(cluster, client, last, agrees):
    writer, _ = await begun(client, entries=4)
    length = total(0, last)
    await cluster.ledgers.update(
        writer.ledger_id,
        lambda stored: replace(stored, state=LedgerState.CLOSED, last_entry_id=last, length=length),
    )
    if agrees:
        await writer.close()
    else:
        await raises(LedgerConflictError, writer.close())
    assert (await cluster.metadata(writer.ledger_id)).last_entry_id == last


@pytest.mark.bookies(4)
async def test_close_wins_over_an_ensemble_change_that_is_under_way(cluster: FakeCluster, client: LedgerClient) -> None:
    writer, seen = await begun(client, (3, 3, 2), entries=4)

    async def before_write(ledger_id: int, metadata: LedgerMetadata) -> None:
        cluster.ledgers.before_write = None
        await trio.sleep(5)

    cluster.ledgers.before_write = before_write
    cluster.hold()
    writer.append(payloads(4, 5))
    cluster.members(writer)[0].stop()
    await trio.sleep(1)
    await writer.close()
    await trio.sleep(10)
    assert [type(error) for error in seen.errors] == [LedgerClosedError]
    metadata = await cluster.metadata(writer.ledger_id)
    assert (metadata.state, metadata.last_entry_id, len(metadata.fragments)) == (LedgerState.CLOSED, 3, 1)


@pytest.mark.bookies(1)
async def test_a_writer_reads_what_it_has_confirmed(cluster: FakeCluster, client: LedgerClient) -> None:
    bookie = cluster.bookie
    writer, _ = await begun(client, entries=10)
    bookie.hold = True
    writer.append(payloads(10, 19))
    assert [bytes(each) for each in await writer.read(3, 19, size_max=10**6)] == payloads(3, 9)
    await raises(NoSuchEntryError, writer.read(10, 19, size_max=10**6))


@pytest.mark.parametrize("closed", [False, True])
async def test_a_writer_looks_for_its_earlier_entries_where_a_repair_has_put_them(cluster, client, closed):
    writer, seen = await begun(client, entries=5)
    [old] = cluster.members(writer)
    old.stop()
    await seen.write(5, 9)
    [current] = cluster.members(writer, 1)
    [new] = [each for each in cluster.bookies.values() if each not in (old, current)]
    new.entries[writer.ledger_id] = dict(old.entries[writer.ledger_id])
    await raises(LedgerReadError, writer.read(0, 9, size_max=10**6))
    if closed:
        await client.open(writer.ledger_id, recover=True)
    await client.replace_members(writer.ledger_id, 0, 4, {0: (old.bookie_id, new.bookie_id)})
    assert [bytes(each) for each in await writer.read(0, 9, size_max=10**6)] == payloads(0, 4)
    assert [bytes(each) for each in await writer.read(5, 9, size_max=10**6)] == payloads(5, 9)
    new.stop()
    await raises(LedgerReadError, writer.read(0, 9, size_max=10**6))
    if not closed:
        assert await writer.write(b"goes on") == 10


async def test_an_entry_that_an_original_bookie_would_not_take_is_refused_unless_bookies_are_said_to_take_it() -> None:
    cluster = FakeCluster(1)
    largest = v2.ORIGINAL_FRAME_MAX + 4 - v2.ADD_OVERHEAD - 36
    async with cluster.client() as client, cluster.client(frame_max=v2.FRAME_MAX) as told:
        writer = await client.create()
        refuses(EntryTooLargeError, lambda: writer.append([bytes(largest + 1)]), "is the limit of bookies")
        assert await writer.write(bytes(largest)) == 0
        writer = await told.create()
        assert await writer.write(bytes(largest + 1)) == 0
        cluster.bookie.hold = True
        writer.append([bytes(largest + 2)])
        cluster.bookie.hold = False
        reader = await client.open(writer.ledger_id, recover=True)
        assert reader.last_entry_id == 1, "recovery copies what there is"
