"""Frames as protobuf and the reference describe them, built the slow way: what the fast code is compared with."""

from __future__ import annotations

import struct
from typing import Any

from crc32c import crc32c

from quire.wire.pulsar import PulsarApi_pb2 as pb


def frame(command: bytes, rest: bytes = b"") -> bytes:
    return struct.pack("!II", 4 + len(command) + len(rest), len(command)) + command + rest


def metadata(**fields: Any) -> bytes:
    defaults: dict[str, Any] = {"producer_name": "p", "sequence_id": 0, "publish_time": 1_700_000_000_000}
    return bytes(pb.MessageMetadata(**{**defaults, **fields}).SerializeToString())


def entry(payload: bytes = b"hello", **fields: Any) -> bytes:
    meta = metadata(**fields)
    body = struct.pack("!I", len(meta)) + meta + payload
    return struct.pack("!HI", 0x0E01, crc32c(body)) + body


def command(kind: str, field: str, **fields: Any) -> bytes:
    base = pb.BaseCommand(type=kind)
    part = getattr(base, field)
    part.SetInParent()
    for name, value in fields.items():
        if isinstance(value, list):
            getattr(part, name).extend(value)
        elif isinstance(value, pb.MessageIdData):
            getattr(part, name).CopyFrom(value)
        else:
            setattr(part, name, value)
    return bytes(base.SerializeToString())


def send(sequence_id: int, producer_id: int = 0, stored: bytes | None = None, **fields: Any) -> bytes:
    body = entry(sequence_id=sequence_id) if stored is None else stored
    return frame(command("SEND", "send", producer_id=producer_id, sequence_id=sequence_id, **fields), body)
