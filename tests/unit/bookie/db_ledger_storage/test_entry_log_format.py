from __future__ import annotations

from itertools import pairwise, product

import pytest

from bookie.db_ledger_storage.entry_log_format import (
    HEADER_LENGTH,
    Header,
    Scan,
    are_records,
    decode_header,
    decode_ledgers_map,
    encode_header,
    encode_ledgers_map,
    encode_map_fields,
    log_id_of,
)
from bookie.errors import StorageDamagedError


def read_at(data: bytes):
    return lambda size, offset: data[offset : offset + size]


def scan(data: bytes) -> tuple[list[tuple[int, int, int, int]], int]:
    reader = Scan(read_at(data), len(data))
    found = [(each.ledger_id, each.entry_id, each.offset, each.size) for each in reader]
    return found, reader.torn_at


def test_a_header_is_1024_bytes_with_the_fields_where_the_original_has_them():
    data = encode_header(Header(map_offset=0x0102030405, ledgers=7))
    assert data[:20].hex(" ", 4) == "424b4c4f 00000001 00000001 02030405 00000007"
    assert data[20:] == bytes(1004)
    assert decode_header(data) == Header(version=1, map_offset=0x0102030405, ledgers=7)


def test_sealing_patches_exactly_bytes_8_to_19():
    data = bytearray(encode_header(Header()))
    fields = encode_map_fields(5000, 3)
    data[8 : 8 + len(fields)] = fields
    assert data == encode_header(Header(map_offset=5000, ledgers=3))


@pytest.mark.parametrize("data", [b"", b"BKLO", b"BKLG" + bytes(1020), bytes(1024)])
def test_what_is_no_header_is_refused(data):
    with pytest.raises(StorageDamagedError):
        decode_header(data)


def test_a_log_without_map_or_of_version_0_has_no_map():
    assert not Header().has_map
    assert not Header(version=0, map_offset=2000, ledgers=1).has_map
    assert not Header(map_offset=2000, ledgers=0).has_map
    assert Header(map_offset=2000, ledgers=1).has_map


def test_a_ledgers_map_is_read_as_written_in_batches_of_10000():
    ledgers = {ledger: ledger * 3 + 1 for ledger in range(20001)}
    data = encode_ledgers_map(ledgers)
    assert len(data) == 3 * 24 + 16 * 20001
    assert decode_ledgers_map(data, 20001) == ledgers
    assert decode_ledgers_map(data + bytes(100), 20001) == ledgers, "zeros behind it end it"


def test_a_ledgers_map_that_does_not_fit_its_header_or_is_torn_is_refused():
    data = encode_ledgers_map({1: 10, 2: 20})
    for count in (0, 1, 3):
        with pytest.raises(StorageDamagedError):
            decode_ledgers_map(data, count)
    for end in range(len(data)):
        with pytest.raises(StorageDamagedError):
            decode_ledgers_map(data[:end], 2)
    for byte in (0, 5, 12, 21):
        damaged = bytearray(data)
        damaged[byte] ^= 0x40
        with pytest.raises(StorageDamagedError):
            decode_ledgers_map(bytes(damaged), 2)


def test_a_scan_finds_every_entry_and_skips_the_ledgers_map(run_of):
    runs = [run_of(7, range(3)), run_of(9, [4]), run_of(7, [3])]
    body = b"".join(bytes(run.parts[0]) for run in runs)
    found, torn_at = scan(encode_header(Header()) + body + encode_ledgers_map({7: 1, 9: 2}))
    assert [each[:2] for each in found] == [(7, 0), (7, 1), (7, 2), (9, 4), (7, 3)]
    assert [each[2] for each in found] == [1024 + 44 * index for index in range(5)]
    assert torn_at == -1


def test_a_log_cut_at_any_byte_shows_its_whole_entries_and_where_it_is_torn(run_of):
    data = encode_header(Header()) + bytes(run_of(7, range(4)).parts[0])
    ends = [1024 + 44 * index for index in range(5)]
    for end in range(1024, len(data) + 1):
        found, torn_at = scan(data[:end])
        whole = sum(each <= end for each in ends) - 1
        assert len(found) == whole, end
        tail = data[ends[whole] : end]
        assert torn_at == (ends[whole] if any(tail) else -1), end


def test_padding_between_and_behind_entries_is_passed_over(run_of):
    first, second = bytes(run_of(7, [0]).parts[0]), bytes(run_of(7, [1]).parts[0])
    # Filler of the original's direct-I/O logger, then a pre-allocated tail.
    data = encode_header(Header()) + first + b"\xf0" * 57 + second + bytes(3 << 20)
    found, torn_at = scan(data)
    assert [each[:3] for each in found] == [(7, 0, 1024), (7, 1, 1024 + 44 + 57)]
    assert torn_at == -1


@pytest.mark.parametrize("length", [1, 3, 19, 20, 21, 40, 4096])
def test_filler_that_ends_a_block_is_padding_however_little_of_it_there_is(run_of, length):
    data = encode_header(Header()) + bytes(run_of(7, [0]).parts[0]) + b"\xf0" * length
    assert scan(data)[1] == -1
    assert scan(data[:-1] + b"\x01")[1] != -1


def test_a_scan_reads_entries_longer_than_what_it_reads_at_a_time(run_of):
    data = encode_header(Header()) + b"".join(bytes(run_of(7, [each], 700_000).parts[0]) for each in range(5))
    found, torn_at = scan(data)
    assert [each[1] for each in found] == [0, 1, 2, 3, 4]
    assert torn_at == -1


def test_a_damaged_size_ends_the_scan_and_is_told(run_of):
    data = bytearray(encode_header(Header()) + bytes(run_of(7, range(3)).parts[0]))
    data[1024 + 44] ^= 0x20
    found, torn_at = scan(bytes(data))
    assert [each[1] for each in found] == [0]
    assert torn_at == 1024 + 44


def test_an_empty_file_has_no_entries():
    assert scan(b"") == ([], -1)
    assert scan(encode_header(Header())[:500]) == ([], -1)


def test_only_lower_case_hex_with_log_behind_it_is_a_log():
    assert [log_id_of(name) for name in ("0.log", "ff.log", "7fffffff.log")] == [0, 255, (1 << 31) - 1]
    for name in ("", ".log", "FF.log", "-1.log", "80000000.log", "1.log.1.compacted", "lastMark", "1.txn", "1"):
        assert log_id_of(name) == -1, name


def test_offsets_of_a_scan_are_those_of_size_fields(run_of):
    run = run_of(3, range(5), 100)
    found, _ = scan(encode_header(Header()) + bytes(run.parts[0]))
    assert [each[2] - HEADER_LENGTH for each in found] == run.offsets
    assert {b - a for a, b in pairwise(run.offsets)} == {104}


@pytest.mark.parametrize("first", [0, 254, 65_530, (1 << 32) - 3])
def test_records_of_one_length_are_recognised_and_a_flipped_bit_in_any_head_is_seen(records_of, first):
    data = records_of(7, range(first, first + 5))
    assert are_records(data, 44, 5, 7, first)
    assert are_records(data, 44, 3, 7, first), "what follows does not count"
    assert not are_records(data, 44, 6, 7, first), "there are 5"
    assert not are_records(data, 44, 5, 7, first + 1)
    for record, byte, bit in product(range(5), range(20), range(8)):
        flipped = bytearray(data)
        flipped[44 * record + byte] ^= 1 << bit
        assert not are_records(bytes(flipped), 44, 5, 7, first), (record, byte, bit)


def test_records_too_short_for_their_ids_are_none():
    assert not are_records((15).to_bytes(4, "big") + bytes(15), 19, 1, 0, 0)
