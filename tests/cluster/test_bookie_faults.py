"""Faults of bookies and their disks under a ledger, with real processes on a real ZooKeeper. docs/faults.md has the
list.
"""

from __future__ import annotations

import resource
import shutil
import socket
import time
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import trio

from bookie.db_ledger_storage.entry_log_format import HEADER_LENGTH
from bookie.journal.format import HEADER_SIZE
from quire.ledger import LedgerClient, LedgerConfig, LedgerWriter, open_client
from quire.ledger.errors import LedgerError, LedgerFencedError, NotEnoughBookiesError
from quire.ledger.read_config import ReadConfig
from quire.metadata.ledger_metadata import LedgerState
from quire.wire.bookkeeper import v2
from quire.wire.bookkeeper.v2 import Rc
from quire.world.real import real_world
from tests.support.bookie_process import BookieProcess
from tests.support.bookies import BookieCluster, cluster, sees
from tests.support.recoverer import Recoverer
from tests.support.zookeeper import run, until

pytestmark = pytest.mark.cluster
BOOKIE_EXCEPTION = 5
"""Exit code of a bookie that refuses to start or to go on."""
TAIL = 1500
"""Entries of a ledger whose recovery takes long enough to be killed in its middle."""
KILLS = 6
SMALL = 32 << 10
"""Bytes: less than a journal has after 200 entries, more than a log file and an index have."""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BookieCluster]:
    with cluster(tmp_path_factory.mktemp("bookies"), 4) as made:
        yield made


@pytest.fixture
def bookies(shared: BookieCluster) -> Iterator[BookieCluster]:
    """Four of them, for tests that kill and pause but damage nothing: afterwards all are well again."""
    yield shared
    for bookie in shared.bookies:
        if bookie.process is not None:
            bookie.resume()
        else:
            bookie.start()


def with_client(
    bookies: BookieCluster, story: Callable[[LedgerClient], Awaitable[None]], config: LedgerConfig | None = None
) -> None:
    async def main() -> None:
        async with open_client(real_world(), bookies.uri, config) as client:
            await until(partial(sees, client, len([each for each in bookies.bookies if each.process])), "all are seen")
            await story(client)

    run(main)


async def new_ledger(client: LedgerClient) -> LedgerWriter:
    return await client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)


async def ensemble_of(bookies: BookieCluster, client: LedgerClient, ledger_id: int) -> list[BookieProcess]:
    """Return the bookies of the ledger's last fragment."""
    metadata = await client.read_metadata(ledger_id)
    return [bookies.by_id(name) for name in metadata.fragments[-1].bookies]


def payload(number: int) -> bytes:
    return b"%d " % number + bytes([number % 256]) * (number * 37 % 400)


async def write(writer: LedgerWriter, first: int, count: int) -> None:
    writer.append([payload(each) for each in range(first, first + count)])
    await writer.wait_confirmed(first + count - 1)


async def check(client: LedgerClient, ledger_id: int, count: int, *, recover: bool = True, more: int = 0) -> int:
    """The ledger has the first `count` entries, unharmed, and at most `more` behind them. Returns how many."""
    reader = await client.open(ledger_id, recover=recover)
    found = reader.last_entry_id + 1
    assert count <= found <= count + more
    entries = await reader.read(0, found - 1)
    assert [bytes(each) for each in entries] == [payload(each) for each in range(found)]
    reader.close()
    return found


async def kill(*bookies: BookieProcess) -> None:
    for bookie in bookies:
        await trio.to_thread.run_sync(bookie.kill)


async def start(bookies: BookieCluster, *doomed: BookieProcess) -> None:
    await trio.to_thread.run_sync(bookies.start, *doomed)


def rc_of_read(bookie: BookieProcess, ledger_id: int, entry_id: int) -> Rc:
    """Return the bookie's own answer, without a client that would ask the next bookie."""
    with socket.create_connection(("127.0.0.1", bookie.port), timeout=10) as peer:
        peer.sendall(v2.read_request(ledger_id, entry_id))
        frame = b""
        while len(frame) < 4 or len(frame) < 4 + int.from_bytes(frame[:4], "big"):
            frame += peer.recv(1 << 16)
    (answer,) = v2.decode_responses(frame)
    assert isinstance(answer, v2.ReadResponse)
    return Rc(answer.rc)


# --- K: the process


def test_k1_a_killed_bookie_is_replaced_within_seconds_and_hardly_felt(bookies: BookieCluster) -> None:
    async def story(client: LedgerClient) -> None:
        writer = await new_ledger(client)
        members = await ensemble_of(bookies, client, writer.ledger_id)
        latencies = []

        async def replaced() -> bool:
            return members[0] not in await ensemble_of(bookies, client, writer.ledger_id)

        async with trio.open_nursery() as nursery:
            for number in range(300):
                if number == 100:
                    await kill(members[0])
                    nursery.start_soon(until, replaced, "the ensemble is changed", 5.0, name="replaced")
                begun = time.monotonic()
                assert await writer.write(payload(number)) == number
                latencies.append(time.monotonic() - begun)
        assert sorted(latencies)[296] < 1
        await writer.close()
        await check(client, writer.ledger_id, 300)

    with_client(bookies, story)


def test_k2_without_an_ack_quorum_nothing_is_confirmed_until_a_bookie_returns(bookies: BookieCluster) -> None:
    async def story(client: LedgerClient) -> None:
        writer = await new_ledger(client)
        await write(writer, 0, 20)
        first, second, _ = await ensemble_of(bookies, client, writer.ledger_id)
        await kill(first, second)
        writer.append([payload(each) for each in range(20, 40)])
        with trio.move_on_after(1.0):
            await writer.wait_confirmed(20)
            raise AssertionError("confirmed by one bookie")
        assert writer.last_add_confirmed == 19
        await start(bookies, first)
        await writer.wait_confirmed(39)
        await writer.close()
        await check(client, writer.ledger_id, 40)

    with_client(bookies, story, LedgerConfig(disable_ensemble_change=True))


def test_k3_what_was_confirmed_survives_the_kill_of_all_bookies_in_the_middle_of_commits(
    bookies: BookieCluster,
) -> None:
    confirmed = -1
    ledger_id = -1

    async def writing(client: LedgerClient) -> None:
        nonlocal confirmed, ledger_id
        writer = await new_ledger(client)
        ledger_id = writer.ledger_id
        number = 0
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_kill_after, writer, 400, list(bookies.bookies))
            try:
                while True:
                    writer.append([payload(each) for each in range(number, number + 10)])
                    number += 10
                    await writer.wait_confirmed(number - 40)
            except LedgerError:
                confirmed = writer.last_add_confirmed

    with_client(bookies, writing, LedgerConfig(add_timeout_s=1))
    assert confirmed >= 400
    bookies.start(*bookies.bookies)
    with_client(bookies, lambda client: _check_quietly(client, ledger_id, confirmed + 1, more=60))


async def _check_quietly(client: LedgerClient, ledger_id: int, count: int, more: int) -> None:
    await check(client, ledger_id, count, more=more)


async def _kill_after(writer: LedgerWriter, entry_id: int, doomed: list[BookieProcess]) -> None:
    await writer.wait_confirmed(entry_id)
    for bookie in doomed:
        assert bookie.process is not None
        bookie.process.kill()
    await kill(*doomed)


def test_k4_a_paused_bookie_is_replaced_and_its_late_acks_count_for_nothing(bookies: BookieCluster) -> None:
    async def story(client: LedgerClient) -> None:
        writer = await new_ledger(client)
        await write(writer, 0, 20)
        members = await ensemble_of(bookies, client, writer.ledger_id)
        members[0].pause()
        await write(writer, 20, 20)

        async def replaced() -> bool:
            return members[0] not in await ensemble_of(bookies, client, writer.ledger_id)

        await until(replaced, "the ensemble is changed")
        second = next(each for each in await ensemble_of(bookies, client, writer.ledger_id) if each in members)
        members[0].resume()
        second.pause()
        # One of the three that count is paused: with the late one that would be three again.
        await write(writer, 40, 20)
        second.resume()
        await writer.close()
        await check(client, writer.ledger_id, 60)

    with_client(bookies, story, LedgerConfig(add_timeout_s=1, read_timeout_s=1))


def test_k5_a_bookie_that_does_not_answer_delays_neither_adds_nor_reads(bookies: BookieCluster) -> None:
    config = LedgerConfig(reads=ReadConfig(speculative_first_s=0.1))

    async def story(client: LedgerClient) -> None:
        writer = await new_ledger(client)
        await write(writer, 0, 20)
        members = await ensemble_of(bookies, client, writer.ledger_id)
        members[0].pause()
        begun = time.monotonic()
        for number in range(20, 120):
            assert await writer.write(payload(number)) == number
        reader = await client.open(writer.ledger_id, recover=False)
        for number in range(100):
            [entry] = await reader.read_unconfirmed(number, number)
            assert bytes(entry) == payload(number)
        assert time.monotonic() - begun < 25, "the timeout of a bookie is 30 s"
        members[0].resume()
        reader.close()
        await writer.close()
        await check(client, writer.ledger_id, 120)

    with_client(bookies, story, config)


@pytest.mark.parametrize("what", ["*.log", "locations"])
def test_k6_a_bookie_that_lost_entries_neither_hides_them_nor_cuts_a_recovered_ledger(
    what: str, tmp_path: Path
) -> None:
    with cluster(tmp_path, 3) as bookies:
        ids: list[int] = []

        async def writing(client: LedgerClient) -> None:
            for _ in range(2):
                writer = await new_ledger(client)
                await write(writer, 0, 50)
                ids.append(writer.ledger_id)
            await writer.close()

        with_client(bookies, writing)
        liar = bookies.bookies[0]
        liar.announced += ["read failed", "entry log", "ledger index"]
        liar.stop()
        for path in (liar.folder / "ledgers/current").glob(what):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        liar.launch()
        assert liar.process is not None
        deadline = time.monotonic() + 20
        while not liar.is_ready() and liar.process.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        if liar.process.poll() is not None:
            assert liar.wait_ended() == BOOKIE_EXCEPTION
            assert what == "locations"
            assert "is missing" in liar.log()
            bookies.add()  # (a recovery writes to as many as the ledger has)
        elif what == "*.log":
            assert rc_of_read(liar, ids[0], 7) is Rc.IO, "lost is not the same as never written"

        async def reading(client: LedgerClient) -> None:
            for ledger_id in ids:
                await check(client, ledger_id, 50)

        async def main() -> None:
            async with open_client(real_world(), bookies.uri) as client:
                await reading(client)

        run(main)


@pytest.mark.parametrize("what", ["folder", "files"])
def test_k8_a_bookie_whose_journal_was_wiped_refuses_to_start(what: str, tmp_path: Path) -> None:
    with cluster(tmp_path, 1) as bookies:
        (bookie,) = bookies.bookies
        _write_some(bookies)
        bookie.kill()
        journal = bookie.folder / "journal"
        if what == "folder":
            shutil.rmtree(journal)
        else:
            for path in journal.glob("current/*.txn"):
                path.unlink()
        assert refusal(bookie) == BOOKIE_EXCEPTION
        assert "journal" in bookie.log()


def test_k9_a_bookie_with_the_disk_of_another_or_an_empty_one_refuses_to_start(tmp_path: Path) -> None:
    with cluster(tmp_path, 2) as bookies:
        _write_some(bookies)
        one, other = bookies.bookies
        for bookie in bookies.bookies:
            bookie.kill()
        for name in ("journal", "ledgers"):
            (one.folder / name).rename(tmp_path / f"own-{name}")
        assert refusal(one) == BOOKIE_EXCEPTION
        for name in ("journal", "ledgers"):
            shutil.rmtree(one.folder / name, ignore_errors=True)
            shutil.copytree(other.folder / name, one.folder / name)
        assert refusal(one) == BOOKIE_EXCEPTION
        assert "cookie" in one.log().lower()
        for name in ("journal", "ledgers"):
            shutil.rmtree(one.folder / name)
            (tmp_path / f"own-{name}").rename(one.folder / name)
        bookies.start(one, other)


def _write_some(bookies: BookieCluster) -> None:
    async def story(client: LedgerClient) -> None:
        writer = await client.create(ensemble_size=len(bookies.bookies), write_quorum=len(bookies.bookies))
        await write(writer, 0, 50)
        await writer.close()

    with_client(bookies, story)


def refusal(bookie: BookieProcess) -> int:
    """Its exit code; it must end by itself and never be ready."""
    bookie.launch()
    code = bookie.wait_ended()
    assert not bookie.is_ready()
    return code


def test_k10_a_writer_whose_fence_reached_only_an_ack_quorum_confirms_nothing_more(bookies: BookieCluster) -> None:
    async def story(client: LedgerClient) -> None:
        writer = await new_ledger(client)
        await write(writer, 0, 20)
        members = await ensemble_of(bookies, client, writer.ledger_id)
        members[2].pause()  # the fence does not reach it in time
        async with open_client(real_world(), bookies.uri, LedgerConfig(read_timeout_s=1)) as other:
            await check(other, writer.ledger_id, 20)
        members[2].resume()
        with pytest.raises(LedgerFencedError):
            await writer.write(payload(20))
        assert writer.last_add_confirmed == 19
        await check(client, writer.ledger_id, 20)

    with_client(bookies, story)


def test_k11_recovery_changes_only_the_last_fragment(bookies: BookieCluster) -> None:
    async def story(client: LedgerClient) -> None:
        writer = await new_ledger(client)
        await write(writer, 0, 20)
        members = await ensemble_of(bookies, client, writer.ledger_id)
        await kill(members[0])
        await write(writer, 20, 20)

        async def changed() -> bool:
            return len((await client.read_metadata(writer.ledger_id)).fragments) == 2

        # Two of three copies confirm an entry: the change of ensemble may come behind it.
        await until(changed, "the ensemble is another")
        before = (await client.read_metadata(writer.ledger_id)).fragments
        await start(bookies, members[0])
        survivor = next(each for each in await ensemble_of(bookies, client, writer.ledger_id) if each in members)
        await kill(survivor)
        await until(partial(sees, client, 3), "the one that came back is seen")
        async with open_client(real_world(), bookies.uri) as other:
            await check(other, writer.ledger_id, 40)
        after = await client.read_metadata(writer.ledger_id)
        assert after.state is LedgerState.CLOSED
        assert after.fragments[0] == before[0]
        firsts = [fragment.first_entry_id for fragment in after.fragments]
        assert firsts == sorted(set(firsts))
        # Whichever it meets first: the fence, or that the dead one has no successor.
        with pytest.raises((LedgerFencedError, NotEnoughBookiesError)):
            await writer.write(payload(40))

    with_client(bookies, story)


def test_k12_recoveries_in_parallel_with_a_living_writer_agree(bookies: BookieCluster) -> None:
    async def story(client: LedgerClient) -> None:
        writer = await new_ledger(client)
        await write(writer, 0, 20)
        ends: list[int] = []

        async def recover() -> None:
            async with open_client(real_world(), bookies.uri) as other:
                ends.append(await check(other, writer.ledger_id, 20, more=1 << 20))

        async with trio.open_nursery() as nursery:
            for _ in range(4):
                nursery.start_soon(recover)
            number = 20
            while writer.error is None:
                writer.append([payload(number)])
                number += 1
                await trio.sleep(0.001)
            assert isinstance(writer.error, LedgerFencedError)
        assert len(set(ends)) == 1
        assert writer.last_add_confirmed < ends[0] <= number
        await check(client, writer.ledger_id, ends[0])

    with_client(bookies, story)


def test_k13_recovery_given_up_half_way_fifty_times_closes_with_the_same_entries(bookies: BookieCluster) -> None:
    async def story(client: LedgerClient) -> None:
        writer = await new_ledger(client)
        await write(writer, 0, 20)
        members = await ensemble_of(bookies, client, writer.ledger_id)
        # A tail that only one bookie may have, sent and not confirmed: recovery decides about it, once.
        for each in members[1:]:
            each.pause()
        writer.append([payload(each) for each in range(20, 60)])
        await until(partial(_has, members[0], writer.ledger_id, 59), "the tail is on one bookie")
        for each in members[1:]:
            each.resume()
        given_up = 0
        for attempt in range(50):
            async with open_client(real_world(), bookies.uri) as other:
                with trio.move_on_after(0.0015 * attempt) as scope:
                    await other.open(writer.ledger_id, recover=True)
                given_up += scope.cancelled_caught
        assert given_up > 5
        first = await check(client, writer.ledger_id, 20, more=40)
        assert await check(client, writer.ledger_id, first) == first

    with_client(bookies, story)


def test_k13_a_process_killed_in_the_middle_of_recovery_again_and_again_leaves_it_to_the_next(
    bookies: BookieCluster,
) -> None:
    async def story(client: LedgerClient) -> None:
        writer = await new_ledger(client)
        await write(writer, 0, 20)
        members = await ensemble_of(bookies, client, writer.ledger_id)
        for each in members[1:]:
            each.pause()
        writer.append([payload(each) for each in range(20, TAIL)])  # all of them carry the LAC 19
        await until(partial(_has, members[0], writer.ledger_id, TAIL - 1), "the tail is on one bookie")
        processes = [Recoverer(bookies.uri, writer.ledger_id) for _ in range(KILLS + 1)]
        # The first two find one bookie of three: they fence it, and can go no further.
        for process in processes[:2]:
            await trio.to_thread.run_sync(process.begin, abandon_on_cancel=True)
            await until(partial(_in_recovery, client, writer.ledger_id), "it has begun")
            await trio.to_thread.run_sync(process.kill)
        for each in members[1:]:
            each.resume()
        killed = 2
        for number, process in enumerate(processes[2:-1]):
            await trio.to_thread.run_sync(process.begin, abandon_on_cancel=True)
            await trio.sleep(0.01 * (number + 1))
            await trio.to_thread.run_sync(process.kill)
            killed += await _in_recovery(client, writer.ledger_id)
        assert killed >= 4
        await trio.to_thread.run_sync(processes[-1].begin, abandon_on_cancel=True)
        last = await trio.to_thread.run_sync(processes[-1].last_entry, abandon_on_cancel=True)
        assert last >= writer.last_add_confirmed
        assert await check(client, writer.ledger_id, 20, recover=False, more=TAIL - 20) == last + 1
        assert (await client.read_metadata(writer.ledger_id)).state is LedgerState.CLOSED

    with_client(bookies, story)


async def _in_recovery(client: LedgerClient, ledger_id: int) -> bool:
    return (await client.read_metadata(ledger_id)).state is LedgerState.IN_RECOVERY


async def _has(bookie: BookieProcess, ledger_id: int, entry_id: int) -> bool:
    return await trio.to_thread.run_sync(rc_of_read, bookie, ledger_id, entry_id) is Rc.OK


# --- D: the disk


def test_d4_d7_a_flipped_bit_in_a_journal_stops_that_bookie_and_the_others_serve(tmp_path: Path) -> None:
    with cluster(tmp_path, 3) as bookies:
        ledger_id = _write_and_leave(bookies)
        hurt = bookies.bookies[0]
        for bookie in bookies.bookies:
            bookie.kill()
        (journal,) = hurt.folder.glob("journal/current/*.txn")
        data = bytearray(journal.read_bytes())
        place = data.index(payload(7), HEADER_SIZE)
        data[place] ^= 0x04
        journal.write_bytes(data)
        assert refusal(hurt) == BOOKIE_EXCEPTION
        assert journal.name in hurt.log()
        bookies.start(*bookies.bookies[1:])
        bookies.add()  # to take the place of the one that is gone
        _read_back(bookies, ledger_id)


@pytest.mark.parametrize("damage", ["flipped bit", "zeroed block", "misdirected write"])
def test_d5_d6_what_changed_in_an_entry_log_is_an_error_of_that_bookie_and_read_from_another(
    damage: str, tmp_path: Path
) -> None:
    with cluster(tmp_path, 3) as bookies:
        ledger_id = _write_and_leave(bookies)
        hurt = bookies.bookies[0]
        hurt.announced += ["read failed", "damaged"]
        hurt.stop()
        (log,) = hurt.folder.glob("ledgers/current/*.log")
        data = bytearray(log.read_bytes())
        place = data.index(payload(30), HEADER_LENGTH)
        match damage:
            case "flipped bit":
                # Of the entry id, eight bytes of it after eight of the ledger's id.
                data[data.rindex((30).to_bytes(8, "big"), 0, place) + 7] ^= 0x10
            case "zeroed block":
                data[place - 512 : place + 512] = bytes(1024)
            case _:
                start = data.index(payload(10), HEADER_LENGTH)
                data[place - 36 : place + 100] = data[start - 36 : start + 100]
        log.write_bytes(data)
        hurt.start()
        assert rc_of_read(hurt, ledger_id, 30) is not Rc.OK
        assert rc_of_read(hurt, ledger_id, 30) is not Rc.NO_ENTRY
        _read_back(bookies, ledger_id)


def _write_and_leave(bookies: BookieCluster) -> int:
    """A ledger of 60 confirmed entries whose writer went without closing it."""
    ids: list[int] = []

    async def story(client: LedgerClient) -> None:
        writer = await new_ledger(client)
        for number in range(60):
            await writer.write(payload(number))
        ids.append(writer.ledger_id)

        async def everywhere() -> bool:
            return all([await _has(each, writer.ledger_id, 59) for each in bookies.bookies])

        await until(everywhere, "all have the last entry")

    with_client(bookies, story)
    return ids[0]


def _read_back(bookies: BookieCluster, ledger_id: int) -> None:
    async def main() -> None:
        async with open_client(real_world(), bookies.uri) as client:
            await check(client, ledger_id, 60)

    run(main)


def test_d8_a_full_disk_costs_the_bookie_its_place_and_no_entry(bookies: BookieCluster) -> None:
    async def story(client: LedgerClient) -> None:
        writer = await new_ledger(client)
        await write(writer, 0, 200)
        members = await ensemble_of(bookies, client, writer.ledger_id)
        full = members[0]
        full.announced += ["journal group not written, refusing its adds", "no room", "checkpoint failed"]
        assert full.process is not None
        # No file of it may grow beyond this: writes fail as on a full disk, without mounting one.
        _, hard = resource.prlimit(full.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(full.process.pid, resource.RLIMIT_FSIZE, (SMALL, hard))
        await write(writer, 200, 200)

        async def replaced() -> bool:
            return full not in await ensemble_of(bookies, client, writer.ledger_id)

        await until(replaced, "the ensemble is changed")
        assert rc_of_read(full, writer.ledger_id, 100) is Rc.OK, "what it has it serves"
        resource.prlimit(full.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, hard))
        await until(partial(_takes_adds, client, full), "it goes on when there is room")
        await writer.close()
        await check(client, writer.ledger_id, 400)

    with_client(bookies, story)


async def _takes_adds(client: LedgerClient, bookie: BookieProcess) -> bool:
    try:
        writer = await client.create(ensemble_size=4, write_quorum=4, ack_quorum=4)
        await writer.write(b"room")
    except LedgerError:  # (a bookie without room is read-only)
        return False
    metadata = await client.read_metadata(writer.ledger_id)
    return bookie.id in metadata.fragments[0].bookies
