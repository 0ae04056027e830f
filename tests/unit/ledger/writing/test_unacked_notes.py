"""Writers and recoveries note ledgers whose copies may be missing: quire/ledger/writing/unacked_notes.py, appender.py,
ensemble_changes.py, recovery.py."""

from __future__ import annotations

import pytest
import trio

from quire.ledger import LedgerClient
from quire.ledger.errors import LedgerClosedError
from quire.ledger.writing.writer import LedgerWriter
from quire.metadata import unacked
from quire.metadata.errors import MalformedMetadataError
from quire.metadata.ledgers import LedgerMetadata, LedgerState
from tests.unit.ledger.fake_bookie import FakeBookie, FakeCluster, payloads

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


class Writes:
    """Record of the notes that were stored before each write of a ledger's metadata."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster
        self.notes: list[tuple[LedgerState, int, dict[int, int]]] = []
        """State and number of fragments written, notes at that moment."""
        cluster.ledgers.before_write = self._before

    async def _before(self, ledger_id: int, metadata: LedgerMetadata) -> None:
        self.notes.append((metadata.state, len(metadata.fragments), await notes(self._cluster)))


@pytest.fixture
async def cluster(request: pytest.FixtureRequest) -> FakeCluster:
    marker = request.node.get_closest_marker("bookies")
    cluster = FakeCluster(marker.args[0] if marker is not None and marker.args else 3)
    await cluster.store.create(FOLDER, make_parents=True)
    return cluster


@pytest.fixture
async def writer(client: LedgerClient) -> LedgerWriter:
    return await client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)


@pytest.fixture
async def late(cluster: FakeCluster, writer: LedgerWriter) -> FakeBookie:
    """The first member of the writer's ledger."""
    return cluster.members(writer)[0]


@pytest.mark.bookies(4)
async def test_a_member_that_is_replaced_and_lacks_confirmed_entries_is_noted(cluster, writer, late):
    await writer.write(b"0")
    late.hold = True
    for each in payloads(1, 5):
        await writer.write(each)
    late.lose_links()
    writes = Writes(cluster)
    await writer.write(b"6")
    first = writer.metadata.fragments[-1].first_entry_id
    assert writes.notes == [(LedgerState.OPEN, 2, {writer.ledger_id: first})], "later a crash could prevent it"


@pytest.mark.bookies(4)
async def test_a_member_that_fails_and_lacks_nothing_confirmed_is_not_noted(cluster: FakeCluster, writer: LedgerWriter):
    [gone, *_] = cluster.members(writer)
    await writer.write(b"0")
    await trio.sleep(1)
    gone.stop()
    await writer.write(b"1")
    await writer.close()
    await trio.sleep(100)
    assert len(writer.metadata.fragments) == 2
    assert await notes(cluster) == {}


async def test_a_member_whose_last_acknowledgements_come_soon_after_the_end_is_not_noted(
    cluster: FakeCluster, nursery: trio.Nursery, writer: LedgerWriter, late: FakeBookie
) -> None:
    late.hold = True
    await writer.write(b"0")
    nursery.start_soon(writer.close)
    await trio.sleep(0.04)
    late.release()
    await trio.sleep(100)
    assert writer.metadata.state is LedgerState.CLOSED
    assert await notes(cluster) == {}


@pytest.mark.bookies(2)
async def test_a_late_acknowledgement_confirms_nothing_behind_the_end(cluster: FakeCluster, client: LedgerClient):
    writer = await client.create(ensemble_size=2, write_quorum=2, ack_quorum=1)
    confirmed: list[tuple[int, int]] = []
    writer.on_confirmed = lambda first, last: confirmed.append((first, last))
    late, other = cluster.members(writer)
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


@pytest.mark.parametrize("cut_off", [False, True])
async def test_a_member_whose_last_acknowledgements_do_not_come_is_noted_before_the_close(
    cut_off: bool, cluster: FakeCluster, writer: LedgerWriter, late: FakeBookie
) -> None:
    """After the close only this process knows of the missing copies, and it may be killed."""
    late.hold = True
    await writer.write(b"0")
    if cut_off:
        late.lose_links()
    writes = Writes(cluster)
    await writer.close()
    expected = {writer.ledger_id: unacked.WHOLE}
    assert writes.notes == [(LedgerState.CLOSED, 1, expected)]
    await cluster.store.delete(unacked.path_of("/ledgers", writer.ledger_id))
    await trio.sleep(100)
    assert await notes(cluster) == {}, "one note is enough"


@pytest.mark.parametrize("noted_before", [False, True])
async def test_a_note_is_withdrawn_when_the_acknowledgements_come_after_the_close(noted_before, cluster, writer, late):
    late.hold = True
    await writer.write(b"0")
    if noted_before:
        await cluster.ledgers.note_unacked(writer.ledger_id, 0)
    await writer.close()
    noted = {writer.ledger_id: unacked.WHOLE}
    assert await notes(cluster) == noted
    late.release()
    await trio.sleep(1)
    assert await notes(cluster) == (noted if noted_before else {}), "an earlier note is about other copies"


@pytest.mark.bookies(add_timeout_s=10)
async def test_a_note_that_cannot_be_stored_before_the_close_is_stored_after_it(cluster, writer, late):
    note_unacked = cluster.ledgers.note_unacked

    async def refuse(ledger_id: int, before: int) -> None:
        raise MalformedMetadataError("not now")

    late.hold = True
    await writer.write(b"0")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cluster.ledgers, "note_unacked", refuse)
        await writer.close()
    assert cluster.ledgers.note_unacked == note_unacked
    assert (writer.metadata.state, await notes(cluster)) == (LedgerState.CLOSED, {})
    await trio.sleep(11)
    assert await notes(cluster) == {writer.ledger_id: unacked.WHOLE}


async def test_with_an_ack_quorum_of_all_copies_nothing_is_noted(cluster: FakeCluster, client: LedgerClient) -> None:
    writer = await client.create(ensemble_size=3, write_quorum=2, ack_quorum=2)
    await writer.write(b"0")
    reader = await client.open(writer.ledger_id, recover=True)
    reader.close()
    await trio.sleep(100)
    assert await notes(cluster) == {}


async def test_a_recovery_notes_what_it_does_not_write_again(cluster, client, writer):
    empty = await client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
    for each in payloads(0, 3):
        await writer.write(each)
    for ledger in (empty, writer):
        writes = Writes(cluster)
        reader = await client.open(ledger.ledger_id, recover=True)
        reader.close()
    expected = {writer.ledger_id: unacked.WHOLE}
    assert writes.notes == [(LedgerState.IN_RECOVERY, 1, {}), (LedgerState.CLOSED, 1, expected)]


@pytest.mark.bookies(4)
async def test_a_recovery_notes_that_a_member_of_an_earlier_fragment_may_lack_entries(cluster, client, writer):
    late, gone, _ = cluster.members(writer)
    await writer.write(b"0")
    late.hold = True
    await writer.write(b"1")
    await trio.sleep(1)
    gone.stop()
    await writer.write(b"2")
    assert await notes(cluster) == {}, "the one that is replaced has everything confirmed"
    assert len(writer.metadata.fragments) == 2
    reader = await client.open(writer.ledger_id, recover=True)
    reader.close()
    assert await notes(cluster) == {writer.ledger_id: unacked.WHOLE}


async def test_a_recovery_notes_a_member_that_did_not_acknowledge_what_was_written_again(cluster, client, writer, late):
    await writer.write(b"0")
    await trio.sleep(1)
    late.hold = True
    writes = Writes(cluster)
    reader = await client.open(writer.ledger_id, recover=True)
    reader.close()
    assert reader.metadata.last_entry_id == 0
    assert writes.notes[-1] == (LedgerState.CLOSED, 1, {writer.ledger_id: unacked.WHOLE})


@pytest.mark.bookies(4)
async def test_a_recovery_notes_that_another_bookie_has_taken_a_place(
    cluster: FakeCluster, client: LedgerClient
) -> None:
    writer = await client.create(ensemble_size=3, write_quorum=3, ack_quorum=3)
    for each in payloads(0, 3):
        await writer.write(each)
    cluster.members(writer)[0].stop()
    writes = Writes(cluster)
    reader = await client.open(writer.ledger_id, recover=True)
    reader.close()
    assert reader.metadata.fragments[-1].bookies != writer.metadata.fragments[-1].bookies
    state, _, noted = writes.notes[-1]
    assert (state, noted) == (LedgerState.CLOSED, {writer.ledger_id: unacked.WHOLE})
