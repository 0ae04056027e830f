"""Progress of auto recovery, as its marks and locks show it: the pure tracker, and the looks that feed it.

    <root>/underreplication/ledgers/hhhh/hhhh/hhhh/hhhh/urL<id>     a ledger that lacks copies (a mark)
    <root>/underreplication/locks/urL<id>                           a worker repairs it now
    <root>/underreplication/disable, auditorelection/V_<n>          the switch, and the auditor

The tracker compares the marks of two looks: a mark that is gone was repaired (or its ledger deleted), a new one was
found missing in the meantime. So the rate counts repairs, however many marks are added. Time left is an estimate: the
marks by the rate of the last WINDOW_S.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import trio

from broker.console.cluster_ledgers import LedgerTable
from broker.console.cluster_loss import Harm, worst_harm
from quire.ledger.errors import NoSuchLedgerError
from quire.metadata import marks as form
from quire.metadata import paths
from quire.metadata.errors import MalformedMetadataError, NoNodeError, UnsupportedLayoutError
from quire.metadata.ledger_metadata import LedgerMetadata
from quire.metadata.store import MetadataStore

MARKS_MAX: Final = 20_000
"""Marks that one look counts; more are said to be more."""
EXAMINED_MAX: Final = 100
"""Marks whose ledgers one look examines for how urgent they are."""
SHOWN_MAX: Final = 50
LOCKS_SHOWN: Final = 50
WINDOW_S: Final = 120.0
GAP_S: Final = 30.0
"""Seconds between two looks after which nothing is compared: no page was open in between."""
KEPT_LOOK_S: Final = 1.0
"""Seconds for which a look is used again."""
LOOK_S: Final = 20.0


@dataclass(slots=True)
class RepairTracker:
    """Rate of repairs from successive looks."""

    _looks: deque[tuple[float, int, int]] = field(default_factory=deque)
    """Time, marks gone and marks new since the look before."""
    _marks: frozenset[int] | None = None
    _at: float = 0.0
    done: int = 0
    """Marks gone since the first look of an unbroken series."""

    def look(self, now: float, marks: frozenset[int]) -> None:
        """Take the marks of a look, all of them."""
        if self._marks is None or now - self._at > GAP_S:
            self._looks.clear()
            self.done = 0
            self._looks.append((now, 0, 0))
        else:
            gone = len(self._marks - marks)
            self.done += gone
            self._looks.append((now, gone, len(marks - self._marks)))
        while len(self._looks) > 2 and self._looks[1][0] < now - WINDOW_S:
            self._looks.popleft()
        self._marks, self._at = marks, now

    def reset(self) -> None:
        """Forget the looks: the last one was not complete, so that it cannot be compared."""
        self._looks.clear()
        self._marks = None

    @property
    def seconds(self) -> float:
        """Return the time that the rates are about."""
        return self._looks[-1][0] - self._looks[0][0] if self._looks else 0.0

    @property
    def per_second(self) -> float | None:
        """Return the repairs per second; None: it is not known yet."""
        return sum(gone for _, gone, _ in list(self._looks)[1:]) / self.seconds if self.seconds else None

    @property
    def added_per_second(self) -> float | None:
        """Return the new marks per second; None: it is not known yet."""
        return sum(new for _, _, new in list(self._looks)[1:]) / self.seconds if self.seconds else None

    def seconds_left(self) -> float | None:
        """Return an estimate of the time until all marks of the last look are gone; None: it cannot be estimated."""
        if not self._marks:
            return 0.0 if self._marks is not None else None
        rate = self.per_second
        return len(self._marks) / rate if rate else None


class MetadataReader(Protocol):
    """Part of the ledger client used here."""

    async def read_metadata(self, ledger_id: int) -> LedgerMetadata: ...


@dataclass(slots=True)
class RepairLook:
    """Findings of one look."""

    enabled: bool = True
    prepared: bool = False
    """False: auto recovery never ran on this cluster."""
    auditor: str | None = None
    candidates: int = 0
    ids: list[int] = field(default_factory=list)
    complete: bool = True
    locks: list[tuple[int, str]] = field(default_factory=list)
    """Ledger and worker of some of the locks."""
    locks_total: int = 0
    examined: int = 0
    urgent: list[dict[str, Any]] = field(default_factory=list)
    delay_s: int | None = None
    """Grace of a single lost bookie; None: it is not set."""


class Repairs:
    """Looks at the marks of one cluster. Raises MetadataError, trio.TooSlowError."""

    def __init__(self, store: MetadataStore, reader: MetadataReader, root: str) -> None:
        self._store = store
        self._reader = reader
        self._base = paths.join(root, "underreplication")
        self._tracker = RepairTracker()
        self._last: RepairLook | None = None
        self._at = float("-inf")
        self._looking = trio.Lock()

    async def look(self, live: frozenset[str]) -> dict[str, Any]:
        """Look, unless that was done a moment ago; return the answer as JSON. `live`: the registered bookies."""
        async with self._looking:
            if trio.current_time() - self._at > KEPT_LOOK_S or self._last is None:
                with trio.fail_after(LOOK_S):
                    found = await self._look(live)
                self._at, self._last = trio.current_time(), found
                if found.complete:
                    self._tracker.look(self._at, frozenset(found.ids))
                else:
                    self._tracker.reset()
            return self._as_json(self._last)

    def marked(self) -> frozenset[int]:
        """Return the marked ledgers of the last look."""
        return frozenset(self._last.ids) if self._last is not None else frozenset()

    async def _look(self, live: frozenset[str]) -> RepairLook:
        look = RepairLook()
        look.prepared = await self._store.get(paths.join(self._base, "LAYOUT")) is not None
        look.enabled = await self._store.get(paths.join(self._base, "disable")) is None
        delay = await self._store.get(paths.join(self._base, "lostBookieRecoveryDelay"))
        try:
            look.delay_s = None if delay is None else form.decode_delay(delay.value)
        except MalformedMetadataError:
            look.delay_s = None
        await self._look_at_votes(look)
        await self._look_at_marks(look)
        await self._look_at_locks(look)
        await self._look_at_ledgers(look, live)
        return look

    async def _look_at_votes(self, look: RepairLook) -> None:
        folder = paths.join(self._base, "auditorelection")
        votes = [name for name in await self._children(folder) if form.vote_number(name) is not None]
        look.candidates = len(votes)
        for name in sorted(votes, key=lambda each: form.vote_number(each) or 0)[:1]:
            look.auditor = await self._owner(paths.join(folder, name))

    async def _look_at_marks(self, look: RepairLook) -> None:
        ahead: list[tuple[str, ...]] = [()]
        top = paths.join(self._base, "ledgers")
        while ahead:
            names = ahead.pop()
            children = await self._children("/".join((top, *names)))
            if len(names) < form.LEVELS - 1:
                ahead += [(*names, name) for name in children[::-1]]
                continue
            for name in children:
                ledger_id = form.parse_folders((*names, name))
                if ledger_id is None:
                    continue
                if len(look.ids) == MARKS_MAX:
                    look.complete = False
                    return
                look.ids.append(ledger_id)

    async def _look_at_locks(self, look: RepairLook) -> None:
        folder = paths.join(self._base, "locks")
        names = await self._children(folder)
        look.locks_total = len(names)
        for name in names[:LOCKS_SHOWN]:
            ledger_id = form.parse_node_name(name)
            owner = await self._owner(paths.join(folder, name))
            if ledger_id is not None and owner is not None:
                look.locks.append((ledger_id, owner))

    async def _look_at_ledgers(self, look: RepairLook, live: frozenset[str]) -> None:
        """Examine marked ledgers for what is left of them: the fewest copies come first."""
        table = LedgerTable()
        missing: dict[int, tuple[str, ...]] = {}
        for ledger_id in look.ids[:EXAMINED_MAX]:
            node = await self._store.get("/".join((self._base, "ledgers", *_places(ledger_id))))
            if node is None:
                continue
            try:
                missing[ledger_id] = form.decode_mark(ledger_id, node.value).replicas
                table.add(ledger_id, await self._reader.read_metadata(ledger_id))
            except (NoSuchLedgerError, MalformedMetadataError, UnsupportedLayoutError):
                continue
        look.examined = min(len(look.ids), EXAMINED_MAX)
        found: list[tuple[Harm, int, dict[str, Any]]] = []
        for row in table.rows():
            lost = missing[row.ledger_id]
            survivors = {number for number, bookie in enumerate(table.bookies) if bookie in live and bookie not in lost}
            harm = worst_harm(row, survivors)
            shown = {
                "ledger": row.ledger_id,
                "harm": harm.name,
                "missing": list(lost),
                "bytes": None if row.is_open else row.length,
                "owner": table.owners[row.owner].as_json(),
            }
            found.append((harm, row.ledger_id, shown))
        found.sort(key=lambda each: (-each[0], each[1]))
        look.urgent = [shown for _, _, shown in found[:SHOWN_MAX]]

    async def _children(self, path: str) -> list[str]:
        try:
            return await self._store.children(path)
        except NoNodeError:
            return []

    async def _owner(self, path: str) -> str | None:
        node = await self._store.get(path)
        try:
            return None if node is None else form.decode_owner(node.value)
        except MalformedMetadataError:
            return None

    def _as_json(self, look: RepairLook) -> dict[str, Any]:
        tracker = self._tracker
        return {
            "prepared": look.prepared,
            "enabled": look.enabled,
            "auditor": look.auditor,
            "candidates": look.candidates,
            "recoveryDelayS": look.delay_s,
            "marked": len(look.ids),
            "markedIsComplete": look.complete,
            "locks": [{"ledger": ledger_id, "worker": worker} for ledger_id, worker in look.locks],
            "locksTotal": look.locks_total,
            "urgent": look.urgent,
            "urgentExamined": look.examined,
            "done": tracker.done,
            "seconds": round(tracker.seconds, 1),
            "perSecond": tracker.per_second,
            "addedPerSecond": tracker.added_per_second,
            "secondsLeft": tracker.seconds_left(),
        }


def _places(ledger_id: int) -> list[str]:
    return [*form.folder_names(ledger_id), form.node_name(ledger_id)]
