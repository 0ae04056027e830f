"""The replicator: fragments get missing copies, and metadata never names a bookie that does not have them."""

from __future__ import annotations

import random

import pytest
import trio

from autorecovery.copying.replicator import Replicator
from autorecovery.copying.throttle import Throttle
from autorecovery.fragments import BadFragment, LostReason, fragments_of
from autorecovery.ledger_checker import LedgerChecker
from quire.ledger import LedgerClient
from quire.ledger.errors import (
    DigestMismatchError,
    FragmentChangedError,
    LedgerReadError,
    NoCopyLeftError,
    NoSuchEntryError,
    NotEnoughBookiesError,
)
from quire.ledger.reading.copies import CopyFault
from quire.metadata.ledgers import LedgerMetadata
from quire.wire.bookkeeper import v2
from quire.wire.bookkeeper.run import Run
from quire.wire.bookkeeper.v2 import Rc
from tests.support.refusals import raises
from tests.unit.autorecovery.repair import stored, wrong_copies
from tests.unit.ledger.fake_bookie import FakeCluster


async def one_bad(checker: LedgerChecker, ledger_id: int, metadata: LedgerMetadata, percentage: int = 0) -> BadFragment:
    [bad] = await checker.check(ledger_id, metadata, percentage=percentage)
    return bad


def lost_member(ledger_id: int, metadata: LedgerMetadata) -> BadFragment:
    """Return the finding for a first member of the first fragment that is no longer registered."""
    return BadFragment(fragment=fragments_of(ledger_id, metadata)[0], faults={0: LostReason.LOST})


@pytest.mark.parametrize("batch_reads", [True, False])
@pytest.mark.parametrize("quorums", [(3, 3, 2), (3, 2, 2), (5, 3, 2)])
@pytest.mark.fakes(7)
async def test_a_lost_member_is_replaced_by_one_that_has_every_entry_of_its_place(
    quorums, batch_reads, fakes: FakeCluster, client: LedgerClient, checker: LedgerChecker, replicator: Replicator
) -> None:
    ledger_id, written, before = await stored(fakes, client, 300, quorums=quorums)
    lost = before.fragments[0].bookies[1]
    fakes.bookies[lost].stop()
    for bookie in fakes.bookies.values():
        bookie.batch_reads = batch_reads
    bad = await one_bad(checker, ledger_id, before)
    assert bad.faults == {1: CopyFault.UNREACHABLE}
    copied = await replicator.replicate(before, bad)
    after = await fakes.metadata(ledger_id)
    assert lost not in after.fragments[0].bookies
    assert wrong_copies(fakes, ledger_id, after, written) == []
    assert copied.entries == len(bad.fragment.entries_of(1))
    assert await checker.check(ledger_id, after, percentage=100) == []


async def test_copies_are_taken_over_byte_for_byte(fakes, client, checker, replicator) -> None:
    ledger_id, _, before = await stored(fakes, client, 40)
    first, second, _ = fakes.of(before.fragments[0].bookies)
    first.stop()
    await replicator.replicate(before, await one_bad(checker, ledger_id, before))
    [new] = [
        each
        for each in (await fakes.metadata(ledger_id)).fragments[0].bookies
        if each not in before.fragments[0].bookies
    ]
    assert fakes.bookies[new].entries[ledger_id] == second.entries[ledger_id]


async def test_big_and_small_entries_are_copied_together(fakes, client, checker, replicator) -> None:
    writer = await client.create(ensemble_size=3, write_quorum=3, ack_quorum=3)
    written = [bytes([number]) * size for number, size in enumerate((10, 40_000, 0, 100_000, 600_000, 700_000, 5))]
    for payload in written:
        await writer.write(payload)
    await writer.close()
    before = await fakes.metadata(writer.ledger_id)
    fakes.bookies[before.fragments[0].bookies[2]].stop()
    await replicator.replicate(before, await one_bad(checker, writer.ledger_id, before))
    assert wrong_copies(fakes, writer.ledger_id, await fakes.metadata(writer.ledger_id), written) == []


async def test_metadata_names_the_newcomer_only_after_every_entry_is_on_it(fakes, client, checker):
    ledger_id, _written, before = await stored(fakes, client, 200)
    fakes.bookies[before.fragments[0].bookies[0]].stop()
    seen: list[int] = []

    async def look(written_id: int, metadata: LedgerMetadata) -> None:
        [new] = set(metadata.fragments[0].bookies) - set(before.fragments[0].bookies)
        seen.append(len(fakes.bookies[new].entries[ledger_id]))

    fakes.ledgers.before_write = look
    small = Replicator(client, checker, batch_entries=7)
    await small.replicate(before, await one_bad(checker, ledger_id, before))
    assert seen == [200]


@pytest.mark.fakes(8)
async def test_several_lost_members_are_replaced_in_one_pass(fakes, client, checker, replicator) -> None:
    ledger_id, written, before = await stored(fakes, client, 100, quorums=(5, 3, 2))
    for index in (0, 2):
        fakes.bookies[before.fragments[0].bookies[index]].stop()
    await replicator.replicate(before, await one_bad(checker, ledger_id, before))
    assert wrong_copies(fakes, ledger_id, await fakes.metadata(ledger_id), written) == []


@pytest.mark.fakes(5)
async def test_an_entry_with_no_good_copy_leaves_the_fragment_as_it_is(fakes, client, checker, replicator) -> None:
    ledger_id, _, before = await stored(fakes, client, 50)
    lost, one, two = fakes.of(before.fragments[0].bookies)
    lost.stop()
    bad = await one_bad(checker, ledger_id, before)
    for fault, error in (
        (lambda bookie: bookie.damage(ledger_id, 17), DigestMismatchError),
        (lambda bookie: bookie.entries[ledger_id].pop(17), LedgerReadError),
    ):
        for bookie in (one, two):
            fault(bookie)
        await raises(error, replicator.replicate(before, bad), "17")
        assert await fakes.metadata(ledger_id) == before


@pytest.mark.fakes(5)
async def test_an_entry_that_all_members_deny_is_told_as_lost(fakes, client, checker, replicator) -> None:
    ledger_id, _, before = await stored(fakes, client, 50)
    for bookie in fakes.of(before.fragments[0].bookies):
        bookie.entries[ledger_id].pop(0)
    with pytest.raises(NoSuchEntryError, match=f"{ledger_id}:0 "):
        await replicator.replicate(before, await one_bad(checker, ledger_id, before))
    assert await fakes.metadata(ledger_id) == before


@pytest.mark.fakes(5)
@pytest.mark.parametrize("unsure", [1, 3])
async def test_an_entry_that_members_deny_or_have_lost_has_no_copy_left(
    unsure: int, fakes, client, checker, replicator
) -> None:
    ledger_id, _, before = await stored(fakes, client, 50)
    members = fakes.of(before.fragments[0].bookies)
    for bookie in members[:unsure]:
        bookie.fail("unsure")
    for bookie in members[unsure:]:
        bookie.entries[ledger_id].pop(0)
    with pytest.raises(NoCopyLeftError, match=rf"{ledger_id}:0 .*UNKNOWN_LEDGER_STATE"):
        await replicator.replicate(before, await one_bad(checker, ledger_id, before))
    assert await fakes.metadata(ledger_id) == before


@pytest.mark.fakes(5)
async def test_an_entry_that_a_silent_member_may_have_is_not_called_lost(fakes, client, checker, replicator) -> None:
    ledger_id, _, before = await stored(fakes, client, 50)
    silent, *others = fakes.of(before.fragments[0].bookies)
    silent.stop()
    for bookie in others:
        bookie.fail("unsure")
    with pytest.raises(LedgerReadError) as raised:
        await replicator.replicate(before, await one_bad(checker, ledger_id, before))
    assert type(raised.value) is LedgerReadError


@pytest.mark.fakes(6)
async def test_members_that_lack_different_entries_mend_each_other(fakes, client, checker, replicator) -> None:
    ledger_id, written, before = await stored(fakes, client, 60)
    one, two, three = fakes.of(before.fragments[0].bookies)
    one.damage(ledger_id, 5)
    two.entries[ledger_id].pop(6)
    three.damage(ledger_id, 5)
    three.damage(ledger_id, 59)
    bad = await one_bad(checker, ledger_id, before, percentage=100)
    assert bad.faults == {0: CopyFault.DAMAGED, 1: CopyFault.MISSING, 2: CopyFault.DAMAGED}
    await replicator.replicate(before, bad)
    assert wrong_copies(fakes, ledger_id, await fakes.metadata(ledger_id), written) == []


@pytest.mark.parametrize("quorums", [(3, 3, 2), (3, 2, 2)])
@pytest.mark.fakes(3)
async def test_without_a_spare_bookie_bad_copies_are_mended_in_place(quorums, fakes, client, checker, replicator):
    ledger_id, written, before = await stored(fakes, client, 60, quorums=quorums)
    one = fakes.bookies[before.fragments[0].bookies[0]]
    held = sorted(one.entries[ledger_id])
    one.damage(ledger_id, held[3])
    one.damage(ledger_id, held[-1])
    one.entries[ledger_id].pop(held[7])
    copied = await replicator.replicate(before, await one_bad(checker, ledger_id, before, percentage=100))
    assert (copied.entries, copied.mended, copied.moved) == (3, [one.bookie_id], [])
    assert await fakes.metadata(ledger_id) == before
    assert wrong_copies(fakes, ledger_id, before, written) == []


async def test_the_only_spare_bookie_goes_to_who_is_lost_and_the_rest_is_mended_in_place(
    fakes, client, checker, replicator
) -> None:
    ledger_id, written, before = await stored(fakes, client, 60)
    damaged, lost, _ = fakes.of(before.fragments[0].bookies)
    damaged.damage(ledger_id, 0)
    lost.stop()
    await replicator.replicate(before, await one_bad(checker, ledger_id, before))
    after = await fakes.metadata(ledger_id)
    assert lost.bookie_id not in after.fragments[0].bookies
    assert damaged.bookie_id in after.fragments[0].bookies
    assert wrong_copies(fakes, ledger_id, after, written) == []


@pytest.mark.fakes(3)
async def test_a_lost_member_without_a_spare_bookie_stays_and_is_told(fakes, client, checker, replicator) -> None:
    ledger_id, _, before = await stored(fakes, client, 10)
    fakes.bookies[before.fragments[0].bookies[0]].stop()
    await raises(NotEnoughBookiesError, replicator.replicate(before, await one_bad(checker, ledger_id, before)))
    assert await fakes.metadata(ledger_id) == before


async def test_a_newcomer_that_takes_no_copies_is_passed_over() -> None:
    refusals = 0
    for seed in range(12):
        cluster = FakeCluster(5, seed=seed)
        async with cluster.client() as client:
            checker = LedgerChecker(client, rng=random.Random(1))
            ledger_id, written, before = await stored(cluster, client, 10)
            spare = [each for each in cluster.bookies if each not in before.fragments[0].bookies]
            cluster.bookies[before.fragments[0].bookies[0]].stop()
            cluster.bookies[spare[0]].refuse = lambda request: Rc.READ_ONLY if isinstance(request, Run) else None
            await Replicator(client, checker).replicate(before, await one_bad(checker, ledger_id, before))
            after = await cluster.metadata(ledger_id)
            asked = [each for each in cluster.bookies[spare[0]].requests if isinstance(each, Run)]
            assert len(asked) <= 1
            refusals += len(asked)
            assert spare[1] in after.fragments[0].bookies
            assert wrong_copies(cluster, ledger_id, after, written) == []
    assert refusals


async def test_a_busy_newcomer_gets_its_copies_a_little_later(fakes, client, checker, replicator) -> None:
    ledger_id, written, before = await stored(fakes, client, 50)
    [spare] = [each for each in fakes.bookies.values() if each.bookie_id not in before.fragments[0].bookies]
    fakes.bookies[before.fragments[0].bookies[0]].stop()
    adds = 0

    def busy(request: v2.Request) -> Rc | None:
        nonlocal adds
        adds += isinstance(request, Run)
        return Rc.TOO_MANY_REQUESTS if isinstance(request, Run) and adds < 4 else None

    spare.refuse = busy
    await replicator.replicate(before, await one_bad(checker, ledger_id, before))
    assert adds == 4
    assert wrong_copies(fakes, ledger_id, await fakes.metadata(ledger_id), written) == []


@pytest.mark.fakes(6)
async def test_a_fragment_that_others_repaired_meanwhile_is_left_to_them(fakes, client, checker, replicator) -> None:
    ledger_id, written, before = await stored(fakes, client, 20)
    fakes.bookies[before.fragments[0].bookies[0]].stop()
    bad = await one_bad(checker, ledger_id, before)
    await replicator.replicate(before, bad)
    after = await fakes.metadata(ledger_id)
    other = next(each for each in fakes.available() if each not in after.fragments[0].bookies)
    with pytest.raises(FragmentChangedError):
        await replicator.replicate(before, bad, ensemble=(other, *before.fragments[0].bookies[1:]))
    assert await fakes.metadata(ledger_id) == after
    assert wrong_copies(fakes, ledger_id, after, written) == []


async def test_an_empty_fragment_gets_another_member_without_a_copy(fakes, client, replicator):
    ledger_id, _, before = await stored(fakes, client, 0)
    gone = before.fragments[0].bookies[0]
    bad = lost_member(ledger_id, before)
    assert (await replicator.replicate(before, bad)).entries == 0
    assert gone not in (await fakes.metadata(ledger_id)).fragments[0].bookies


@pytest.mark.fakes(5)
async def test_excluded_bookies_get_no_copies(fakes: FakeCluster, client: LedgerClient, replicator: Replicator) -> None:
    ledger_id, _, before = await stored(fakes, client, 10)
    spare = [each for each in fakes.bookies if each not in before.fragments[0].bookies]
    bad = lost_member(ledger_id, before)
    await raises(NotEnoughBookiesError, replicator.replicate(before, bad, exclude=spare))
    await replicator.replicate(before, bad, exclude=spare[:1])
    assert spare[1] in (await fakes.metadata(ledger_id)).fragments[0].bookies


async def test_a_limit_of_bytes_a_second_is_kept(fakes: FakeCluster, client: LedgerClient, checker: LedgerChecker):
    ledger_id, written, before = await stored(fakes, client, 100, size=1000)
    fakes.bookies[before.fragments[0].bookies[0]].stop()
    bad = await one_bad(checker, ledger_id, before)
    slow = Replicator(client, checker, throttle=Throttle(20_000), batch_entries=5)
    began = trio.current_time()
    await slow.replicate(before, bad)
    assert 3 < trio.current_time() - began < 6
    assert wrong_copies(fakes, ledger_id, await fakes.metadata(ledger_id), written) == []


async def test_an_open_fragment_is_not_replicated(fakes: FakeCluster, client: LedgerClient, replicator: Replicator):
    ledger_id, _, metadata = await stored(fakes, client, 5, close=False)
    [fragment] = fragments_of(ledger_id, metadata)
    with pytest.raises(AssertionError, match="is open"):
        await replicator.replicate(metadata, BadFragment(fragment=fragment, faults={0: LostReason.LOST}))


async def test_a_fragment_that_every_member_has_whole_is_read_with_few_requests_from_one_of_them(
    fakes, client, checker, replicator
) -> None:
    ledger_id, _, before = await stored(fakes, client, 200)
    fakes.bookies[before.fragments[0].bookies[0]].stop()
    bad = await one_bad(checker, ledger_id, before)
    for bookie in fakes.bookies.values():
        bookie.requests.clear()
    await replicator.replicate(before, bad)
    asked = [type(each) for bookie in fakes.bookies.values() for each in bookie.requests]
    assert asked.count(v2.BatchReadRequest) == 1
    assert asked.count(v2.ReadRequest) == 0


async def test_a_living_member_with_damaged_copies_gives_its_place_to_a_spare_bookie(
    fakes, client, checker, replicator
) -> None:
    ledger_id, written, before = await stored(fakes, client, 30)
    damaged = fakes.bookies[before.fragments[0].bookies[1]]
    damaged.damage(ledger_id, 12)
    bad = await one_bad(checker, ledger_id, before, percentage=100)
    damaged.requests.clear()
    await replicator.replicate(before, bad)
    assert damaged.requests == [], "the good ones are asked first"
    after = await fakes.metadata(ledger_id)
    assert damaged.bookie_id not in after.fragments[0].bookies
    assert wrong_copies(fakes, ledger_id, after, written) == []
