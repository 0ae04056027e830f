from __future__ import annotations

from collections.abc import Callable
from struct import pack

import pytest

from bookie.db_ledger_storage.ledger_index import LedgerIndex, LedgerRow
from bookie.errors import StorageDamagedError
from quire.world.doors import KeyValue
from simulation.machines.world import Universe
from tests.support.refusals import refuses

FLAGS_KEY = pack("!q", -0xEEFD)


@pytest.fixture
def rows() -> KeyValue:
    return Universe(1).host("bookie").world().key_value.open("/ledgers")


@pytest.fixture
def put(rows: KeyValue) -> Callable[[bytes, bytes], None]:
    def put(key: bytes, value: bytes) -> None:
        batch = rows.batch()
        batch.put(key, value)
        rows.write(batch, sync=True)

    return put


def loaded(rows: KeyValue) -> LedgerIndex:
    index = LedgerIndex(rows)
    index.load()
    return index


@pytest.fixture
def index(rows: KeyValue) -> LedgerIndex:
    return LedgerIndex(rows)


def test_a_value_has_the_bytes_the_original_writes():
    key = bytes.fromhex("615ed0089f3a2db1c1f7182910edc04428396d09")
    assert LedgerRow(master_key=key).encode().hex() == "080110001a14" + key.hex()
    assert LedgerRow(master_key=key, explicit_lac=b"abc").encode().hex() == "080110001a14" + key.hex() + "2203616263"
    assert LedgerRow(limbo=True).encode().hex() == "080110001a002801"


@pytest.mark.parametrize("fenced", [False, True])
@pytest.mark.parametrize("lac", [None, b"", b"package"])
@pytest.mark.parametrize("limbo", [False, True])
def test_a_value_is_read_as_written(fenced, lac, limbo):
    state = LedgerRow(master_key=b"k" * 20, fenced=fenced, explicit_lac=lac, limbo=limbo)
    assert LedgerRow.decode(state.encode()) == state


@pytest.mark.parametrize("value", [b"", b"\xff\xff", b"\x08\x01", bytes.fromhex("080110011a05")])
def test_a_value_that_cannot_be_read_stops_the_start(rows, put, value):
    put(pack("!q", 1), value)
    refuses(StorageDamagedError, lambda: loaded(rows))


def test_what_is_written_is_loaded_again(rows, index: LedgerIndex):
    index.set_master_key(0, b"zero")
    index.set_master_key(5_000_000_000, b"big")
    index.set_fenced(5_000_000_000)
    index.set_explicit_lac(0, b"lac")
    index.write(index.take_dirty())
    again = loaded(rows)
    assert again.ledgers() == [0, 5_000_000_000]
    assert again.get(0) == LedgerRow(master_key=b"zero", explicit_lac=b"lac")
    assert again.get(5_000_000_000) == LedgerRow(master_key=b"big", fenced=True)
    assert again.get(1) is None
    assert 1 not in again
    assert 0 in again


def test_fencing_an_unknown_ledger_makes_it_known(rows, index: LedgerIndex):
    index.set_fenced(9)
    index.write(index.take_dirty())
    assert loaded(rows).get(9) == LedgerRow(fenced=True)


def test_a_key_set_later_leaves_the_fence_in_place(rows, index: LedgerIndex):
    index.set_fenced(9)
    index.set_master_key(9, b"k")
    assert index.get(9) == LedgerRow(master_key=b"k", fenced=True)


def test_only_what_changed_is_dirty_and_what_failed_is_dirty_again(rows, index: LedgerIndex):
    index.set_master_key(1, b"a")
    index.set_master_key(2, b"b")
    taken = index.take_dirty()
    assert [each for each, _ in taken] == [1, 2]
    index.set_master_key(1, b"a")
    assert index.take_dirty() == [], "nothing changed"
    index.set_fenced(2)
    index.mark_dirty(taken)
    assert dict(index.take_dirty()) == {
        1: LedgerRow(master_key=b"a"),
        2: LedgerRow(master_key=b"b", fenced=True),
    }, "the newest state, not the one whose write failed"


def test_keys_of_16_bytes_are_read_and_lose_against_ours(rows, put):
    put(pack("!qq", 3, 0), LedgerRow(fenced=True).encode())
    put(pack("!qq", 4, 0), LedgerRow(fenced=True).encode())
    put(pack("!q", 4), LedgerRow(master_key=b"k", fenced=True).encode())
    index = loaded(rows)
    assert index.get(3) == LedgerRow(fenced=True)
    assert index.get(4) == LedgerRow(master_key=b"k", fenced=True)


def test_flags_under_a_negative_id_are_passed_over_and_kept(rows, put):
    put(FLAGS_KEY, pack("!q", 1))
    put(pack("!q", 1), LedgerRow().encode())
    index = loaded(rows)
    assert index.ledgers() == [1]
    index.delete_rows([1])
    assert rows.get(FLAGS_KEY) == pack("!q", 1)


def test_a_key_of_another_length_stops_the_start(rows, put):
    put(b"\0" * 7 + b"\1\0", LedgerRow().encode())
    refuses(StorageDamagedError, lambda: loaded(rows))


def test_a_deleted_ledger_is_gone_in_both_key_lengths(rows, put):
    for key in (pack("!q", 3), pack("!qq", 3, 0), pack("!q", 4)):
        put(key, LedgerRow().encode())
    index = loaded(rows)
    index.delete_rows([3])
    index.forget(3)
    assert index.ledgers() == [4]
    assert loaded(rows).ledgers() == [4]


def test_many_ledgers_are_durable_on_return():
    host = Universe(1).host("bookie")
    index = LedgerIndex(host.world().key_value.open("/ledgers"))
    for ledger in range(2500):
        index.set_master_key(ledger, b"k")
    index.write(index.take_dirty())
    host.cut_power()
    assert len(loaded(host.world().key_value.open("/ledgers")).ledgers()) == 2500
