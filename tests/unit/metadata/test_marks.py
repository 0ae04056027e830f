from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.metadata import marks as form
from quire.metadata.errors import MalformedMetadataError
from quire.metadata.marks import Underreplicated
from tests.support.refusals import refuses


@given(st.integers(0, (1 << 63) - 1))
def test_a_ledger_is_found_again_by_its_folders_and_its_name(ledger_id: int) -> None:
    assert form.parse_folders(form.folder_names(ledger_id)) == ledger_id
    assert form.parse_node_name(form.node_name(ledger_id)) == ledger_id


@pytest.mark.parametrize(
    "names",
    [
        ["0000"] * 3,
        ["0000"] * 5,
        ["0000", "0000", "0000", "000g"],
        ["8000", "0000", "0000", "0000"],
        ["0", "0", "0", "0"],
    ],
)
def test_folders_of_others_are_no_ledger(names: list[str]) -> None:
    assert form.parse_folders(names) is None


@pytest.mark.parametrize("name", ["", "urL", "L0000000001", "urL-1", "urLx", "urL\u0661"])
def test_names_of_others_are_no_ledger(name: str) -> None:
    assert form.parse_node_name(name) is None


@given(st.lists(st.text(max_size=20), unique=True, max_size=4), st.none() | st.integers(0, (1 << 63) - 1))
def test_a_mark_is_read_as_it_was_written(replicas: list[str], ctime_ms: int | None) -> None:
    value = form.encode_mark(replicas, ctime_ms)
    assert value.isascii()
    assert form.decode_mark(7, value) == Underreplicated(7, tuple(replicas), ctime_ms)


def test_a_mark_may_be_written_by_other_writers_of_protobuf_text() -> None:
    value = b"""replica: 'b1' replica:"\\303\\274\\x41\\n";\n ctime : 12 """
    assert form.decode_mark(1, value) == Underreplicated(1, ("b1", "\u00fcA\n"), 12)
    assert form.decode_mark(1, 'replica: "\u00fc"'.encode()) == Underreplicated(1, ("\u00fc",), None)
    assert form.decode_mark(1, b"") == Underreplicated(1, (), None)


@pytest.mark.parametrize(
    "value",
    [
        b"replica",
        b'replica: "b1',
        b"replica: 7",
        b'other: "x"',
        b'ctime: "7"',
        b"\xff",
        b'replica: "\\q"',
        b'replica: "\\377"',
    ],
)
def test_a_damaged_mark_is_told(value: bytes) -> None:
    refuses(MalformedMetadataError, lambda: form.decode_mark(1, value))


def test_what_is_new_is_merged_at_the_end() -> None:
    value = form.encode_mark(["b1"], 5)
    assert form.merge_mark(value, ["b1"], 9) is None
    assert form.merge_mark(value, ["b2", "b1"], 9) == b'replica: "b1"\nreplica: "b2"\nctime: 9\n'
    assert form.merge_mark(value, ["b2"], None) == b'replica: "b1"\nreplica: "b2"\nctime: 5\n'


def test_an_owner_is_one_line() -> None:
    assert form.encode_owner("127.0.0.1:3281") == b'bookieId: "127.0.0.1:3281"\n'
    assert form.decode_owner(b'bookieId: "a"\n') == "a"
    assert form.decode_owner(b"") is None
    refuses(MalformedMetadataError, lambda: form.decode_owner(b"bookieId"))


@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_the_time_of_a_check_is_read_as_it_was_written(wall_ms: int) -> None:
    assert form.decode_check_time(form.encode_check_time(wall_ms)) == wall_ms


@pytest.mark.parametrize(
    "value", [b"\x08", b"\x10\x01", b"\x08\x80", b"\x08\x01\x01", b"\x08" + b"\x80" * 10 + b"\x01"]
)
def test_a_damaged_time_of_a_check_is_told(value: bytes) -> None:
    refuses(MalformedMetadataError, lambda: form.decode_check_time(value))


def test_a_check_without_a_time_was_never_made() -> None:
    assert form.decode_check_time(b"") is None


@pytest.mark.parametrize("value", [b"", b"x", b"-1", b"\xff"])
def test_a_delay_is_a_number_of_seconds(value: bytes) -> None:
    assert form.decode_delay(form.encode_delay(30)) == 30
    refuses(MalformedMetadataError, lambda: form.decode_delay(value))


@pytest.mark.parametrize(
    "value", [b"", b'type: "BASIC"\n', b'type: "OTHER"\nversion: 1\n', b'type: "BASIC"\nversion: 2\n']
)
def test_another_layout_is_told(value: bytes) -> None:
    form.check_layout(form.LAYOUT)
    refuses(MalformedMetadataError, lambda: form.check_layout(value))
