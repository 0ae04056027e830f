"""Replay: synced records are read back, a torn tail is dropped, damage is reported."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from bookie.errors import BookieError, JournalDamagedError
from bookie.journal.config import JournalConfig
from bookie.journal.format import NO_MARK, ExplicitLac, Fence, Force, LedgerKey, LogMark, Record, record_bytes
from bookie.journal.group_writer import GroupWriter, Item
from bookie.journal.replay import Replay, replay
from quire.service.log import Event
from quire.wire.bookkeeper.run import Run
from simulation.machines.disk import SimFile
from simulation.machines.host import Host
from simulation.machines.world import Universe
from tests.unit.bookie.build import KEY, entry, run_of

FOLDER = "/journal"
CONFIG = JournalConfig(preallocate=4096, file_size_max=1 << 20)


def ignore(_: BookieError | None) -> None: ...


def machine() -> Host:
    host = Universe(1).host("bookie")
    host.world().disk.make_dirs(FOLDER)
    host.end()
    return host


def items(records: Sequence[Record], key: bytes | None = None) -> list[Item]:
    return [Item(record, record_bytes([record])[1], key, ignore) for record in records]


def write(
    host: Host,
    groups: Sequence[Sequence[Record]],
    *,
    file_id: int = 9,
    previous: LogMark | None = None,
    close: bool = False,
) -> list[int]:
    """Write each of `groups` as one group; return the end of each."""
    writer = GroupWriter(host.world().disk, FOLDER, CONFIG)
    writer.create(file_id, previous)
    ends = []
    for group in groups:
        (result,) = writer.write(items(group))
        assert result.error is None
        ends.append(writer.mark.offset)
    if close:
        writer.close()
    host.end()
    return ends


def read(
    host: Host, mark: LogMark = NO_MARK, *, skip_invalid: bool = False, promised: LogMark | None = None
) -> tuple[list[str], Replay]:
    """Return the result of replay, one text per entry or record."""
    reading = Replay(host.world().disk, FOLDER, mark, skip_invalid, promised)
    try:
        seen = [text for batch in reading.batches() for record in batch for text in texts(record)]
    finally:
        host.end()
    return seen, reading


def texts(record: Record) -> list[str]:
    match record:
        case Run():
            for entry_id in range(record.first, record.last + 1):
                assert bytes(record.entry(entry_id)) == entry(record.ledger_id, entry_id)
            return [f"{record.ledger_id}:{i}" for i in range(record.first, record.last + 1)]
        case LedgerKey(ledger_id, _):
            return [f"key {ledger_id}"]
        case Fence(ledger_id):
            return [f"fence {ledger_id}"]
        case ExplicitLac(ledger_id, _):
            return [f"lac {ledger_id}"]
        case Force():
            raise AssertionError("a force is in no file")


GROUPS: list[list[Record]] = [
    [LedgerKey(1, KEY), run_of(1, 0, 2)],
    [run_of(1, 2, 3), LedgerKey(2, KEY), run_of(2, 0, 1), Fence(2)],
    [ExplicitLac(1, b"package"), run_of(1, 5, 9)],
]
TEXTS = [[text for record in group for text in texts(record)] for group in GROUPS]
ALL = [text for group in TEXTS for text in group]


def test_everything_comes_back_in_order() -> None:
    host = machine()
    ends = write(host, GROUPS)
    seen, reading = read(host)
    assert seen == ALL
    assert reading.end == LogMark(9, ends[-1])
    assert reading.dropped == []


def test_a_journal_of_small_groups_is_read_about_once(monkeypatch: pytest.MonkeyPatch) -> None:
    host = machine()
    (*_, end) = write(host, [[run_of(1, number, 1)] for number in range(300)])
    sizes: list[int] = []
    pread = SimFile.pread

    def noted(self: SimFile, size: int, offset: int) -> bytes:
        data = pread(self, size, offset)
        sizes.append(len(data))
        return data

    monkeypatch.setattr(SimFile, "pread", noted)
    seen, _ = read(host)
    assert len(seen) == 300
    assert sum(sizes) < 3 * end + (4 << 20)


def test_from_a_mark_only_what_is_behind_it_comes() -> None:
    host = machine()
    ends = write(host, GROUPS)
    assert read(host, LogMark(9, ends[0]))[0] == TEXTS[1] + TEXTS[2]
    assert read(host, LogMark(9, ends[2]))[0] == []


def test_the_marks_the_original_leaves_4_bytes_behind_a_group_are_taken() -> None:
    host = machine()
    ends = write(host, GROUPS)
    assert read(host, LogMark(9, ends[0] + 4))[0] == TEXTS[1] + TEXTS[2]


def test_replay_visits_and_returns_the_end() -> None:
    host = machine()
    ends = write(host, GROUPS)
    seen: list[Record] = []
    assert replay(host.world().disk, FOLDER, NO_MARK, seen.append) == LogMark(9, ends[-1])
    assert [text for record in seen for text in texts(record)] == ALL


def test_cut_at_every_byte_every_whole_group_is_kept() -> None:
    host = machine()
    ends = write(host, GROUPS, close=True)
    whole = host.disk.read(f"{FOLDER}/9.txn")
    assert len(whole) == ends[-1]
    for size in range(len(whole), -1, -1):
        host.disk.cut(f"{FOLDER}/9.txn", size)
        expected = [text for end, group in zip(ends, TEXTS, strict=True) if end <= size for text in group]
        seen, reading = read(host)
        assert seen == expected
        assert reading.given_up == []


def test_a_dropped_tail_is_logged_with_its_place(log_events: list[Event]) -> None:
    host = machine()
    ends = write(host, GROUPS, close=True)
    host.disk.cut(f"{FOLDER}/9.txn", ends[2] - 512)
    _, reading = read(host)
    assert reading.dropped == [(f"{FOLDER}/9.txn", ends[1], ends[2] - 512 - ends[1])]
    (event,) = log_events
    assert event["event"] == "unsynced tail of the journal dropped"
    assert (event["file"], event["offset"], event["level"]) == (f"{FOLDER}/9.txn", ends[1], "warning")


def test_zeros_behind_the_last_group_are_no_tail(log_events: list[Event]) -> None:
    host = machine()
    ends = write(host, GROUPS)
    assert len(host.disk.read(f"{FOLDER}/9.txn")) > ends[-1]
    assert read(host)[1].dropped == []
    assert log_events == []


def test_a_last_group_whose_trailer_stands_but_whose_middle_is_gone_is_dropped() -> None:
    host = machine()
    ends = write(host, [*GROUPS, [run_of(3, 0, 30)]])
    for offset in range(ends[2] + 512, ends[2] + 1024):
        if host.disk.read(f"{FOLDER}/9.txn")[offset]:
            for bit in range(8):
                host.disk.flip(f"{FOLDER}/9.txn", offset, bit)
    seen, reading = read(host)
    assert seen == ALL
    assert reading.dropped[0][1] == ends[2]


@pytest.mark.parametrize("group", [0, 1])
def test_every_flipped_bit_before_the_last_group_refuses_the_start(group: int) -> None:
    host = machine()
    ends = write(host, GROUPS)
    path = f"{FOLDER}/9.txn"
    start = 512 if group == 0 else ends[group - 1]
    for offset in range(start, ends[group]):
        bit = offset % 8
        host.disk.flip(path, offset, bit)
        with pytest.raises(JournalDamagedError, match=f"9.txn is damaged at offset {start}"):
            read(host)
        host.disk.flip(path, offset, bit)
    assert read(host)[0] == ALL


def test_every_flipped_bit_of_the_last_group_loses_it_and_says_so() -> None:
    host = machine()
    ends = write(host, GROUPS)
    for offset in range(ends[1], ends[2], 7):
        host.disk.flip(f"{FOLDER}/9.txn", offset, offset % 8)
        seen, reading = read(host)
        assert seen == TEXTS[0] + TEXTS[1]
        assert reading.dropped[0][:2] == (f"{FOLDER}/9.txn", ends[1])
        host.disk.flip(f"{FOLDER}/9.txn", offset, offset % 8)


def test_a_zeroed_group_with_a_good_one_behind_it_is_damage() -> None:
    host = machine()
    ends = write(host, GROUPS)
    zero(host, ends[0], ends[1])
    with pytest.raises(JournalDamagedError, match=f"offset {ends[0]}: a good group stands behind it at {ends[1]}"):
        read(host)


def zero(host: Host, start: int, stop: int) -> None:
    data = host.disk.read(f"{FOLDER}/9.txn")
    for offset in range(start, stop):
        for bit in range(8):
            if data[offset] >> bit & 1:
                host.disk.flip(f"{FOLDER}/9.txn", offset, bit)


@pytest.mark.expect_error("damaged part of the journal skipped")
def test_with_skip_a_damaged_group_is_given_up_and_the_rest_is_read() -> None:
    host = machine()
    ends = write(host, GROUPS)
    host.disk.flip(f"{FOLDER}/9.txn", ends[0] + 40, 0)
    seen, reading = read(host, skip_invalid=True)
    assert seen == TEXTS[0] + TEXTS[2]
    assert reading.given_up == [(f"{FOLDER}/9.txn", ends[0], ends[1] - ends[0])]


def test_a_last_group_that_the_next_file_knows_of_is_damage_if_it_is_gone() -> None:
    host = machine()
    ends = write(host, GROUPS)
    write(host, [[Fence(5)]], file_id=10, previous=LogMark(9, ends[2]))
    assert read(host)[0] == [*ALL, "fence 5"]
    host.disk.flip(f"{FOLDER}/9.txn", ends[1] + 40, 0)
    with pytest.raises(JournalDamagedError, match=f"offset {ends[1]}: it was synced up to {ends[2]}"):
        read(host)


def test_a_tail_that_was_dropped_before_the_next_file_was_begun_is_no_damage() -> None:
    host = machine()
    ends = write(host, GROUPS)
    host.disk.flip(f"{FOLDER}/9.txn", ends[1] + 40, 0)
    _, reading = read(host)
    write(host, [[Fence(5)]], file_id=10, previous=reading.end)
    assert read(host)[0] == [*TEXTS[0], *TEXTS[1], "fence 5"]


def test_files_come_in_the_order_of_their_ids() -> None:
    host = machine()
    for file_id in (9, 10, 0xFF, 0x100):
        write(host, [[Fence(file_id)]], file_id=file_id)
    assert read(host)[0] == ["fence 9", "fence 10", "fence 255", "fence 256"]
    assert read(host, LogMark(10, 512))[0] == ["fence 10", "fence 255", "fence 256"]


def test_the_file_that_the_mark_names_must_be_there() -> None:
    host = machine()
    write(host, GROUPS, file_id=9)
    with pytest.raises(JournalDamagedError, match=r"/journal/8\.txn .* missing"):
        read(host, LogMark(8, 512))


def test_a_file_that_was_only_begun_is_passed_over() -> None:
    host = machine()
    write(host, GROUPS)
    host.world().disk.open(f"{FOLDER}/a.txn", create=True)
    host.end()
    write(host, [[Fence(5)]], file_id=11)
    assert read(host)[0] == [*ALL, "fence 5"]


def test_a_flipped_bit_in_a_header_refuses_the_start() -> None:
    host = machine()
    write(host, GROUPS)
    for offset in (0, 3, 4, 7, 8, 20, 43, 100, 511):
        host.disk.flip(f"{FOLDER}/9.txn", offset, 1)
        with pytest.raises(JournalDamagedError, match=r"9\.txn is damaged at offset 0"):
            read(host)
        host.disk.flip(f"{FOLDER}/9.txn", offset, 1)


def test_a_header_of_zeros_with_groups_behind_it_refuses_the_start() -> None:
    host = machine()
    write(host, GROUPS)
    zero(host, 0, 512)
    with pytest.raises(JournalDamagedError, match="the header is missing, but data follows it"):
        read(host)


@pytest.mark.parametrize("header", [b"", b"BKLG", bytes(512), bytes(range(1, 256)) * 2 + b"zz"])
@pytest.mark.parametrize("groups", [0, 3])
def test_a_file_that_the_seal_names_must_have_its_header(header: bytes, groups: int) -> None:
    """The seal was set back to the beginning of the file by a power cut, so it promises no group."""
    host = machine()
    write(host, GROUPS[:groups])
    sealed = LogMark(9, 512)
    assert read(host, promised=sealed)[0] == (ALL if groups else [])
    path = f"{FOLDER}/9.txn"
    if len(header) < 512:
        host.disk.cut(path, len(header))
    else:
        host.disk.overwrite(path, 0, header)
    with pytest.raises(JournalDamagedError, match=r"9\.txn is damaged at offset 0"):
        read(host, promised=sealed)


def test_an_overwritten_header_of_an_older_file_is_damage_if_the_next_file_knows_of_its_groups() -> None:
    host = machine()
    ends = write(host, GROUPS)
    write(host, [[Fence(5)]], file_id=10, previous=LogMark(9, ends[2]))
    host.disk.overwrite(f"{FOLDER}/9.txn", 0, bytes(range(1, 256)) * 2 + b"zz")
    with pytest.raises(JournalDamagedError, match=rf"9\.txn is damaged at offset 0: it was synced up to {ends[2]}"):
        read(host)


# --- files of the original, which have no trailers


def original(host: Host, data: bytes, version: int = 6) -> None:
    disk = host.world().disk
    file = disk.open(f"{FOLDER}/9.txn", create=True)
    header = b"BKLG" + version.to_bytes(4, "big")
    file.pwrite((header.ljust(512, b"\0") if version >= 5 else header if version > 1 else b"") + data, 0)
    host.end()


def padded(records: Sequence[Record], alignment: int = 512) -> bytes:
    parts, size = record_bytes(records)
    rest = -(size + 8) % alignment
    return b"".join(parts) + bytes.fromhex("ffffff00") + rest.to_bytes(4, "big") + bytes(rest)


def test_the_original_ends_at_a_length_of_zero() -> None:
    host = machine()
    original(host, b"".join(padded(group) for group in GROUPS) + bytes(1024) + b"\1\2\3")
    seen, reading = read(host)
    assert seen == ALL
    assert reading.end.offset == 512 + len(b"".join(padded(group) for group in GROUPS))


@pytest.mark.parametrize("version", [1, 2, 4])
def test_the_originals_old_versions_are_read(version: int) -> None:
    host = machine()
    records: list[Record] = [run_of(1, 0, 3), run_of(2, 0, 1)]
    if version == 4:
        records += [LedgerKey(1, KEY), Fence(1)]
    original(host, b"".join(bytes(part) for part in record_bytes(records)[0]), version)
    assert read(host)[0] == [text for record in records for text in texts(record)]


def test_cut_at_every_byte_the_originals_whole_records_are_kept() -> None:
    host = machine()
    data = padded(GROUPS[0]) + padded(GROUPS[1])
    original(host, data)
    size_of_group = 512 + len(padded(GROUPS[0]))
    for size in range(512 + len(data), 512, -1):
        host.disk.cut(f"{FOLDER}/9.txn", size)
        seen, _ = read(host)
        assert seen == ALL[: len(seen)]
        assert len(seen) >= len(TEXTS[0]) or size < size_of_group


def test_a_negative_length_in_a_file_of_the_original_is_damage() -> None:
    host = machine()
    original(host, padded(GROUPS[0]) + b"\xff" * 16 + padded(GROUPS[1]))
    with pytest.raises(JournalDamagedError, match="a record of -1 bytes"):
        read(host)


@pytest.mark.expect_error("damaged part of the journal skipped")
@pytest.mark.parametrize("previous", [None, LogMark(9, 512 + len(padded(GROUPS[0])) + 16 + len(padded(GROUPS[1])))])
def test_with_skip_the_rest_of_a_damaged_file_of_the_original_is_given_up(previous: LogMark | None) -> None:
    host = machine()
    original(host, padded(GROUPS[0]) + b"\xff" * 16 + padded(GROUPS[1]))
    write(host, [[Fence(5)]], file_id=10, previous=previous)
    seen, reading = read(host, skip_invalid=True)
    assert seen == [*TEXTS[0], "fence 5"]
    assert [offset for _, offset, _ in reading.given_up] == [512 + len(padded(GROUPS[0]))]


@pytest.mark.parametrize("size", [0, 20])
def test_a_file_of_the_original_that_the_next_file_knows_of_must_reach_the_end_it_had(size: int) -> None:
    host = machine()
    original(host, padded(GROUPS[0]) + padded(GROUPS[1]))
    ends = [512 + len(padded(GROUPS[0])), 512 + len(padded(GROUPS[0]) + padded(GROUPS[1]))]
    write(host, [[Fence(5)]], file_id=10, previous=LogMark(9, ends[1]))
    assert read(host)[0] == [*TEXTS[0], *TEXTS[1], "fence 5"]
    host.disk.cut(f"{FOLDER}/9.txn", ends[0] + size)
    with pytest.raises(JournalDamagedError, match=f"offset {ends[0]}: it was synced up to {ends[1]}"):
        read(host)


def test_records_longer_than_a_block_are_read() -> None:
    host = machine()
    payload = bytes(range(256)) * 8192
    run = Run.of(1, [(0, entry(1, 0, payload))])
    original(host, padded([Fence(4)]) + padded([run]) + padded([Fence(5)]))
    records: list[Record] = []
    replay(host.world().disk, FOLDER, NO_MARK, records.append)
    big = records[1]
    assert isinstance(big, Run)
    assert bytes(big.entry(0)) == entry(1, 0, payload)
    assert [records[0], records[2]] == [Fence(4), Fence(5)]


def test_an_empty_folder_has_nothing() -> None:
    seen, reading = read(machine())
    assert (seen, reading.end) == ([], NO_MARK)
