"""Files of ledgers: every entry comes back byte for byte, and damage is found."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from quire.client.packing import pack
from quire.offload import parquet
from quire.offload.errors import OffloadedLedgerError
from quire.offload.parquet import LedgerFile, OffloadedLedger, write_ledger
from quire.offload.sealing import MAGIC, SealedFile, seal
from tests.support.refusals import refuses
from tests.unit.offload.made import entry_with
from tests.unit.spark.entries import chunk, plain

TOPIC = "persistent://public/default/orders-partition-2"


def entries_of(count: int, seed: int = 1) -> list[bytes]:
    """Return entries of all kinds."""
    rng = random.Random(seed)
    found = []
    for number in range(count):
        values: list[bytes | None] = [rng.randbytes(rng.randrange(300)) for _ in range(rng.randrange(1, 5))]
        (packed,) = pack(values, batch=True, compression=rng.choice(["none", "lz4", "zstd"]))
        batch = packed.encode("producer", number, 1_700_000_000_000 + number)
        others = [plain(b"%d" % number), chunk(b"piece", 0, 2), entry_with(b"", marker_type=2), rng.randbytes(30)]
        found.append(rng.choice([batch, batch, *others]))
    return found


def write(path: Path, entries: Sequence[bytes], count: int | None = None) -> Path:
    file = LedgerFile(topic=TOPIC, ledger_id=7, entries=len(entries) if count is None else count, uid="u")
    with path.open("x+b") as target:
        written = write_ledger(target, file, [entries[:3], [], entries[3:]])
    assert (written.entries, written.entry_bytes) == (len(entries), sum(map(len, entries)))
    return path


def sealed(path: Path) -> Path:
    """Add the checksums that other writers of Parquet do not know."""
    with path.open("r+b") as file:
        seal(file)
    return path


@pytest.fixture
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "GROUP_BYTES", 2000)


def test_every_entry_comes_back_in_any_order_of_reads(tmp_path: Path, small_groups: None) -> None:
    entries = entries_of(200)
    ledger = OffloadedLedger(write(tmp_path / "a.parquet", entries))
    assert ledger.file == LedgerFile(topic=TOPIC, ledger_id=7, entries=200, uid="u")
    groups = [ledger._parquet.metadata.row_group(each) for each in range(ledger._parquet.metadata.num_row_groups)]
    assert len(groups) > 10
    ledger.check()
    rng = random.Random(2)
    for _ in range(60):
        first = rng.randrange(200)
        last, size_max = rng.randrange(first, 200), rng.choice([1, 500, 1 << 20])
        found = ledger.read(first, last, size_max)
        assert found == entries[first : first + len(found)]
        assert 1 <= len(found) <= last - first + 1
        assert len(found) == 1 or sum(map(len, found)) <= size_max
    found, at = [], 0
    while at < 200:
        run = ledger.read(at, 199, 1 << 20)
        at, found = at + len(run), found + run
    assert found == entries
    for first, last in ((-1, 3), (5, 4), (0, 200)):
        refuses(OffloadedLedgerError, partial(ledger.read, first, last, 1), "has 200 entries")
    ledger.close()


def test_other_engines_find_the_columns_of_the_source(tmp_path: Path) -> None:
    (packed,) = pack([b"a"], ["k"], [[("p", "1")]], [5], batch=False)
    entries = [packed.encode("producer", 0, 1_700_000_000_123), entry_with(b"", marker_type=2)]
    table = pq.read_table(write(tmp_path / "a.parquet", entries))
    row, other = table.to_pylist()
    assert (row["__key"], row["value"], row["__properties"]) == (b"k", b"a", [("p", "1")])
    assert (row["__topic"], row["__partition"]) == ("persistent://public/default/orders", 2)
    assert (row["__ledger"], row["__entry"], row["__batch"], row["__kind"]) == (7, 0, None, "message")
    assert pc.cast(table["__publishTime"], pa.int64()).to_pylist()[0] == 1_700_000_000_123_000
    assert pc.cast(table["__eventTime"], pa.int64()).to_pylist()[0] == 5000
    assert (other["__entry"], other["value"], other["__kind"], other["__eventTime"]) == (1, None, "marker", None)


def test_a_file_with_other_entries_than_the_ledger_is_not_written(tmp_path: Path) -> None:
    for count in (9, 11):
        path = tmp_path / str(count)
        refuses(OffloadedLedgerError, partial(write, path, entries_of(10), count), "but 10 came")


def test_a_row_group_ends_with_the_entry_that_fills_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "GROUP_ROWS", 10)
    (packed,) = pack([b"v"] * 7, batch=True)
    entries = [packed.encode("p", number, 1) for number in range(5)]
    ledger = OffloadedLedger(write(tmp_path / "a.parquet", entries))
    metadata = ledger._parquet.metadata
    assert [metadata.row_group(each).num_rows for each in range(metadata.num_row_groups)] == [14, 14, 7]
    assert ledger.read(2, 4, 1 << 20) == entries[2:4], "of one row group"
    ledger.close()


def test_each_damaged_byte_is_found(tmp_path: Path, small_groups: None) -> None:
    """pyarrow would end the process for some damaged footers: it gets bytes only after their checksum."""
    entries = entries_of(40)
    path = write(tmp_path / "a.parquet", entries)
    whole = path.read_bytes()
    sealed = SealedFile(path)
    assert sealed.groups > 2
    kinds = [*range(4), *range(len(whole) - 8, len(whole)), *range(whole.rindex(MAGIC) - 40, whole.rindex(MAGIC) + 4)]
    rng = random.Random(3)

    def read() -> None:
        ledger = OffloadedLedger(path)
        try:
            ledger.check()
        finally:
            ledger.close()

    for at in [*kinds, *rng.sample(range(len(whole)), 60)]:
        path.write_bytes(whole[:at] + bytes([whole[at] ^ (1 << rng.randrange(8))]) + whole[at + 1 :])
        refuses(OffloadedLedgerError, read, "a.parquet")
    for size in (0, 3, 11, 30, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        refuses(OffloadedLedgerError, read, "cannot be opened")
    refuses(OffloadedLedgerError, lambda: OffloadedLedger(tmp_path / "none"), "No such file")
    path.write_bytes(whole)
    assert OffloadedLedger(path).read(0, 2, 1 << 20) == entries[:3]


def test_a_decoder_sees_checked_bytes_only(tmp_path: Path, small_groups: None) -> None:
    path = write(tmp_path / "a.parquet", entries_of(40))
    whole, sealed = path.read_bytes(), SealedFile(path)
    footer_at = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    sealed.seek(0)
    assert sealed.read() == bytes(footer_at) + whole[footer_at:]
    sealed.load(1)
    start = sealed._loaded_at
    sealed.seek(start + 1)
    assert sealed.read(50) == whole[start + 1 : start + 51]
    path.write_bytes(whole[:100])  # under an open file: an error, as any other damage
    refuses(OffloadedLedgerError, partial(sealed.load, 2), "too short")


def test_rows_that_do_not_give_the_entry_are_found(tmp_path: Path) -> None:
    """Another program has changed a value and written a valid file."""
    table = pq.read_table(write(tmp_path / "a.parquet", [plain(b"a"), plain(b"b")]))
    changed = table.set_column(table.schema.names.index("value"), "value", pa.array([b"a", b"c"], pa.binary()))
    pq.write_table(changed, tmp_path / "b.parquet")
    refuses(OffloadedLedgerError, lambda: OffloadedLedger(tmp_path / "b.parquet"), "no checksums")
    ledger = OffloadedLedger(sealed(tmp_path / "b.parquet"))
    refuses(OffloadedLedgerError, ledger.check, "entry 1 is damaged")
    refuses(OffloadedLedgerError, lambda: ledger.read(0, 0, 1), "entry 1 is damaged")
    ledger.close()
    pq.write_table(table.slice(1), tmp_path / "c.parquet")
    refuses(OffloadedLedgerError, lambda: OffloadedLedger(sealed(tmp_path / "c.parquet")), "are not the 2 entries")
    pq.write_table(table.replace_schema_metadata({}), tmp_path / "d.parquet")
    refuses(OffloadedLedgerError, lambda: OffloadedLedger(sealed(tmp_path / "d.parquet")), "is not the file of")
