"""Job that writes the closed ledgers of one topic to Parquet files, each once, and can be killed at any moment.

Steps of each ledger, in this order; each is durable before the next one begins:

    prepared     the ledger list has the uid of the file to be
    written      the temporary file is whole; it was read again, and every entry compared with its checksum
    published    the file has its name
    completed    the ledger list says that this file is whole

What a killed job leaves is found by the next one: a published file is made durable and completed, everything else is
written again under a new uid. Files are removed only if the ledger list says that another file of the ledger is
complete, and temporary ones also if the ledger is gone. Two jobs at once do no harm: a step for a uid that the list has
no more is refused. Entries come from the owner of the topic; the open ledger is not touched.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from struct import Struct
from typing import Any, Final, Protocol

from quire.offload import folder
from quire.offload.errors import OffloadedLedgerError
from quire.offload.folder import Listed
from quire.offload.parquet import LedgerFile, OffloadedLedger, write_ledger
from quire.spark.errors import SourceUnavailableError

DRIVER: Final = "quire-parquet"
"""Name of this kind of storage in the ledger list."""
_PLACED: Final = Struct("!qqI")

Observe = Callable[[str, int], None]
"""Called with a step and the ledger: "prepared", "half", "written", "published", "completed", "listed". Tests kill
there."""


def unobserved(point: str, ledger_id: int) -> None:
    """Default observer: does nothing."""


class TopicOwner(Protocol):
    """Requests to the owner of a topic; see `quire.spark.admin.Admin`."""

    def entries(self, topic: str, ledger_id: int, entry_id: int) -> bytes: ...

    def offloading(self, topic: str) -> list[dict[str, Any]]: ...

    def prepare_offload(self, topic: str, ledger_id: int, uid: str, *, instead: str, driver: str) -> bool: ...

    def complete_offload(self, topic: str, ledger_id: int, uid: str) -> bool: ...

    def release_offload(self, topic: str, ledger_id: int, uid: str) -> bool: ...


class _LedgerGoneError(Exception):
    """The ledger was trimmed while it was copied."""


@dataclass(frozen=True, slots=True)
class Ledger:
    """A closed ledger, as its owner reports it."""

    ledger_id: int
    entries: int
    closed_ms: int
    uid: str
    complete: bool
    driver: str

    @classmethod
    def parse(cls, value: dict[str, Any]) -> Ledger:
        return cls(
            int(value["ledgerId"]),
            int(value["entries"]),
            int(value["closedMs"]),
            str(value["uid"]),
            bool(value["complete"]),
            str(value["driver"]),
        )

    @property
    def is_ours(self) -> bool:
        return self.driver == DRIVER


@dataclass(slots=True)
class OffloadTotals:
    """Totals of a run."""

    ledgers: int = 0
    """Ledgers that were completed."""
    entries: int = 0
    file_bytes: int = 0
    known: int = 0
    """Ledgers that were complete before."""
    removed: int = 0
    """Files removed."""
    problems: list[str] = field(default_factory=list)

    def add(self, other: OffloadTotals) -> None:
        self.ledgers += other.ledgers
        self.entries += other.entries
        self.file_bytes += other.file_bytes
        self.known += other.known
        self.removed += other.removed
        self.problems += other.problems


class TopicOffload:
    """Offloading of one topic or partition. Blocking."""

    def __init__(
        self,
        owner: TopicOwner,
        topic: str,
        out: Path,
        *,
        min_age_s: float = 0,
        remove_trimmed: bool = False,
        observe: Observe = unobserved,
        show: Callable[[str], None] = lambda text: None,
        is_stopped: Callable[[], bool] = bool,
    ) -> None:
        """`min_age_s`: seconds since a ledger was closed; `remove_trimmed`: remove the files of ledgers that the topic
        has no more; `is_stopped`: asked between ledgers."""
        self._owner = owner
        self._topic = topic
        self._folder = folder.topic_folder(out, topic)
        self._min_age_s = min_age_s
        self._remove_trimmed = remove_trimmed
        self._observe = observe
        self._show = show
        self._is_stopped = is_stopped
        self.totals = OffloadTotals()

    def run(self) -> OffloadTotals:
        """Offload what is due. Raises SparkSourceError, OffloadError, OSError."""
        ledgers = self._ledgers()  # before a folder is made: there may be no such topic
        with folder.locked(self._folder):
            for ledger in ledgers:
                if self._is_stopped():
                    break
                self._offload(ledger)
            self._tidy()
        return self.totals

    def release(self) -> OffloadTotals:
        """Make all ledgers count as not offloaded, and remove their files."""
        ledgers = self._ledgers()
        with folder.locked(self._folder):
            for ledger in ledgers:
                if not ledger.uid or not ledger.is_ours:
                    continue
                if self._owner.release_offload(self._topic, ledger.ledger_id, ledger.uid):
                    self._observe("released", ledger.ledger_id)
                    folder.remove(folder.ledger_path(self._folder, ledger.ledger_id, ledger.uid))
                    self.totals.removed += 1
                else:
                    self._problem(ledger, "was not released: its state has changed, or its bookies have no copy")
            self._tidy()
        return self.totals

    def _ledgers(self) -> list[Ledger]:
        return [Ledger.parse(each) for each in self._owner.offloading(self._topic)]

    def _offload(self, ledger: Ledger) -> None:
        if ledger.uid and not ledger.is_ours:
            self._problem(ledger, f"is offloaded by {ledger.driver or 'an unnamed driver'}: left as it is")
        elif ledger.complete:
            self.totals.known += 1
        elif ledger.uid and self._is_whole(ledger):
            folder.sync(self._folder)  # the job that gave the file its name may have been killed before that
            self._complete(ledger, ledger.uid)
        elif time.time() - ledger.closed_ms / 1000 >= self._min_age_s:
            self._write(ledger)

    def _is_whole(self, ledger: Ledger) -> bool:
        """Return whether the prepared file was published, and has every entry."""
        path = folder.ledger_path(self._folder, ledger.ledger_id, ledger.uid)
        if not path.exists():
            return False
        try:
            self._check(path, ledger, ledger.uid)
        except OffloadedLedgerError as error:
            self._show(f"{error}: written again")
            return False
        return True

    def _check(self, path: Path, ledger: Ledger, uid: str) -> int:
        """Read a file; return its number of rows. Raises OffloadedLedgerError: it is not the whole ledger."""
        found = OffloadedLedger.of(path, self._topic, ledger.ledger_id, entries=ledger.entries, uid=uid)
        try:
            found.check()
            return found.rows
        finally:
            found.close()

    def _file(self, ledger: Ledger, uid: str) -> LedgerFile:
        return LedgerFile(topic=self._topic, ledger_id=ledger.ledger_id, entries=ledger.entries, uid=uid)

    def _write(self, ledger: Ledger) -> None:
        uid = str(uuid.uuid4())
        if not self._owner.prepare_offload(self._topic, ledger.ledger_id, uid, instead=ledger.uid, driver=DRIVER):
            self._show(f"ledger {ledger.ledger_id} of {self._topic}: another job has it, or it was trimmed")
            return
        self._observe("prepared", ledger.ledger_id)
        path = folder.ledger_path(self._folder, ledger.ledger_id, uid)
        try:
            with folder.create(path) as target:
                write_ledger(target, self._file(ledger, uid), self._runs(ledger))
            self._check(folder.temporary(path), ledger, uid)
        except _LedgerGoneError:
            folder.remove(folder.temporary(path))
            self._show(f"ledger {ledger.ledger_id} of {self._topic} was trimmed while it was copied")
            return
        except Exception:
            folder.temporary(path).unlink(missing_ok=True)
            raise
        self._observe("written", ledger.ledger_id)
        try:
            folder.publish(path)
        except FileNotFoundError:
            # Another job has completed the ledger in the meantime and removed what cannot count any more.
            self._show(f"ledger {ledger.ledger_id} of {self._topic}: another job has it")
            return
        self._observe("published", ledger.ledger_id)
        self._complete(ledger, uid)

    def _complete(self, ledger: Ledger, uid: str) -> None:
        path = folder.ledger_path(self._folder, ledger.ledger_id, uid)
        if not self._owner.complete_offload(self._topic, ledger.ledger_id, uid):
            # A refusal may answer a request that was repeated after a lost answer, so the list decides.
            now = next((each for each in self._ledgers() if each.ledger_id == ledger.ledger_id), None)
            if now is None or now.uid != uid:
                folder.remove(path)  # no uid comes back
                self._show(f"ledger {ledger.ledger_id} of {self._topic}: another job has it, or it was trimmed")
                return
            if not now.complete:
                raise SourceUnavailableError(f"ledger {ledger.ledger_id} of {self._topic} was not completed: run again")
        self._observe("completed", ledger.ledger_id)
        size = path.stat().st_size
        self.totals.ledgers += 1
        self.totals.entries += ledger.entries
        self.totals.file_bytes += size
        self._show(f"{self._topic}: ledger {ledger.ledger_id}, {ledger.entries} entries, {size} bytes")

    def _runs(self, ledger: Ledger) -> Iterator[Sequence[bytes]]:
        """Yield the entries of a ledger, in order. Raises _LedgerGoneError, OffloadedLedgerError."""
        due = 0
        while due < ledger.entries:
            run = self._entries(ledger, due)
            if not run:
                if all(each.ledger_id != ledger.ledger_id for each in self._ledgers()):
                    raise _LedgerGoneError
                raise OffloadedLedgerError(
                    f"entry {ledger.ledger_id}:{due} of {self._topic} did not come, and the ledger has {ledger.entries}"
                )
            if due == 0:
                self._observe("half", ledger.ledger_id)
            due += len(run)
            yield run

    def _entries(self, ledger: Ledger, first: int) -> list[bytes]:
        """Return entries of one ledger from `first` on; none if the next one is another."""
        data = memoryview(self._owner.entries(self._topic, ledger.ledger_id, first))
        found: list[bytes] = []
        at = 0
        while at < len(data):
            ledger_id, entry_id, size = _PLACED.unpack_from(data, at)
            if (ledger_id, entry_id) != (ledger.ledger_id, first + len(found)) or entry_id >= ledger.entries:
                break
            at += _PLACED.size
            found.append(bytes(data[at : at + size]))
            at += size
        return found

    def _tidy(self) -> None:
        """Write the manifest, and remove files that cannot count any more."""
        present = folder.files(self._folder)
        ledgers = {each.ledger_id: each for each in self._ledgers()}
        known = {(each.ledger, each.uid): each for each in folder.read_manifest(self._folder)}
        listed: list[Listed] = []
        for ledger in ledgers.values():
            if not ledger.complete or not ledger.is_ours:
                continue
            path = folder.ledger_path(self._folder, ledger.ledger_id, ledger.uid)
            if not path.exists():
                self._problem(ledger, f"is complete, but {path} is missing: restore it, or give --release")
                continue
            listed.append(known.get((ledger.ledger_id, ledger.uid)) or self._listed(ledger, path))
        gone = [each for each in known.values() if each.ledger not in ledgers and not self._remove_trimmed]
        listed += [each for each in gone if (self._folder / each.path).exists()]
        folder.write_manifest(self._folder, self._topic, sorted(listed, key=lambda each: each.ledger))
        self._observe("listed", -1)
        for file in present:
            ledger_of = ledgers.get(file.ledger_id)
            if ledger_of is None:
                useless = file.temporary or self._remove_trimmed
            else:
                useless = ledger_of.complete and (file.temporary or file.uid != ledger_of.uid)
            if useless:
                folder.remove(file.path)
                self.totals.removed += 1

    def _listed(self, ledger: Ledger, path: Path) -> Listed:
        found = OffloadedLedger(path)
        try:
            return Listed(
                path=path.name,
                ledger=ledger.ledger_id,
                uid=ledger.uid,
                entries=ledger.entries,
                rows=found.rows,
                bytes=path.stat().st_size,
                closed_ms=ledger.closed_ms,
            )
        finally:
            found.close()

    def _problem(self, ledger: Ledger, text: str) -> None:
        self.totals.problems.append(f"ledger {ledger.ledger_id} of {self._topic} {text}")
