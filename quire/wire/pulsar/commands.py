"""Parsing of commands by protobuf in one call, with checks that protobuf lacks: a part for the type, text in UTF-8.

Pure.
"""

from __future__ import annotations

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

from quire.wire.pulsar.errors import FrameError
from quire.wire.pulsar.PulsarApi_pb2 import BaseCommand, IntRange, KeyValue

REPEATED_MAX = 4096
"""Elements of a repeated field (properties, hash ranges) in any command that does not list message ids."""
_PART_OF = {
    kind.number: BaseCommand.DESCRIPTOR.fields_by_number[kind.number].name
    for kind in BaseCommand.Type.DESCRIPTOR.values
}
_ACK = int(BaseCommand.ACK)
_MANY_IDS = frozenset((BaseCommand.ACK, BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES))
_PAIR = KeyValue.DESCRIPTOR
_RANGE = IntRange.DESCRIPTOR
_MAY_LACK_PART = frozenset((BaseCommand.PING, BaseCommand.PONG))
_parse_base = BaseCommand.FromString
_WITHOUT_TEXT = frozenset(
    (
        BaseCommand.FLOW,
        BaseCommand.PING,
        BaseCommand.PONG,
        BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES,
        BaseCommand.SEEK,
        BaseCommand.UNSUBSCRIBE,
        BaseCommand.CONSUMER_STATS,
        BaseCommand.GET_LAST_MESSAGE_ID,
    )
)


def parse_command(raw: bytes, *, bounded: bool = False) -> BaseCommand:
    """Return a complete command: its type is known, its part exists, and all text is valid. FrameError otherwise.

    With `bounded` also FrameError if one of its fields is repeated more often than a server handles in one step.
    """
    try:
        command: BaseCommand = _parse_base(raw)
    except DecodeError as error:
        raise FrameError(f"a command that cannot be read: {error}") from None
    if not command.IsInitialized():
        raise FrameError("a command of unknown type, or with a required field missing")
    kind = command.type
    if bounded and len(raw) > 2 * REPEATED_MAX and kind not in _MANY_IDS and _has_too_many(command):
        name = BaseCommand.Type.Name(kind)
        raise FrameError(f"a {name} command with more than {REPEATED_MAX} elements in one field")
    if kind not in _MAY_LACK_PART and not command.HasField(_PART_OF[kind]):
        raise FrameError(f"a {BaseCommand.Type.Name(kind)} command without the part for its type")
    if not raw.isascii() and _has_text(command, kind, raw) and not _text_is_valid(command):
        raise FrameError(f"a {BaseCommand.Type.Name(kind)} command with text that is not UTF-8")
    return command


def _has_text(command: BaseCommand, kind: int, raw: bytes) -> bool:
    """Return whether a command contains text. An ACK may have thousands of ids, and has text only in its properties."""
    if kind == _ACK:
        return b"\x2a" in raw and len(command.ack.properties) > 0  # their tag
    return kind not in _WITHOUT_TEXT


def _has_too_many(message: Message) -> bool:
    """Return whether a field in `message` has more than REPEATED_MAX values, which would block the event loop."""
    for field, value in message.ListFields():
        if field.is_repeated and len(value) > REPEATED_MAX:
            return True
        parts = value if field.is_repeated else (value,)
        if field.type == FieldDescriptor.TYPE_MESSAGE and any(map(_has_too_many, parts)):
            return True
    return False


def _text_is_valid(message: Message) -> bool:
    """Return whether every text in `message` is UTF-8; protobuf returns bytes for text that is not."""
    for field, value in message.ListFields():
        values = value if field.is_repeated else (value,)
        if field.message_type is _PAIR:
            if not all(isinstance(pair.key, str) and isinstance(pair.value, str) for pair in values):
                return False
            continue
        if field.message_type is _RANGE:
            continue
        if field.type == FieldDescriptor.TYPE_STRING:
            if not all(isinstance(text, str) for text in values):
                return False
        elif field.type == FieldDescriptor.TYPE_MESSAGE and not all(_text_is_valid(part) for part in values):
            return False
    return True
