"""Verification of every copy of every ledger against its digest.

    fragment closed       each member must have each entry of its places, good; anything else is a bad copy
    the last fragment     of a ledger that is not closed: only up to what is known to be confirmed, and an entry that a
                          member does not have may be on its way to it: told as `open`, not as bad
    deleted meanwhile     nothing to be said

Source of what a member should have: `autorecovery.fragments`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import trio

from autorecovery.fragments import LedgerFragment, batches, fragments_of
from quire.ledger.client import LedgerClient
from quire.ledger.errors import LedgerError, NoSuchLedgerError
from quire.ledger.reading.copies import BadCopy, CopyFault, LedgerCopies
from quire.metadata.ledgers import LedgerMetadata, LedgerState
from quire.wire.bookkeeper.entry import DigestType

EXAMPLES_MAX = 3
"""Maximum bad copies reported per member."""
ENTRIES_AT_ONCE = 4096


@dataclass(slots=True)
class ReadTotals:
    """Totals of what was read."""

    ledgers: int = 0
    open_ledgers: int = 0
    copies: int = 0
    bytes: int = 0
    bad_ledgers: int = 0
    bad_copies: int = 0
    faults: Counter[str] = field(default_factory=Counter)

    def to_json(self) -> dict[str, Any]:
        return {
            "ledgers": self.ledgers,
            "openLedgers": self.open_ledgers,
            "copies": self.copies,
            "bytes": self.bytes,
            "badLedgers": self.bad_ledgers,
            "badCopies": self.bad_copies,
            "faults": dict(self.faults),
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> ReadTotals:
        return cls(
            ledgers=value["ledgers"],
            open_ledgers=value["openLedgers"],
            copies=value["copies"],
            bytes=value["bytes"],
            bad_ledgers=value["badLedgers"],
            bad_copies=value["badCopies"],
            faults=Counter(value["faults"]),
        )

    def add(self, other: ReadTotals) -> None:
        self.ledgers += other.ledgers
        self.open_ledgers += other.open_ledgers
        self.copies += other.copies
        self.bytes += other.bytes
        self.bad_ledgers += other.bad_ledgers
        self.bad_copies += other.bad_copies
        self.faults.update(other.faults)


@dataclass(slots=True)
class LedgerReport:
    """Report of one ledger."""

    ledger_id: int
    state: LedgerState | None = None
    """None: the ledger was deleted."""
    totals: ReadTotals = field(default_factory=ReadTotals)
    bad: dict[str, list[BadCopy]] = field(default_factory=dict)
    """Bad copies by bookie: the first EXAMPLES_MAX."""
    bad_counts: Counter[str] = field(default_factory=Counter)
    problem: str = ""
    """Reason why nothing could be read at all."""

    @property
    def good(self) -> bool:
        return not self.bad_counts and not self.problem

    def to_json(self) -> dict[str, Any]:
        return {
            "ledgerId": self.ledger_id,
            "state": self.state.name if self.state else None,
            "problem": self.problem or None,
            "badCopies": [
                {
                    "bookie": bookie_id,
                    "count": count,
                    "examples": [
                        {"entryId": each.entry_id, "fault": each.fault.value, "text": each.text}
                        for each in self.bad.get(bookie_id, [])
                    ],
                }
                for bookie_id, count in sorted(self.bad_counts.items())
            ],
        }

    def lines(self) -> list[str]:
        """Return the report as lines of text."""
        if self.problem:
            return [f"ledger {self.ledger_id}: {self.problem}"]
        return [
            f"ledger {self.ledger_id}: {count} bad copies on {bookie_id}, first entry "
            f"{self.bad[bookie_id][0].entry_id}: {self.bad[bookie_id][0].fault.value}"
            for bookie_id, count in sorted(self.bad_counts.items())
        ]


class Verifier:
    """Reader of the copies of ledgers, one ledger a call; calls may overlap.

    `password`, `digest_type`: for ledgers whose metadata lack them."""

    def __init__(
        self, client: LedgerClient, *, password: bytes = b"", digest_type: DigestType = DigestType.CRC32
    ) -> None:
        self._client = client
        self._password = password
        self._digest_type = digest_type

    async def verify(self, ledger_id: int, moved: Callable[[int], None] = lambda count: None) -> LedgerReport:
        """Read everything that should exist. `moved` is called with the number of further copies read. Raises
        MetadataError."""
        report = LedgerReport(ledger_id)
        try:
            metadata = await self._client.read_metadata(ledger_id)
            lac = await self._confirmed(ledger_id, metadata)
        except NoSuchLedgerError:
            return report
        except LedgerError as error:
            report.problem = str(error) or type(error).__name__
            report.totals = ReadTotals(ledgers=1, bad_ledgers=1)
            return report
        report.state = metadata.state
        report.totals.ledgers = 1
        report.totals.open_ledgers = int(metadata.state is not LedgerState.CLOSED)
        copies = self._client.copies(ledger_id, metadata, password=self._password, digest_type=self._digest_type)
        for fragment in fragments_of(ledger_id, metadata, lac):
            async with trio.open_nursery() as nursery:
                for index in range(len(fragment.bookies)):
                    nursery.start_soon(self._member, copies, fragment, index, report, moved, name="copies of a member")
        if not report.good and not await self._is_as_it_was(ledger_id, metadata):
            # Copies were moved during the read, so the result is outdated.
            return await self.verify(ledger_id, moved)
        report.totals.bad_ledgers = int(not report.good)
        report.totals.bad_copies = sum(report.bad_counts.values())
        return report

    async def _confirmed(self, ledger_id: int, metadata: LedgerMetadata) -> int:
        """Return the last entry known to be confirmed, without disturbing a writer. Raises LedgerError."""
        if metadata.state is LedgerState.CLOSED:
            return metadata.last_entry_id
        password = metadata.password_or(self._password)
        reader = await self._client.open(ledger_id, password=password, digest_type=self._digest_type, recover=False)
        try:
            return reader.last_entry_id
        finally:
            reader.close()

    async def _is_as_it_was(self, ledger_id: int, metadata: LedgerMetadata) -> bool:
        try:
            return await self._client.read_metadata(ledger_id) == metadata
        except NoSuchLedgerError:
            return False

    async def _member(
        self,
        copies: LedgerCopies,
        fragment: LedgerFragment,
        index: int,
        report: LedgerReport,
        moved: Callable[[int], None],
    ) -> None:
        bookie_id = fragment.bookies[index]
        for entry_ids in batches(fragment.entries_of(index), ENTRIES_AT_ONCE):
            at = 0
            while at < len(entry_ids):
                entries, bad = await copies.read(bookie_id, entry_ids[at:])
                at += len(entries)
                report.totals.copies += len(entries)
                report.totals.bytes += sum(map(len, entries))
                moved(len(entries))
                if bad is None:
                    continue
                at += 1
                if not fragment.closed and bad.fault is CopyFault.MISSING:
                    report.totals.faults["open"] += 1
                    continue
                rest = 1
                if bad.fault is CopyFault.UNREACHABLE:
                    rest += len(entry_ids) - at  # no more requests to it
                    at = len(entry_ids)
                report.totals.faults[bad.fault.value] += rest
                report.bad_counts[bookie_id] += rest
                examples = report.bad.setdefault(bookie_id, [])
                if len(examples) < EXAMPLES_MAX:
                    examples.append(bad)
