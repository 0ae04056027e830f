"""Restoration of one topic or partition: its entries, then its subscriptions, under the mark of the backup."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any, Final
from urllib.parse import quote

from quire.cli.admin.connection import RequestSender
from quire.cli.admin.errors import AdminCommandError
from quire.cli.admin.verbs import ABSENT, OCTETS_TYPE, Request
from quire.cli.backup.file import ENTRY, SUBSCRIPTION, BackupReader, BackupRecord
from quire.cli.backup.topic_backup import PLACED, Progress, position, topic_path
from quire.wire.pulsar.names import TopicName

BODY_BYTES: Final = 1 << 20
"""Bytes of entries in one request, unless a single entry is larger."""
ENTRIES_MAX: Final = 1000
"""Entries in one request: as many as a broker takes at once."""
ACKS_MAX: Final = 5000
"""Ranges or batches in one request."""
TRIES_MAX: Final = 10
PAUSE_S: Final = 0.5
_SIZE: Final = Struct("!I")


class EntryNumbers:
    """Numbers of the entries of a file, from 0, by their places in the topic that was backed up (pure)."""

    def __init__(self) -> None:
        self._starts: list[tuple[int, int]] = []
        """First place of each run of entries."""
        self._before: list[int] = []
        """Entries before each run."""
        self.count = 0
        self._next = (-1, -1)

    def add(self, ledger_id: int, entry_id: int) -> None:
        """Add the next entry."""
        if (ledger_id, entry_id) != self._next:
            self._starts.append((ledger_id, entry_id))
            self._before.append(self.count)
        self.count += 1
        self._next = (ledger_id, entry_id + 1)

    def through(self, place: tuple[int, int]) -> int:
        """Return how many entries are at a place or before it.

        >>> numbers = EntryNumbers()
        >>> for each in ((3, 0), (3, 1), (5, 0)):
        ...     numbers.add(*each)
        >>> [numbers.through(place) for place in ((2, 9), (3, -1), (3, 0), (3, 9), (4, 4), (5, 0))]
        [0, 0, 1, 2, 2, 3]
        """
        at = bisect_right(self._starts, place) - 1
        if at < 0:
            return 0
        end = self._before[at + 1] if at + 1 < len(self._before) else self.count
        start = self._starts[at]
        if start[0] != place[0]:
            return end
        return min(self._before[at] + place[1] - start[1] + 1, end)


def patiently(sender: RequestSender, request: Request, sleep: Callable[[float], None]) -> Any:
    """Send a request that may be repeated, again after errors that pass. Raises AdminCommandError."""
    for _ in range(TRIES_MAX - 1):
        try:
            return sender.send(request)
        except AdminCommandError as error:
            if not error.passing:
                raise
        sleep(PAUSE_S)
    return sender.send(request)


class PartRestore:
    """One topic or partition. Call `begin`, `take` with the records that follow its own, `finish`, `check`,
    and `open`."""

    def __init__(
        self,
        sender: RequestSender,
        name: TopicName,
        facts: dict[str, Any],
        mark: dict[str, str],
        progress: Progress,
        sleep: Callable[[float], None],
        *,
        done: bool,
        expire: bool = False,
    ) -> None:
        """`facts`: its record in the file; `done`: it is whole, by a run before; `expire`: open it even if its messages
        are so old that they expire."""
        self._sender = sender
        self._name = name
        self._path = topic_path(name)
        self._facts = facts
        self._mark = mark
        self._progress = progress
        self._sleep = sleep
        self._done = done
        self._end = {"expire": True} if expire else {}
        self.numbers = EntryNumbers()
        self._subscriptions: list[int] = []
        """Bytes of the file at which their records begin."""
        self._stored = 0
        self._last = b""
        """Last entry that a run before has stored."""
        self._block: list[bytes] = []
        self._bytes = 0

    def begin(self) -> None:
        """Create it, or find what a run before has stored."""
        if self._done:
            return
        self._stored = self._begin()
        if self._stored:
            ledger_id, entry_id = position(self._send("GET", "quireBackup")["last"])
            found = self._send("GET", f"quireEntries?ledger={ledger_id}&entry={entry_id}")
            size = PLACED.unpack_from(found)[2]
            self._last = found[PLACED.size : PLACED.size + size]

    def take(self, record: BackupRecord) -> None:
        """Take a record of the file."""
        if record.kind == SUBSCRIPTION:
            self._subscriptions.append(record.offset)
        if record.kind != ENTRY:
            return
        ledger_id, entry_id, entry = record.entry
        self.numbers.add(ledger_id, entry_id)
        if self._done or self.numbers.count < self._stored:
            return
        if self.numbers.count == self._stored:
            if entry != self._last:
                raise AdminCommandError(
                    f"entry {self._stored} of {self._name.full} differs from the file: delete the topic, then run this "
                    "again"
                )
            return
        if self._bytes + len(entry) > BODY_BYTES or len(self._block) == ENTRIES_MAX:
            self._flush()
        self._block.append(entry)
        self._bytes += len(entry) + _SIZE.size

    def finish(self, file: BackupReader) -> None:
        """Store the last entries, and set the subscriptions."""
        if self._done:
            return
        self._flush()
        count = self.numbers.count
        if self._stored != count:
            raise AdminCommandError(f"{self._name.full} has {self._stored} entries, not {count}: delete the topic")
        known = ""
        for offset in self._subscriptions:
            facts = file.at(offset).json
            self._subscription(facts, again=facts["name"] == known)
            known = facts["name"]
        if self._facts["terminated"]:
            self._send("POST", "terminate", {})

    def touch(self) -> None:
        """Make a request, so that a partition does not count as given up while others are restored."""
        if not self._done:
            self._begin()

    def check(self) -> None:
        """Check that it may be opened. Raises AdminCommandError; nothing was changed then."""
        if not self._done:
            self._send("POST", "quireBackup", {"entries": self.numbers.count, "check": True, **self._end})

    def open(self) -> None:
        """Remove the mark: clients may come."""
        if not self._done:
            self._send("POST", "quireBackup", {"entries": self.numbers.count, **self._end})

    def _begin(self) -> int:
        found: int = self._send("PUT", "quireBackup", {**self._mark, "properties": self._facts["properties"]})[
            "entries"
        ]
        return found

    def _flush(self) -> None:
        """Append the entries that wait. After an error that passes, what was stored in spite of it is left out."""
        block, self._block, self._bytes = self._block, [], 0
        tries = 0
        while block:
            body = b"".join(part for entry in block for part in (_SIZE.pack(len(entry)), entry))
            request = Request("POST", f"{self._path}/quireEntries?expected={self._stored}", body, OCTETS_TYPE)
            try:
                stored = self._sender.send(request)["entries"]
            except AdminCommandError as error:
                tries += 1
                if not error.passing or tries == TRIES_MAX:
                    raise
                self._sleep(PAUSE_S)
                stored = self._begin()
            if not self._stored <= stored <= self._stored + len(block):
                raise AdminCommandError(f"{self._name.full} has {stored} entries: is another restore under way?")
            block = block[stored - self._stored :]
            self._stored = stored
            self._progress(stored, self._facts["entries"])

    def _subscription(self, facts: dict[str, Any], *, again: bool) -> None:
        """Set a subscription, or add more of its acknowledgements (`again`)."""
        path = f"subscription/{quote(facts['name'], safe='')}/quireState"
        through = self.numbers.through
        if not again:
            place = {
                "acknowledged": through(position(facts["markDelete"])),
                "properties": facts["properties"],
                "numbers": facts["numbers"],
            }
            self._send("PUT", path, place)
        ranges = [
            [first, end - 1]
            for ledger_id, low, high in facts["ranges"]
            if (first := through((ledger_id, low - 1))) < (end := through((ledger_id, high)))
        ]
        batches = [
            [number - 1, words]
            for ledger_id, entry_id, words in facts["batches"]
            if (number := through((ledger_id, entry_id))) > through((ledger_id, entry_id - 1))
        ]
        for field, values in (("ranges", ranges), ("batches", batches)):
            for at in range(0, len(values), ACKS_MAX):
                some: Sequence[object] = values[at : at + ACKS_MAX]
                self._send("POST", path, {field: some})

    def _send(self, method: str, resource: str, body: object = ABSENT) -> Any:
        return patiently(self._sender, Request(method, f"{self._path}/{resource}", body), self._sleep)
