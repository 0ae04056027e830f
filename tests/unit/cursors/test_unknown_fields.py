from __future__ import annotations

from cursors.ack_state import AckState
from cursors.position_info import decode_node, encode_node
from cursors.unknown_fields import unknown_fields
from quire.wire.pulsar import MLDataFormats_pb2 as pb
from tests.unit.cursors.fake_log import fake_log

NEW_FIELD = bytes.fromhex("a206027e7e")
"""An unknown field: number 100, two bytes."""


def test_a_message_of_our_schema_has_none() -> None:
    assert unknown_fields(pb.ManagedCursorInfo(cursorsLedgerId=7, lastActive=3)) == b""


def test_fields_of_a_newer_schema_are_found_in_any_order() -> None:
    known = pb.ManagedCursorInfo(cursorsLedgerId=7, lastActive=3).SerializeToString()
    for data in (NEW_FIELD + known, known + NEW_FIELD):
        assert unknown_fields(pb.ManagedCursorInfo.FromString(data)) == NEW_FIELD


def test_a_cursors_node_gets_them_back() -> None:
    value = (
        pb.ManagedCursorInfo(cursorsLedgerId=-1, markDeleteLedgerId=1, markDeleteEntryId=2).SerializeToString()
        + NEW_FIELD
    )
    node, stored = decode_node(value)
    state = AckState(fake_log((1, 9)), stored.mark_delete)
    assert encode_node(node, state, count_max=10).endswith(NEW_FIELD)
