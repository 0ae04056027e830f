"""`quire salvage`: print the messages of ledgers from entry logs, also after their topic was deleted.

Exit codes: 0 everything in these ledgers was printed, 1 something was not (a line on standard error each), 2 the
command line or a folder cannot be used.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from quire.cli.messages.records import MessageRecord, to_json
from quire.cli.salvage.entry_logs import SalvagedEntries, SalvageReader, scan
from quire.client.deliveries import Deliveries
from quire.client.errors import ClientError
from quire.client.message_id import MessageId
from quire.client.unpacking import Messages, Opener

ENTRIES_AT_ONCE: Final = 100
LEDGERS_MAX: Final = 1_000_000
_ID: Final = re.compile("[0-9]{1,19}")


def ledgers_of(texts: Sequence[str]) -> set[int]:
    """Return the ledger ids of texts such as `7`, `3-5` and `7,9`. Raises ValueError.

    >>> sorted(ledgers_of(["3-5,9"]))
    [3, 4, 5, 9]
    """
    found: set[int] = set()
    for text in ",".join(texts).split(","):
        first, dash, last = text.strip().partition("-")
        if not _ID.fullmatch(first) or (dash and not _ID.fullmatch(last)):
            raise ValueError(f"--ledger {text!r}: a ledger id such as 7, or a range such as 3-5")
        begin, end = int(first), int(last or first)
        if begin > end:
            raise ValueError(f"--ledger {text!r}: a range begins with the lower number")
        if len(found) + end - begin + 1 > LEDGERS_MAX:
            raise ValueError(f"--ledger: more than {LEDGERS_MAX} ledgers")
        found.update(range(begin, end + 1))
    return found


def run(folders: Sequence[Path], ledgers: Sequence[str], *, topic: str = "", password_file: Path | None = None) -> int:
    """Run the command; return the exit code."""
    try:
        wanted = ledgers_of(ledgers) if ledgers else None
        password = b"" if password_file is None else password_file.read_bytes().rstrip(b"\n")
        found = scan(folders, wanted)
    except (OSError, ValueError) as error:
        print(f"quire salvage: {error}", file=sys.stderr)
        return 2
    trouble = list(found.torn)
    with SalvageReader(found, password) as reader:
        if wanted is None:
            for each in _overview(found, reader):
                print(json.dumps(each))
        else:
            for ledger_id in sorted(wanted):
                if ledger_id not in found.ledgers:
                    trouble.append(f"ledger {ledger_id} has no entries here")
                    continue
                for record in _messages(reader, ledger_id, trouble, topic):
                    print(to_json(record))
    for line in [*trouble, *(f"{path} was deleted in the meantime" for path in reader.gone)]:
        print(f"quire salvage: {line}", file=sys.stderr)
    return 1 if trouble or reader.gone else 0


def _overview(found: SalvagedEntries, reader: SalvageReader) -> Iterator[dict[str, object]]:
    """Yield a line about each ledger: its entries, and the time and producer of its first message."""
    for ledger_id, entries in sorted(found.ledgers.items()):
        first = next(iter(reader.entries(ledger_id)))
        trouble: list[str] = []
        messages = next(_opened(ledger_id, [first], trouble), None) if first[1] is not None else None
        is_topic = messages is not None and len(messages) > 0
        yield {
            "ledger": ledger_id,
            "entries": len(entries),
            "bytes": sum(places[0].size for places in entries.values()),
            "messages": is_topic,
            "first_publish_time": messages.publish_ms[0] if is_topic and messages is not None else None,
        }


def _messages(reader: SalvageReader, ledger_id: int, trouble: list[str], topic: str) -> Iterator[MessageRecord]:
    """Yield the messages of a ledger in order; append what is missing to `trouble`."""
    expected = 0
    batch: list[tuple[int, bytes | None]] = []
    opener = Opener()
    for entry_id, entry in reader.entries(ledger_id):
        if entry_id > expected:
            trouble.append(f"entries {expected} to {entry_id - 1} of ledger {ledger_id} are not here")
        expected = entry_id + 1
        if entry is None:
            trouble.append(f"entry {ledger_id}:{entry_id} is damaged")
            continue
        batch.append((entry_id, entry))
        if len(batch) == ENTRIES_AT_ONCE:
            yield from _records(ledger_id, batch, trouble, topic, opener)
            batch = []
    yield from _records(ledger_id, batch, trouble, topic, opener)


def _records(
    ledger_id: int, batch: Sequence[tuple[int, bytes | None]], trouble: list[str], topic: str, opener: Opener
) -> Iterator[MessageRecord]:
    for messages in _opened(ledger_id, batch, trouble, opener):
        for row in range(len(messages)):
            place = MessageId(ledger_id, messages.entry_ids[row], batch_index=messages.batch_indexes[row])
            yield MessageRecord(
                value=messages.values[row],
                key=messages.keys[row],
                properties=tuple(messages.properties[row]),
                event_ms=messages.event_ms[row],
                topic=topic,
                id=str(place),
                publish_ms=messages.publish_ms[row],
            )


def _opened(
    ledger_id: int, batch: Sequence[tuple[int, bytes | None]], trouble: list[str], opener: Opener | None = None
) -> Iterator[Messages]:
    """Yield the messages of each entry; append entries that cannot be read to `trouble`."""
    opener = opener or Opener()
    for entry_id, entry in batch:
        if entry is None:
            continue
        messages = Messages()
        deliveries = Deliveries([ledger_id], [entry_id], [entry])
        try:
            gaps = opener.open(deliveries, messages)
            for lost in opener.complete(gaps, messages) if gaps else ():
                trouble.append(f"the chunked message {lost.ledger_id}:{lost.entry_id} lacks its first pieces")
        except ClientError as error:
            trouble.append(f"entry {ledger_id}:{entry_id} is no message: {error}")
            continue
        yield messages
