"""Messages as JSON lines, and the cutting of input into messages (pure).

A line that `consume`, `read` or `peek` writes is read by `produce` as the same message, byte for byte:

    {"value": "text", "key": "k", "properties": {"a": "b"}, "event_time": 1700000000000}
    {"value_base64": "/wA=", "key_base64": "/w=="}      bytes that are no text
    {"value": null}                                     a message without a value

`topic`, `id` and `publish_time` are written too, and ignored when read. Properties with one name twice are a list of
pairs. Any other field is refused, because a message would be sent without what a wrong name gives.
"""

from __future__ import annotations

import base64
import binascii
import difflib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from quire.cli.messages.access import FlagsError

Pairs = tuple[tuple[str, str], ...]
LINE_BYTES_MAX = 256 << 20
"""Maximum bytes of one message of the input."""
_READ = ("value", "value_base64", "key", "key_base64", "properties", "event_time")
_IGNORED = ("topic", "id", "publish_time")


@dataclass(frozen=True, slots=True)
class MessageRecord:
    """One message."""

    value: bytes | None
    key: bytes | None = None
    properties: Pairs = ()
    event_ms: int = 0
    """0: none."""
    topic: str = ""
    id: str = ""
    publish_ms: int = 0


def to_json(record: MessageRecord) -> str:
    """Return the line of a message, without a line end."""
    found: dict[str, Any] = {}
    if record.topic:
        found["topic"] = record.topic
    if record.id:
        found["id"] = record.id
    if record.publish_ms:
        found["publish_time"] = record.publish_ms
    if record.event_ms:
        found["event_time"] = record.event_ms
    if record.key is not None:
        _put(found, "key", record.key)
    if record.properties:
        names = {name for name, _ in record.properties}
        whole = len(names) == len(record.properties)
        found["properties"] = dict(record.properties) if whole else [list(pair) for pair in record.properties]
    if record.value is None:
        found["value"] = None
    else:
        _put(found, "value", record.value)
    return json.dumps(found, ensure_ascii=False, separators=(",", ":"))


def from_json(line: str | bytes, where: str) -> MessageRecord:
    """Return the message of a line. `where` names it in errors. Raises FlagsError."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise FlagsError(f"{where} is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise FlagsError(f'{where} is not a JSON object, such as {{"value": "text"}}')
    for name in found:
        if name not in _READ and name not in _IGNORED:
            near = difflib.get_close_matches(name, _READ, 1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; there are {', '.join(_READ)}"
            raise FlagsError(f"{where} has the field {name!r}{hint}")
    if "value" not in found and "value_base64" not in found:
        raise FlagsError(f'{where} has no value: write "value" or "value_base64", or "value": null for none')
    event_ms = found.get("event_time", 0)
    if not isinstance(event_ms, int) or isinstance(event_ms, bool) or not 0 <= event_ms < 1 << 63:
        raise FlagsError(f"{where}: event_time is {event_ms!r}; write milliseconds since 1970")
    return MessageRecord(
        value=_get(found, "value", where),
        key=_get(found, "key", where),
        properties=_pairs(found.get("properties"), where),
        event_ms=event_ms,
    )


def _put(found: dict[str, Any], name: str, data: bytes) -> None:
    try:
        found[name] = data.decode()
    except UnicodeDecodeError:
        found[f"{name}_base64"] = base64.b64encode(data).decode()


def _get(found: dict[str, Any], name: str, where: str) -> bytes | None:
    encoded, text = found.get(f"{name}_base64"), found.get(name)
    if encoded is not None and text is not None:
        raise FlagsError(f"{where} has {name} and {name}_base64; write one of both")
    if encoded is not None:
        try:
            return base64.b64decode(encoded, validate=True)
        except (binascii.Error, TypeError, ValueError) as error:
            raise FlagsError(f"{where}: {name}_base64 is not base64: {error}") from None
    if text is None:
        return None
    return _bytes(text, f"{where}: {name}") if isinstance(text, str) else json.dumps(text).encode()


def _bytes(text: str, where: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise FlagsError(f"{where} has half of a character (a lone surrogate); write base64") from None


def _pairs(found: object, where: str) -> Pairs:
    if found is None:
        return ()
    pairs = list(found.items()) if isinstance(found, dict) else found
    if not isinstance(pairs, list) or not all(
        isinstance(pair, list | tuple) and len(pair) == 2 and all(isinstance(each, str) for each in pair)
        for pair in pairs
    ):
        raise FlagsError(f"{where}: properties are {found!r}; write an object whose values are texts")
    for name, value in pairs:
        _bytes(name, f"{where}: the name of a property")
        _bytes(value, f"{where}: a property")
    return tuple((name, value) for name, value in pairs)


class InputCutter:
    """Input, received in pieces, cut at a separator. What stands behind the last separator is a piece too, unless it
    is empty."""

    def __init__(self, separator: bytes) -> None:
        assert separator
        self._separator = separator
        self._rest = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield what `data` completes. Raises FlagsError above LINE_BYTES_MAX."""
        searched = max(len(self._rest) - len(self._separator) + 1, 0)
        self._rest += data
        begin = 0
        while (end := self._rest.find(self._separator, max(begin, searched))) >= 0:
            yield bytes(self._rest[begin:end])
            begin = end + len(self._separator)
            searched = begin
        del self._rest[:begin]
        if len(self._rest) > LINE_BYTES_MAX:
            raise FlagsError(f"a message of the input has more than {LINE_BYTES_MAX >> 20} MiB")

    def end(self) -> Iterator[bytes]:
        """Yield the rest."""
        if self._rest:
            yield bytes(self._rest)
            self._rest.clear()


_ESCAPES = {"\\n": "\n", "\\r": "\r", "\\t": "\t", "\\0": "\0"}


def unescape(text: str) -> str:
    """Return a separator with the escapes \\n, \\r, \\t and \\0 replaced.

    >>> unescape("\\\\n"), unescape("--")
    ('\\n', '--')
    """
    for escape, character in _ESCAPES.items():
        text = text.replace(escape, character)
    return text
