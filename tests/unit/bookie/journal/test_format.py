from __future__ import annotations

import random
from collections.abc import Iterable

import pytest

from bookie.journal import format
from bookie.journal.format import (
    HEADER_SIZE,
    RUN_SIZE_MAX,
    BadHeaderError,
    BadRecordError,
    ExplicitLac,
    Fence,
    LedgerKey,
    LogMark,
    Record,
    RunBuilder,
    decode_header,
    decode_last_mark,
    decode_records,
    encode_header,
    encode_last_mark,
    file_id_of,
    file_name,
    record_bytes,
)
from bookie.journal.seal import decode_trailer, group_is_good, group_size, seal_group
from quire.wire.bookkeeper.run import Run
from tests.support.refusals import refuses
from tests.unit.bookie.build import KEY, run_of


def group_of(records: list[Record], file_id: int = 9, offset: int = 512) -> bytes:
    parts, size = record_bytes(records)
    total = group_size(size)
    seal_group(parts, size, total, file_id, offset)
    group = b"".join(parts)
    assert len(group) == total
    return group


def described(record: Record) -> object:
    return (
        (record.ledger_id, record.first, b"".join(record.parts), record.offsets) if isinstance(record, Run) else record
    )


def entries_of(records: Iterable[Record]) -> list[object]:
    """Return the records, with an element for each entry of a run: where a run ends is not fixed."""
    found: list[object] = []
    for record in records:
        if isinstance(record, Run):
            ids = range(record.first, record.last + 1)
            found += [(record.ledger_id, entry_id, bytes(record.entry(entry_id))) for entry_id in ids]
        else:
            found.append(record)
    return found


def test_every_kind_of_record_is_read_back() -> None:
    records: list[Record] = [
        LedgerKey(1, KEY),
        run_of(1, 0, 5),
        Fence(2),
        ExplicitLac(3, b"package"),
        run_of(2, 7, 1),
        run_of(1, 9, 2),
    ]
    unknown: list[int] = []
    read = list(decode_records(memoryview(group_of(records)), 6, unknown))
    assert [described(record) for record in read] == [described(record) for record in records]
    assert unknown == []


def test_the_bytes_of_special_records_are_the_originals() -> None:
    assert (
        LedgerKey(1, b"k" * 20).encode().hex() == "00000028" + f"{1:016x}" + "fffffffffffff000" + "00000014" + "6b" * 20
    )
    assert Fence(1).encode().hex() == "00000010" + f"{1:016x}" + "ffffffffffffe000"
    assert ExplicitLac(1, b"xy").encode().hex() == "00000016" + f"{1:016x}" + "ffffffffffff8000" + "00000002" + "7879"


@pytest.mark.parametrize("size", range(440, 560, 3))
def test_groups_end_at_the_alignment_with_their_trailer_right_before(size: int) -> None:
    parts: list[bytes | bytearray | memoryview] = [bytes(size)]
    total = group_size(size)
    seal_group(parts, size, total, 9, 1024)
    group = b"".join(parts)
    assert total == len(group)
    assert total % 512 == 0
    assert total - size < 512 + 40
    trailer = decode_trailer(group[-32:])
    assert trailer is not None
    assert trailer[:3] == (9, 1024, total)
    assert group_is_good(group, trailer)


def test_the_padding_record_is_one_that_the_original_skips() -> None:
    group = group_of([Fence(1)])
    assert group[20:24] == bytes.fromhex("ffffff00")
    assert int.from_bytes(group[24:28], "big") == len(group) - 28


def test_every_flipped_bit_of_a_group_is_noticed() -> None:
    group = group_of([LedgerKey(1, KEY), run_of(1, 0, 2), Fence(2), ExplicitLac(3, b"package")])
    for index in range(len(group) * 8):
        damaged = bytearray(group)
        damaged[index // 8] ^= 1 << index % 8
        trailer = decode_trailer(damaged[-32:])
        assert trailer is None or trailer[:3] != (9, 512, len(group)) or not group_is_good(damaged, trailer)


def test_runs_are_parted_where_ids_do_not_follow() -> None:
    records: list[Record] = [run_of(1, 0, 2), run_of(1, 3, 1), run_of(2, 4, 1)]
    assert [described(r) for r in decode_records(memoryview(group_of(records)), 6, [])] == [
        described(r) for r in records
    ]


@pytest.mark.parametrize("seed", range(40))
def test_records_of_one_length_are_decoded_in_blocks_as_they_are_one_by_one(seed: int, monkeypatch) -> None:
    rng = random.Random(seed)
    records: list[Record] = []
    next_ids = {ledger_id: 0 for ledger_id in range(3)}
    for _ in range(rng.randint(1, 12)):
        ledger_id = rng.choice([0, 0, 1, 2])
        payload = bytes(rng.choice([1, 1, 100, 3000, 20_000]))
        count = rng.choice([1, 2, 31, 32, 33, 34, 65, 100])
        records.append(run_of(ledger_id, next_ids[ledger_id], count, payload))
        next_ids[ledger_id] += count + rng.choice([0, 0, 1, -1])
        if rng.random() < 0.2:
            records.append(Fence(ledger_id))
    data = memoryview(group_of(records))
    decoded = entries_of(decode_records(data, 6, []))
    monkeypatch.setattr(format, "_is_block", lambda *_: False)
    assert decoded == entries_of(decode_records(data, 6, []))


def test_a_block_is_decoded_without_a_step_for_each_record(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = 0
    add = RunBuilder.add

    def counted(runs: RunBuilder, *arguments: int) -> Run | None:
        nonlocal steps
        steps += 1
        return add(runs, *arguments)

    monkeypatch.setattr(RunBuilder, "add", counted)
    list(decode_records(memoryview(group_of([run_of(1, 0, 1 + 32 * 9, b"p")])), 6, []))
    assert steps == 1


def test_a_run_ends_near_its_bound_of_bytes() -> None:
    data = memoryview(group_of([run_of(1, 0, 400, bytes(10_000))]))
    sizes = [record.size for record in decode_records(data, 6, []) if isinstance(record, Run)]
    assert len(sizes) == 4
    assert max(sizes) < RUN_SIZE_MAX * 3 // 2


def test_records_of_an_unknown_kind_are_left_out_and_told() -> None:
    unknown_record = (16).to_bytes(4, "big") + (1).to_bytes(8, "big") + (-0x4000).to_bytes(8, "big", signed=True)
    unknown: list[int] = []
    assert list(decode_records(memoryview(unknown_record + Fence(4).encode()), 6, unknown)) == [Fence(4)]
    assert unknown == [-0x4000]


@pytest.mark.parametrize(
    ("record", "version"),
    [(LedgerKey(1, KEY), 2), (Fence(1), 3), (ExplicitLac(1, b""), 5)],
    ids=["key", "fence", "lac"],
)
def test_a_kind_that_the_version_does_not_know_is_refused(record: Record, version: int) -> None:
    parts, _ = record_bytes([record])
    data = memoryview(b"".join(parts))
    refuses(BadRecordError, lambda: list(decode_records(data, version, [])), f"version {version}")
    assert list(decode_records(data, version + 1, [])) == [record]


@pytest.mark.parametrize("bad", ["00000000", "0000000f" + "00" * 15, "ffffff01" + "00" * 16, "ffffff00" + "00000010"])
def test_lengths_that_cannot_be_are_refused(bad: str) -> None:
    refuses(BadRecordError, lambda: list(decode_records(memoryview(bytes.fromhex(bad)), 6, [])))


def test_a_header_tells_what_came_before() -> None:
    data = encode_header(0x1A, LogMark(0x19, 4096))
    assert len(data) == HEADER_SIZE
    assert data.startswith(b"BKLG\0\0\0\6")
    header = decode_header(data, 0x1A)
    assert header is not None
    assert (header.version, header.start, header.ours, header.previous) == (6, 512, True, LogMark(0x19, 4096))
    first = decode_header(encode_header(0x1A, None), 0x1A)
    assert first is not None
    assert first.previous is None


def test_every_flipped_bit_of_a_header_is_noticed() -> None:
    data = encode_header(0x1A, LogMark(0x19, 4096))
    for index in range(HEADER_SIZE * 8):
        damaged = bytearray(data)
        damaged[index // 8] ^= 1 << index % 8
        with pytest.raises(BadHeaderError):
            decode_header(bytes(damaged), 0x1A)


def test_a_header_of_another_file_is_refused() -> None:
    refuses(BadHeaderError, lambda: decode_header(encode_header(0x1A, None), 0x1B), r"1a\.txn")


def test_a_header_that_was_not_finished_is_a_file_without_groups() -> None:
    data = encode_header(0x1A, LogMark(0x19, 4096))
    assert [decode_header(data[:size], 0x1A) for size in range(HEADER_SIZE)] == [None] * HEADER_SIZE
    assert decode_header(bytes(HEADER_SIZE), 0x1A) is None


@pytest.mark.parametrize(("version", "start"), [(2, 8), (3, 8), (4, 8), (5, 512), (6, 512)])
def test_headers_of_the_original_are_read(version: int, start: int) -> None:
    data = b"BKLG" + version.to_bytes(4, "big") + (b"\1" * 504 if version < 5 else bytes(504))
    header = decode_header(data, 1)
    assert header is not None
    assert (header.version, header.start, header.ours, header.previous) == (version, start, False, None)


def test_a_file_without_magic_is_version_1() -> None:
    header = decode_header(b"\0\0\0\x20" + bytes(500) + b"\1" * 8, 1)
    assert header is not None
    assert (header.version, header.start) == (1, 0)


@pytest.mark.parametrize("version", [-1, 0, 1, 7])
def test_versions_that_nobody_knows_are_refused(version: int) -> None:
    with pytest.raises(BadHeaderError, match="version"):
        decode_header(b"BKLG" + version.to_bytes(4, "big", signed=True) + bytes(504), 1)


def test_last_mark_is_16_bytes_or_nothing() -> None:
    assert encode_last_mark(LogMark(1, 512)).hex() == "0000000000000001" + "0000000000000200"
    assert decode_last_mark(encode_last_mark(LogMark(1, 512))) == LogMark(1, 512)
    assert decode_last_mark(b"") is None
    assert decode_last_mark(bytes(17)) is None


def test_file_names_are_lower_case_hex_without_padding() -> None:
    assert file_name(0x1A1FDBCAFC3) == "1a1fdbcafc3.txn"
    assert file_id_of("1a1fdbcafc3.txn") == 0x1A1FDBCAFC3
    others = ("VERSION", "x.txn", "1.log", "txn", ".txn", "-1.txn", "8000000000000000.txn")
    assert [file_id_of(name) for name in others] == [None] * len(others)
