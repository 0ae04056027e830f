from __future__ import annotations

import pytest
from google.protobuf.message import EncodeError
from hypothesis import example, given
from hypothesis import strategies as st

from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.wire.pulsar.frames import encode, encode_varint
from tests.support.pulsar_frames import frame


@given(st.one_of(st.integers(-1, 1 << 22), st.integers(-(1 << 63), (1 << 64) - 1)))
@example(0x0FFF_FFFF)
@example(0x1000_0000)
def test_varints_are_those_of_protobuf(value: int) -> None:
    unsigned = value & ((1 << 64) - 1)
    assert b"\x08" + encode_varint(value) == pb.CommandSend(producer_id=unsigned).SerializePartialToString()


def test_a_command_is_framed_with_both_sizes() -> None:
    command = pb.BaseCommand(type=pb.BaseCommand.SUCCESS, success=pb.CommandSuccess(request_id=5))
    assert encode(command) == frame(command.SerializeToString())
    assert encode(command).hex() == "0000000a00000006080d6a020805"


def test_a_command_with_a_required_field_missing_is_not_sent() -> None:
    with pytest.raises(EncodeError):
        encode(pb.BaseCommand(type=pb.BaseCommand.SUCCESS, success=pb.CommandSuccess()))


def test_the_part_of_every_command_has_the_number_of_its_type() -> None:
    parts = pb.BaseCommand.DESCRIPTOR.fields_by_number
    types = {kind.number for kind in pb.BaseCommand.Type.DESCRIPTOR.values}
    assert types == {*range(2, 41), *range(50, 69)}
    assert set(parts) == types | {1}
