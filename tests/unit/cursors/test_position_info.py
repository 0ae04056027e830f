from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cursors.ack_state import AckState
from cursors.errors import CursorDamagedError, CursorTooLargeError
from cursors.position_info import (
    PUBLIC_RANGES_MAX,
    CursorNode,
    Stored,
    base_of,
    decode_chain,
    decode_node,
    encode_delta,
    encode_node,
    encode_whole,
)
from quire.ledger.position import Position
from quire.wire.pulsar import MLDataFormats_pb2 as pb
from tests.support.effort import effort
from tests.support.refusals import refuses
from tests.unit.cursors.fake_log import at, fake_log


def same(stored: Stored, state: AckState) -> None:
    assert stored.mark_delete == state.mark_delete
    assert list(stored.ranges.ranges()) == list(state.ranges.ranges())
    assert stored.ranges.count == state.ranges.count
    assert stored.properties == state.properties
    live = [(place, bits) for place, bits in stored.batches.items() if not state.is_acked(place)]
    assert live == list(state.batches.items())


def holes(count: int, *, span: int) -> AckState:
    state = AckState(fake_log((1, span)), Position(1, -1))
    state.ack_individual([Position(1, entry) for entry in sorted(random.Random(1).sample(range(1, span), count))])
    return state


def test_an_entry_with_few_holes_is_all_in_pulsars_own_fields() -> None:
    state = AckState(fake_log((1, 10), (4, 10)), Position(1, 2))
    state.ack_individual(at((1, 4), (1, 5), (4, 9)))
    state.ack_batch(Position(4, 1), 0b101)
    state.properties = {"seq": 7, "minus": -1}
    data = encode_whole(state)
    info = pb.PositionInfo.FromString(data)
    assert not info.HasField("quireAcks")
    assert {longs.key: list(longs.values) for longs in info.individualDeletedMessageRanges} == {
        1: [0b110000, 0],
        4: [1 << 9, 0],
    }
    same(decode_chain([data]), state)


def test_an_entry_with_many_holes_keeps_them_all_and_shows_pulsar_the_first_thousand() -> None:
    state = holes(100_000, span=1_000_000)
    data = encode_whole(state)
    info = pb.PositionInfo.FromString(data)
    assert (info.ledgerId, info.entryId) == state.mark_delete
    assert len(info.individualDeletedMessages) == PUBLIC_RANGES_MAX
    assert len(info.individualDeletedMessageRanges) == 0
    assert base_of(data) is None
    assert len(data) < 200_000
    same(decode_chain([data]), state)


def test_wholly_acknowledged_stretches_cost_next_to_nothing() -> None:
    state = AckState(fake_log((1, 60_000_000)), Position(1, -1))
    state.ranges.add(1, 1, 50_000_000)
    assert len(encode_whole(state)) < 1000
    same(decode_chain([encode_whole(state)]), state)


def test_what_does_not_fit_an_entry_is_refused_loudly() -> None:
    state = AckState(fake_log((1, 1 << 30)), Position(1, -1))
    for number in range(40_000):
        state.ranges.add_one(1, 1024 * number + 5)
    refuses(CursorTooLargeError, lambda: encode_whole(state))


CALLS = st.lists(
    st.tuples(st.sampled_from(["ack", "batch", "cumulative"]), st.sampled_from([2, 3]), st.integers(0, 99)), max_size=10
)


@settings(max_examples=effort(quick=20, full=60))
@given(st.lists(CALLS, min_size=1, max_size=6))
def test_a_base_and_its_deltas_tell_the_state(steps: list[list[tuple[str, int, int]]]) -> None:
    state = AckState(fake_log((2, 100), (3, 100)), Position(2, -1))
    entries: list[bytes] = []
    for calls in steps:
        for kind, ledger, entry in calls:
            place = Position(ledger, entry)
            if kind == "ack":
                state.ack_individual([place])
            elif kind == "batch":
                state.ack_batch(place, 1 << entry % 7 | 1)
            else:
                state.ack_cumulative(place)
        changes = state.take_changes()
        entries.append(encode_delta(state, changes, 5) if entries else encode_whole(state))
        assert base_of(entries[-1]) == (5 if len(entries) > 1 else None)
    same(decode_chain(entries), state)


def test_a_delta_shows_pulsar_the_right_mark_delete_position_and_is_small() -> None:
    state = holes(100_000, span=1_000_000)
    state.take_changes()
    state.ack_individual(at((1, 0)))
    fresh = next(entry for entry in range(500_000, 1_000_000) if not state.is_acked(Position(1, entry)))
    state.ack_individual([Position(1, fresh)])
    data = encode_delta(state, state.take_changes(), 3)
    info = pb.PositionInfo.FromString(data)
    assert (info.ledgerId, info.entryId) == state.mark_delete
    assert len(data) < 60


def test_a_node_tells_its_ledgers_and_a_bounded_snapshot() -> None:
    state = holes(50, span=1000)
    state.properties = {"a": 1}
    node = CursorNode(
        ledger_id=9, previous_ledger_id=8, deleting=(3, 4), last_active_ms=77, cursor_properties=(("k", "v"),)
    )
    found, snapshot = decode_node(encode_node(node, state, count_max=10))
    assert found == node
    assert list(snapshot.ranges.ranges()) == list(state.ranges.ranges())[:10]
    assert (snapshot.mark_delete, snapshot.properties) == (state.mark_delete, {"a": 1})
    found, snapshot = decode_node(encode_node(CursorNode(), state, count_max=1000))
    assert (found.ledger_id, found.previous_ledger_id, found.deleting) == (-1, -1, ())
    same(snapshot, state)


def test_a_range_over_two_ledgers_tells_only_what_is_certain() -> None:
    info = pb.PositionInfo(ledgerId=1, entryId=0)
    added = info.individualDeletedMessages.add()
    added.lowerEndpoint.ledgerId, added.lowerEndpoint.entryId = 1, 5
    added.upperEndpoint.ledgerId, added.upperEndpoint.entryId = 3, 2
    assert list(decode_chain([info.SerializeToString()]).ranges.ranges()) == [(3, 0, 2)]


@pytest.mark.parametrize("value", [b"\xff", b"", b"\x47\x78\x00\x00\x00\x04\x08\x01\x10\x05abcde", b"\x47\x78"])
def test_a_value_that_is_none_is_an_error_of_ours(value: bytes) -> None:
    refuses(CursorDamagedError, lambda: decode_node(value))
    refuses(CursorDamagedError, lambda: decode_chain([value]))


def test_a_node_that_is_the_state_and_has_no_position_is_damage() -> None:
    refuses(CursorDamagedError, lambda: decode_node(pb.ManagedCursorInfo(cursorsLedgerId=-1).SerializeToString()))


def test_chunks_that_do_not_fit_together_are_damage() -> None:
    info = pb.PositionInfo(ledgerId=1, entryId=0)
    info.quireAcks.ledgers.add(ledgerId=1, partial=[1], bitmaps=b"short")
    refuses(CursorDamagedError, lambda: decode_chain([info.SerializeToString()]))
    info = pb.PositionInfo(ledgerId=1, entryId=0)
    info.quireAcks.ranges.extend([1, 2])
    refuses(CursorDamagedError, lambda: decode_chain([info.SerializeToString()]))


@pytest.mark.parametrize("counts", [(1, 2), (1, 2, 0), (1, 2, -1)])
def test_redelivery_counts_that_none_can_be_are_damage(counts: tuple[int, ...]) -> None:
    info = pb.PositionInfo(ledgerId=1, entryId=0)
    info.quireAcks.redeliveries.extend(counts)
    node = pb.ManagedCursorInfo(cursorsLedgerId=-1, markDeleteLedgerId=1, markDeleteEntryId=0)
    node.quireRedeliveries.extend(counts)
    refuses(CursorDamagedError, lambda: decode_chain([info.SerializeToString()]))
    refuses(CursorDamagedError, lambda: decode_node(node.SerializeToString()))
