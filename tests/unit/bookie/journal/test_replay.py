"""Replay: synced records are read back, a torn tail is dropped, damage is reported."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from bookie.errors import JournalDamagedError
from bookie.journal.config import JournalConfig
from bookie.journal.format import NO_MARK, ExplicitLac, Fence, Force, LedgerKey, LogMark, Record, record_bytes
from bookie.journal.group_writer import GroupWriter
from bookie.journal.replay import Replay, replay
from quire.service.log import Event
from quire.wire.bookkeeper.run import Run
from simulation.machines.disk import SimFile
from simulation.machines.host import Host
from simulation.machines.world import Universe
from tests.support.refusals import refuses
from tests.unit.bookie.build import KEY, entry, run_of
from tests.unit.bookie.journal.bench import FOLDER, items

CONFIG = JournalConfig(preallocate=4096, file_size_max=1 << 20)
FILE = f"{FOLDER}/9.txn"


@pytest.fixture
def host() -> Host:
    host = Universe(1).host("bookie")
    host.world().disk.make_dirs(FOLDER)
    host.end()
    return host


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


def test_everything_comes_back_in_order(host: Host) -> None:
    ends = write(host, GROUPS)
    seen, reading = read(host)
    assert seen == ALL
    assert (reading.end, reading.dropped) == (LogMark(9, ends[-1]), [])


def test_a_journal_of_small_groups_is_read_about_once(monkeypatch: pytest.MonkeyPatch, host: Host) -> None:
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


def test_from_a_mark_only_what_is_behind_it_comes(host: Host) -> None:
    ends = write(host, GROUPS)
    assert read(host, LogMark(9, ends[0]))[0] == TEXTS[1] + TEXTS[2]
    assert read(host, LogMark(9, ends[2]))[0] == []


def test_the_marks_the_original_leaves_4_bytes_behind_a_group_are_taken(host: Host) -> None:
    ends = write(host, GROUPS)
    assert read(host, LogMark(9, ends[0] + 4))[0] == TEXTS[1] + TEXTS[2]


def test_replay_visits_and_returns_the_end(host: Host) -> None:
    ends = write(host, GROUPS)
    seen: list[Record] = []
    assert replay(host.world().disk, FOLDER, NO_MARK, seen.append) == LogMark(9, ends[-1])
    assert [text for record in seen for text in texts(record)] == ALL


def test_bookkeeper_3956_2220_cut_at_every_byte_every_whole_group_is_kept(host: Host) -> None:
    ends = write(host, GROUPS, close=True)
    whole = host.disk.read(FILE)
    assert len(whole) == ends[-1]
    for size in range(len(whole), -1, -1):
        host.disk.cut(FILE, size)
        expected = [text for end, group in zip(ends, TEXTS, strict=True) if end <= size for text in group]
        seen, reading = read(host)
        assert seen == expected
        assert reading.given_up == []


def test_a_dropped_tail_is_logged_with_its_place(log_events: list[Event], host: Host) -> None:
    ends = write(host, GROUPS, close=True)
    host.disk.cut(FILE, ends[2] - 512)
    _, reading = read(host)
    assert reading.dropped == [(FILE, ends[1], ends[2] - 512 - ends[1])]
    (event,) = log_events
    assert event["event"] == "unsynced tail of the journal dropped"
    assert (event["file"], event["offset"], event["level"]) == (FILE, ends[1], "warning")


def test_zeros_behind_the_last_group_are_no_tail(log_events: list[Event], host: Host) -> None:
    ends = write(host, GROUPS)
    assert len(host.disk.read(FILE)) > ends[-1]
    assert read(host)[1].dropped == []
    assert log_events == []


def test_a_last_group_whose_trailer_stands_but_whose_middle_is_gone_is_dropped(host: Host) -> None:
    ends = write(host, [*GROUPS, [run_of(3, 0, 30)]])
    for offset in range(ends[2] + 512, ends[2] + 1024):
        if host.disk.read(FILE)[offset]:
            for bit in range(8):
                host.disk.flip(FILE, offset, bit)
    seen, reading = read(host)
    assert seen == ALL
    assert reading.dropped[0][1] == ends[2]


@pytest.mark.parametrize("group", [0, 1])
def test_bookkeeper_4659_every_flipped_bit_before_the_last_group_refuses_the_start(group: int, host: Host) -> None:
    ends = write(host, GROUPS)
    start = 512 if group == 0 else ends[group - 1]
    for offset in range(start, ends[group]):
        with flipped(host, offset, offset % 8):
            refused(host, f"9.txn is damaged at offset {start}")
    assert read(host)[0] == ALL


def test_every_flipped_bit_of_the_last_group_loses_it_and_says_so(host: Host) -> None:
    ends = write(host, GROUPS)
    for offset in range(ends[1], ends[2], 7):
        with flipped(host, offset, offset % 8):
            seen, reading = read(host)
        assert seen == TEXTS[0] + TEXTS[1]
        assert reading.dropped[0][:2] == (FILE, ends[1])


def test_a_zeroed_group_with_a_good_one_behind_it_is_damage(host: Host) -> None:
    ends = write(host, GROUPS)
    zero(host, ends[0], ends[1])
    refused(host, f"offset {ends[0]}: a good group stands behind it at {ends[1]}")


@contextmanager
def flipped(host: Host, offset: int, bit: int) -> Iterator[None]:
    """Flip a bit of the file, and flip it back."""
    host.disk.flip(FILE, offset, bit)
    yield
    host.disk.flip(FILE, offset, bit)


def refused(host: Host, match: str, **how: Any) -> None:
    """Check that the start is refused with this reason."""
    refuses(JournalDamagedError, lambda: read(host, **how), match)


def zero(host: Host, start: int, stop: int) -> None:
    data = host.disk.read(FILE)
    for offset in range(start, stop):
        for bit in range(8):
            if data[offset] >> bit & 1:
                host.disk.flip(FILE, offset, bit)


@pytest.mark.expect_error("damaged part of the journal skipped")
def test_with_skip_a_damaged_group_is_given_up_and_the_rest_is_read(host: Host) -> None:
    ends = write(host, GROUPS)
    host.disk.flip(FILE, ends[0] + 40, 0)
    seen, reading = read(host, skip_invalid=True)
    assert seen == TEXTS[0] + TEXTS[2]
    assert reading.given_up == [(FILE, ends[0], ends[1] - ends[0])]


def test_a_last_group_that_the_next_file_knows_of_is_damage_if_it_is_gone(host: Host) -> None:
    ends = write(host, GROUPS)
    write(host, [[Fence(5)]], file_id=10, previous=LogMark(9, ends[2]))
    assert read(host)[0] == [*ALL, "fence 5"]
    host.disk.flip(FILE, ends[1] + 40, 0)
    refused(host, f"offset {ends[1]}: it was synced up to {ends[2]}")


def test_a_tail_that_was_dropped_before_the_next_file_was_begun_is_no_damage(host: Host) -> None:
    ends = write(host, GROUPS)
    host.disk.flip(FILE, ends[1] + 40, 0)
    _, reading = read(host)
    write(host, [[Fence(5)]], file_id=10, previous=reading.end)
    assert read(host)[0] == [*TEXTS[0], *TEXTS[1], "fence 5"]


def test_files_come_in_the_order_of_their_ids(host: Host) -> None:
    for file_id in (9, 10, 0xFF, 0x100):
        write(host, [[Fence(file_id)]], file_id=file_id)
    assert read(host)[0] == ["fence 9", "fence 10", "fence 255", "fence 256"]
    assert read(host, LogMark(10, 512))[0] == ["fence 10", "fence 255", "fence 256"]


def test_the_file_that_the_mark_names_must_be_there(host: Host) -> None:
    write(host, GROUPS, file_id=9)
    refuses(JournalDamagedError, lambda: read(host, LogMark(8, 512)), r"/journal/8\.txn .* missing")


def test_a_file_that_was_only_begun_is_passed_over(host: Host) -> None:
    write(host, GROUPS)
    host.world().disk.open(f"{FOLDER}/a.txn", create=True)
    host.end()
    write(host, [[Fence(5)]], file_id=11)
    assert read(host)[0] == [*ALL, "fence 5"]


def test_a_flipped_bit_in_a_header_refuses_the_start(host: Host) -> None:
    write(host, GROUPS)
    for offset in (0, 3, 4, 7, 8, 20, 43, 100, 511):
        with flipped(host, offset, 1):
            refused(host, r"9\.txn is damaged at offset 0")


def test_a_header_of_zeros_with_groups_behind_it_refuses_the_start(host: Host) -> None:
    write(host, GROUPS)
    zero(host, 0, 512)
    refused(host, "the header is missing, but data follows it")


@pytest.mark.parametrize("header", [b"", b"BKLG", bytes(512), bytes(range(1, 256)) * 2 + b"zz"])
@pytest.mark.parametrize("groups", [0, 3])
def test_a_file_that_the_seal_names_must_have_its_header(header: bytes, groups: int, host: Host) -> None:
    """The seal was set back to the beginning of the file by a power cut, so it promises no group."""
    write(host, GROUPS[:groups])
    sealed = LogMark(9, 512)
    assert read(host, promised=sealed)[0] == (ALL if groups else [])
    if len(header) < 512:
        host.disk.cut(FILE, len(header))
    else:
        host.disk.overwrite(FILE, 0, header)
    refused(host, r"9\.txn is damaged at offset 0", promised=sealed)


def test_an_overwritten_header_of_an_older_file_is_damage_if_the_next_file_knows_of_its_groups(host: Host) -> None:
    ends = write(host, GROUPS)
    write(host, [[Fence(5)]], file_id=10, previous=LogMark(9, ends[2]))
    host.disk.overwrite(FILE, 0, bytes(range(1, 256)) * 2 + b"zz")
    refused(host, rf"9\.txn is damaged at offset 0: it was synced up to {ends[2]}")


# --- files of the original, which have no trailers


def original(host: Host, data: bytes, version: int = 6) -> None:
    disk = host.world().disk
    file = disk.open(FILE, create=True)
    header = b"BKLG" + version.to_bytes(4, "big")
    file.pwrite((header.ljust(512, b"\0") if version >= 5 else header if version > 1 else b"") + data, 0)
    host.end()


def padded(records: Sequence[Record], alignment: int = 512) -> bytes:
    parts, size = record_bytes(records)
    rest = -(size + 8) % alignment
    return b"".join(parts) + bytes.fromhex("ffffff00") + rest.to_bytes(4, "big") + bytes(rest)


def test_the_original_ends_at_a_length_of_zero(host: Host) -> None:
    original(host, b"".join(padded(group) for group in GROUPS) + bytes(1024) + b"\1\2\3")
    seen, reading = read(host)
    assert seen == ALL
    assert reading.end.offset == 512 + len(b"".join(padded(group) for group in GROUPS))


@pytest.mark.parametrize("version", [1, 2, 4])
def test_the_originals_old_versions_are_read(version: int, host: Host) -> None:
    records: list[Record] = [run_of(1, 0, 3), run_of(2, 0, 1)]
    if version == 4:
        records += [LedgerKey(1, KEY), Fence(1)]
    original(host, b"".join(bytes(part) for part in record_bytes(records)[0]), version)
    assert read(host)[0] == [text for record in records for text in texts(record)]


def test_cut_at_every_byte_the_originals_whole_records_are_kept(host: Host) -> None:
    data = padded(GROUPS[0]) + padded(GROUPS[1])
    original(host, data)
    size_of_group = 512 + len(padded(GROUPS[0]))
    for size in range(512 + len(data), 512, -1):
        host.disk.cut(FILE, size)
        seen, _ = read(host)
        assert seen == ALL[: len(seen)]
        assert len(seen) >= len(TEXTS[0]) or size < size_of_group


def test_a_negative_length_in_a_file_of_the_original_is_damage(host: Host) -> None:
    original(host, padded(GROUPS[0]) + b"\xff" * 16 + padded(GROUPS[1]))
    refused(host, "a record of -1 bytes")


@pytest.mark.expect_error("damaged part of the journal skipped")
@pytest.mark.parametrize("previous", [None, LogMark(9, 512 + len(padded(GROUPS[0])) + 16 + len(padded(GROUPS[1])))])
def test_with_skip_the_rest_of_a_damaged_file_of_the_original_is_given_up(previous: LogMark | None, host: Host) -> None:
    original(host, padded(GROUPS[0]) + b"\xff" * 16 + padded(GROUPS[1]))
    write(host, [[Fence(5)]], file_id=10, previous=previous)
    seen, reading = read(host, skip_invalid=True)
    assert seen == [*TEXTS[0], "fence 5"]
    assert [offset for _, offset, _ in reading.given_up] == [512 + len(padded(GROUPS[0]))]


@pytest.mark.parametrize("size", [0, 20])
def test_a_file_of_the_original_that_the_next_file_knows_of_must_reach_the_end_it_had(size: int, host: Host) -> None:
    original(host, padded(GROUPS[0]) + padded(GROUPS[1]))
    ends = [512 + len(padded(GROUPS[0])), 512 + len(padded(GROUPS[0]) + padded(GROUPS[1]))]
    write(host, [[Fence(5)]], file_id=10, previous=LogMark(9, ends[1]))
    assert read(host)[0] == [*TEXTS[0], *TEXTS[1], "fence 5"]
    host.disk.cut(FILE, ends[0] + size)
    refused(host, f"offset {ends[0]}: it was synced up to {ends[1]}")


def test_records_longer_than_a_block_are_read(host: Host) -> None:
    payload = bytes(range(256)) * 20_000
    run = Run.of(1, [(0, entry(1, 0, payload))])
    original(host, padded([Fence(4)]) + padded([run]) + padded([Fence(5)]))
    records: list[Record] = []
    replay(host.world().disk, FOLDER, NO_MARK, records.append)
    big = records[1]
    assert isinstance(big, Run)
    assert bytes(big.entry(0)) == entry(1, 0, payload)
    assert [records[0], records[2]] == [Fence(4), Fence(5)]


def test_an_empty_folder_has_nothing(host: Host) -> None:
    seen, reading = read(host)
    assert (seen, reading.end) == ([], NO_MARK)
