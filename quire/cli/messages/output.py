"""Messages on standard output: in the form of pulsar-client, as they are, or as JSON lines."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from quire.cli.messages.access import FlagsError
from quire.cli.messages.flags import flag
from quire.cli.messages.records import MessageRecord, to_json, unescape

BOUNDARY = "----- got message -----"
FORMATS = ("text", "raw", "json")


@dataclass(frozen=True, kw_only=True)
class OutputFlags:
    """Flags about what is written."""

    format: str = flag("text", "--format", help="text (as pulsar-client), raw (values alone) or json (for produce).")
    separator: str = flag("\\n", "--separator", help="Text behind each value of --format raw; may be empty.")
    hex: bool = flag(False, "--hex", help="Write values of --format text in hexadecimal digits.")
    hide_content: bool = flag(False, "--hide-content", help="Write no messages, but a line for each 1000.")


class MessageOutput:
    """Writer of messages to standard output. Each run of messages is flushed."""

    def __init__(self, flags: OutputFlags) -> None:
        """Raises FlagsError."""
        if flags.format not in FORMATS:
            raise FlagsError(f"--format {flags.format} is none of {', '.join(FORMATS)}")
        if flags.hex and flags.format != "text":
            raise FlagsError(f"--hex is for --format text, and the format is {flags.format}")
        self._flags = flags
        self._separator = unescape(flags.separator).encode()
        self._file = sys.stdout.buffer
        self.count = 0

    def write(self, records: Sequence[MessageRecord]) -> None:
        """Write messages. Raises BrokenPipeError if the reader has gone."""
        for record in records:
            self.count += 1
            if not self._flags.hide_content:
                self._file.write(self._shown(record))
            elif self.count % 1000 == 0:
                self._file.write(b"Received %d messages\n" % self.count)
        self._file.flush()

    def _shown(self, record: MessageRecord) -> bytes:
        if self._flags.format == "raw":
            return (record.value or b"") + self._separator
        if self._flags.format == "json":
            return to_json(record).encode() + b"\n"
        value = b"null" if record.value is None else record.value
        shown = _hex(value) if self._flags.hex and record.value is not None else value
        key = "null" if record.key is None else record.key.decode(errors="replace")
        pairs = ", ".join(f"{name}={text}" for name, text in record.properties)
        head = f"{BOUNDARY}\npublishTime:[{record.publish_ms}], eventTime:[{record.event_ms}], key:[{key}], "
        return f"{head}properties:[{pairs}], content:".encode() + shown + b"\n"


def _hex(value: bytes) -> bytes:
    """Return the lines of a dump: offset, 16 bytes, and the characters among them."""
    lines = [""]
    for at in range(0, len(value), 16):
        part = value[at : at + 16]
        shown = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        lines.append(f"{at:08X} {part.hex(' ').upper():<47} {shown}")
    return "\n".join(lines).encode()
