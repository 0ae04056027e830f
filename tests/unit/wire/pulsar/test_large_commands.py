from __future__ import annotations

from typing import Any

import pytest

from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.wire.pulsar.commands import REPEATED_MAX
from quire.wire.pulsar.errors import FrameError
from quire.wire.pulsar.large_commands import ID_BYTES_MAX, LARGE_BYTES, PIECE_BYTES, LargeCommand, large_command
from quire.wire.pulsar.splitter import COMMAND_BYTES_MAX, OTHERS_MAX, Other, Splitter
from tests.support.pulsar_frames import frame
from tests.support.refusals import refuses

C = pb.BaseCommand


def ack(count: int, **options: Any) -> pb.BaseCommand:
    ids = [pb.MessageIdData(ledgerId=5, entryId=number, partition=-1) for number in range(count)]
    return C(type=C.ACK, ack=pb.CommandAck(consumer_id=9, ack_type=pb.CommandAck.Individual, message_id=ids, **options))


def redelivery(count: int) -> pb.BaseCommand:
    body = pb.CommandRedeliverUnacknowledgedMessages(consumer_id=9, message_ids=ack(count).ack.message_id)
    return C(type=C.REDELIVER_UNACKNOWLEDGED_MESSAGES, redeliverUnacknowledgedMessages=body)


def read(command: pb.BaseCommand, ids_max: int = 100_000) -> tuple[LargeCommand, int]:
    large = large_command(command.SerializeToString())
    assert large is not None
    return large, sum(1 for _ in large.pieces(ids_max))


@pytest.mark.parametrize("count", [0, 1, 20_000])
def test_read_in_pieces_it_is_what_was_sent(count: int) -> None:
    large, steps = read(ack(count, request_id=77, txnid_most_bits=3))
    expected = pb.CommandAck(consumer_id=9, ack_type=pb.CommandAck.Individual, request_id=77, txnid_most_bits=3)
    assert large.part == expected
    assert [each.entryId for ids in large.ids for each in ids] == list(range(count))
    assert steps >= ack(count).ByteSize() // PIECE_BYTES - 1
    large, _ = read(redelivery(count))
    assert large.part == pb.CommandRedeliverUnacknowledgedMessages(consumer_id=9)
    assert [each.entryId for ids in large.ids for each in ids] == list(range(count))


def test_more_ids_than_are_allowed_are_not_kept() -> None:
    large, _ = read(ack(5000, request_id=1), 4999)
    assert large.refused == "more than 4999 message ids in one command"
    assert sum(map(len, large.ids)) < 5000
    assert large.part.consumer_id == 9


def test_an_id_with_a_long_ack_set_is_not_parsed() -> None:
    command = ack(3)
    command.ack.message_id[1].ack_set.extend([1] * ID_BYTES_MAX)
    large, _ = read(command)
    assert large.refused is not None
    assert f"longer than {ID_BYTES_MAX} bytes" in large.refused


@pytest.mark.parametrize("cut", [1, 5, 100])
def test_a_command_that_is_cut_is_no_command(cut: int) -> None:
    body = ack(10_000).ack.SerializeToString()[:-cut]
    raw = (
        C(type=C.ACK).SerializeToString()
        + b"\x52"
        + bytes((len(body) & 127 | 128, len(body) >> 7 & 127 | 128, len(body) >> 14))
        + body
    )
    large = large_command(raw)
    assert large is not None
    refuses(FrameError, lambda: list(large.pieces(100_000)))


def test_an_id_without_a_required_field_is_refused() -> None:
    command = ack(10)
    command.ack.message_id[4].ClearField("entryId")
    large = large_command(command.SerializePartialToString())
    assert large is not None
    refuses(FrameError, lambda: list(large.pieces(100)), "required field")


def split(command: pb.BaseCommand) -> list[object]:
    data = frame(command)
    return list(Splitter(6 << 20).split(memoryview(data), 0, len(data))[0])


def test_only_large_commands_are_kept_for_later() -> None:
    assert isinstance(split(ack(100))[0], Other)
    [kept] = split(ack(20_000))
    assert ack(20_000).ByteSize() > LARGE_BYTES
    assert isinstance(kept, LargeCommand)


def test_other_commands_have_bounds_of_bytes_and_of_elements() -> None:
    def producer(pairs: int, value: str) -> pb.BaseCommand:
        metadata = [pb.KeyValue(key="k", value=value)] * pairs
        return C(
            type=C.PRODUCER, producer=pb.CommandProducer(topic="t", producer_id=1, request_id=1, metadata=metadata)
        )

    assert isinstance(split(producer(REPEATED_MAX, "v"))[0], Other)
    with pytest.raises(FrameError, match=f"PRODUCER command with more than {REPEATED_MAX} elements"):
        split(producer(REPEATED_MAX + 1, "v"))
    refuses(FrameError, lambda: split(producer(1, "v" * COMMAND_BYTES_MAX)), f"above the limit of {COMMAND_BYTES_MAX}")


def test_a_chunk_of_many_commands_is_read_in_several_calls() -> None:
    data = memoryview(frame(C(type=C.PING, ping=pb.CommandPing())) * (OTHERS_MAX + 1))
    splitter = Splitter(1 << 20)
    items, taken = splitter.split(data, 0, len(data))
    assert len(items) == OTHERS_MAX
    items, rest = splitter.split(data, taken, len(data))
    assert len(items) == 1
    assert taken + rest == len(data)
