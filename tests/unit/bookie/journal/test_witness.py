"""The witness of the journal (witness.py), what replay makes of it (replay.py), and that a bookie keeps it (writer.py)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import trio

from bookie.errors import JournalDamagedError
from bookie.journal.format import LogMark
from bookie.journal.witness import NAMES, WitnessWriter, decode_witness, encode_witness, read_witness
from quire.metadata.memory import MemoryTree
from quire.world.doors import World
from simulation.disk import DiskImage
from simulation.host import Host
from simulation.world import Universe, run
from tests.unit.bookie.build import JOURNAL, Client, opened
from tests.unit.bookie.journal.test_replay import ALL, FOLDER, GROUPS, TEXTS, machine, read, write

MARK = LogMark(9, 4096)


def witnessed(host: Host, mark: LogMark) -> None:
    writer = WitnessWriter(host.world().disk, FOLDER)
    writer.begin(mark)
    writer.close()
    host.end()


def test_every_flipped_bit_and_every_cut_of_a_witness_is_noticed() -> None:
    data = encode_witness(5, MARK)
    assert len(data) == 512
    assert decode_witness(data) == (5, MARK)
    for bit in range(36 * 8):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        assert decode_witness(bytes(damaged)) is None
    assert all(decode_witness(data[:size]) is None for size in range(36))


def test_the_newer_one_counts_and_its_twin_when_it_is_damaged_or_missing() -> None:
    host = machine()
    disk = host.world().disk
    writer = WitnessWriter(disk, FOLDER)
    writer.begin(LogMark(9, 512))
    writer.record(LogMark(9, 1024))
    writer.record(LogMark(9, 2048))
    writer.close()
    assert read_witness(disk, FOLDER) == (LogMark(9, 2048), [])
    newest = max(NAMES, key=lambda name: decode_witness(disk.read(f"{FOLDER}/{name}")) or (0, MARK))
    host.disk.flip(f"{FOLDER}/{newest}", 20, 3)
    assert read_witness(disk, FOLDER) == (LogMark(9, 1024), [newest])
    disk.unlink(f"{FOLDER}/{newest}")
    assert read_witness(disk, FOLDER) == (LogMark(9, 1024), [newest])


def flipped(disk: DiskImage, ends: list[int]) -> None:
    disk.flip(f"{FOLDER}/9.txn", ends[1] + 40, 0)


def cut_between(disk: DiskImage, ends: list[int]) -> None:
    disk.cut(f"{FOLDER}/9.txn", ends[1])


def cut_to_nothing(disk: DiskImage, ends: list[int]) -> None:
    disk.cut(f"{FOLDER}/9.txn", 0)


@pytest.mark.parametrize("damage", [flipped, cut_between, cut_to_nothing])
def test_a_last_group_that_was_synced_is_not_taken_for_an_unsynced_tail(
    damage: Callable[[DiskImage, list[int]], None], expect_error: Callable[[str], None]
) -> None:
    host = machine()
    ends = write(host, GROUPS)
    witnessed(host, LogMark(9, ends[2]))
    damage(host.disk, ends)
    with pytest.raises(JournalDamagedError, match=f"9.txn is damaged at offset .* up to {ends[2]}"):
        read(host)
    seen, reading = read(host, skip_invalid=True)
    assert reading.given_up
    assert seen == ([] if damage is cut_to_nothing else TEXTS[0] + TEXTS[1])
    expect_error("given up")


def test_the_newest_journal_that_was_synced_and_is_missing_is_damage() -> None:
    host = machine()
    ends = write(host, GROUPS)
    write(host, GROUPS[:1], file_id=10, previous=LogMark(9, ends[2]))
    witnessed(host, LogMark(10, 1024))
    host.world().disk.unlink(f"{FOLDER}/a.txn")
    host.end()
    with pytest.raises(JournalDamagedError, match=r"a\.txn .*it is missing, and it was synced up to 1024"):
        read(host)


def test_what_is_behind_the_witness_may_be_torn_and_a_mark_ahead_of_it_counts_more() -> None:
    host = machine()
    ends = write(host, GROUPS)
    witnessed(host, LogMark(9, ends[1]))
    flipped(host.disk, ends)
    seen, reading = read(host)
    assert seen == TEXTS[0] + TEXTS[1]
    assert [offset for _, offset, _ in reading.dropped] == [ends[1]]
    # Another program has gone on in the folder, and taken away what the witness names.
    witnessed(host, LogMark(3, 7 * 512))
    assert read(host, LogMark(9, ends[0]))[0] == TEXTS[1]
    assert TEXTS[0] + TEXTS[1] + TEXTS[2] == ALL


def test_a_bookie_whose_last_acknowledged_group_is_damaged_does_not_start() -> None:
    async def main(universe: Universe) -> None:
        host = universe.host("bookie")
        tree = MemoryTree()
        refusals: list[str] = []

        async def first(world: World, stop: trio.Event) -> None:
            async with opened(world, tree) as bookie:
                await Client(bookie).add(7, 0, 5)
                await trio.sleep(0.3)
                host.cut_power()
                await trio.lowlevel.checkpoint()

        async def second(world: World, stop: trio.Event) -> None:
            try:
                async with opened(world, tree):
                    pass
            except JournalDamagedError as error:
                refusals.append(str(error))

        host.start(first)
        await host.wait_down()
        (journal,) = [path for path in host.disk.paths() if path.startswith(JOURNAL) and path.endswith(".txn")]
        host.disk.flip(journal, 512 + 100, 4)
        host.start(second)
        await host.wait_down()
        assert len(refusals) == 1
        assert journal in refusals[0]

    run(1, main)
