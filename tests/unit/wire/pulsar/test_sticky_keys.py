"""The keys of a run are those of its entries, whatever form their metadata have."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.wire.pulsar import sticky_keys as under_test
from quire.wire.pulsar.errors import PulsarWireError
from quire.wire.pulsar.metadata import sticky_key
from quire.wire.pulsar.sticky_keys import sticky_keys
from tests.support.pulsar_frames import entry

FORMS: dict[str, dict[str, Any]] = {
    "plain": {"partition_key": "k"},
    "a longer key": {"partition_key": "key-2"},
    "an empty key": {"partition_key": ""},
    "no key": {},
    "a key of 200 bytes": {"partition_key": "k" * 200},
    "a name of 200 bytes": {"partition_key": "k", "producer_name": "p" * 200},
    "compressed": {"partition_key": "k", "uncompressed_size": 70_000},
    "an ordering key": {"partition_key": "k", "ordering_key": b"o"},
    "an ordering key alone": {"ordering_key": b"o"},
    "base64": {"partition_key": "aw==", "partition_key_b64_encoded": True},
    "a time with the byte of a tag": {"partition_key": "k", "event_time": 0x32},
    "a batch": {"partition_key": "k", "num_messages_in_batch": 10},
    "a long sequence id": {"partition_key": "k", "sequence_id": (1 << 64) - 1},
}


def made(form: dict[str, Any], number: int = 0) -> bytes:
    return entry(b"payload", **{"sequence_id": number, "publish_time": 1_700_000_000_000, **form})


def with_properties(count: int, size: int) -> bytes:
    from quire.wire.pulsar.PulsarApi_pb2 import KeyValue

    pairs = [KeyValue(key=f"a{number}", value="v" * size) for number in range(count)]
    return entry(b"payload", partition_key="k", properties=pairs)


def expected(stored: bytes) -> bytes:
    try:
        return sticky_key(stored)
    except PulsarWireError:
        return b""


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_run_of_one_form_has_the_keys_that_protobuf_reads(form: dict[str, Any]) -> None:
    for run in ([made(form)], [made(form, number) for number in range(300)]):
        assert sticky_keys(run) == list(map(expected, run))
        assert sticky_keys([memoryview(each) for each in run]) == list(map(expected, run))


@given(st.lists(st.tuples(st.sampled_from(list(FORMS.values())), st.integers(0, 20_000)), min_size=1, max_size=40))
def test_a_run_of_mixed_forms_has_the_keys_that_protobuf_reads(drawn: list[tuple[dict[str, Any], int]]) -> None:
    run = [made(form, number) for form, number in drawn]
    run += [with_properties(2, 5), with_properties(1, 300), run[0][:13], run[0][:8], b"", b"\xff" * 40]
    assert sticky_keys(run) == list(map(expected, run))


def test_a_second_key_in_the_metadata_counts_as_for_protobuf() -> None:
    first = made({"partition_key": "k"})
    size = int.from_bytes(first[6:10], "big")
    for more in (b"\x32\x01x", b"\x92\x01\x01o", b"\x48\x05\x32\x01x"):
        stored = first[:6] + (size + len(more)).to_bytes(4, "big") + first[10 : 10 + size] + more + first[10 + size :]
        for run in ([stored], [stored] * 20, [first] * 20 + [stored]):
            assert sticky_keys(run) == list(map(expected, run))


def test_entries_alike_are_not_read_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(under_test, "_each", None)
    monkeypatch.setattr(under_test, "sticky_key", None)
    run = [made({"partition_key": f"key-{number}", "uncompressed_size": 1024}, number) for number in range(1000, 3000)]
    assert sticky_keys(run) == [b"key-%d" % number for number in range(1000, 3000)]


def test_entries_with_keys_of_several_lengths_are_not_read_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    each = under_test._each
    read: list[int] = []

    def noted(entries: list[Any]) -> list[bytes]:
        read.append(len(entries))
        return each(entries)

    monkeypatch.setattr(under_test, "_each", noted)
    for numbers in (range(9600, 10400), range(16_000, 16_800), [7 ** (each % 9) for each in range(800)]):
        run = [made({"partition_key": f"key-{number}"}, at) for at, number in enumerate(numbers, min(numbers) + 200)]
        assert sticky_keys(run) == [b"key-%d" % number for number in numbers]
        assert sum(read) < 40
        read.clear()
    assert sticky_keys([*run, *run[:9]]) == sticky_keys(run) + sticky_keys(run[:9])


def test_a_run_that_ends_with_a_damaged_entry_has_all_its_keys() -> None:
    run = [made({"partition_key": f"key-{10 ** (number % 4)}"}, number) for number in range(200)]
    for damaged in (b"", run[3][:9], run[3][:30]):
        assert sticky_keys([*run, damaged, *run]) == [*map(expected, run), expected(damaged), *map(expected, run)]


def test_entries_of_the_usual_forms_are_not_read_by_protobuf(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(under_test, "sticky_key", None)
    run = [made({"partition_key": "k" * number}, number * 100) for number in range(1, 100)] + [with_properties(3, 9)]
    assert sticky_keys(run) == [b"k" * number for number in range(1, 100)] + [b"k"]
