"""The survey: metadata of all ledgers, read once in the background, for every page that counts copies.

One survey at a time is kept. It first lists all ledger ids, so that pages can name how many there are, and then reads
their metadata, READERS at a time. Pages use what has been read so far, and name it: "examined N of M". It is forgotten
when it was not asked for during KEPT_S.
"""

from __future__ import annotations

from array import array
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import trio

from broker.console.cluster_ledgers import LedgerTable
from quire.ledger.errors import NoSuchLedgerError
from quire.metadata.errors import MalformedMetadataError, MetadataError, UnsupportedLayoutError
from quire.metadata.ledger_metadata import LedgerMetadata
from quire.service.log import get_logger

LEDGERS_MAX: Final = 500_000
"""Ledgers that are examined; the others are counted as not examined. A table of so many has some 30 MB."""
READERS: Final = 16
BATCH: Final = 64
"""Ledgers read before their rows are added, so that rows are in the order of ids."""
READ_S: Final = 30.0
"""Deadline of one read."""
KEPT_S: Final = 900.0
"""Seconds for which a survey is kept after it was last asked for."""
FRESH_S: Final = 5.0
"""Seconds for which a request for another survey is answered with the last one."""
IDS_IN_STEP: Final = 200

log = get_logger(__name__)


class LedgerSource(Protocol):
    """Part of the ledger client used here."""

    def list_ledgers(self, first: int = 0) -> AsyncIterator[int]: ...

    async def read_metadata(self, ledger_id: int) -> LedgerMetadata: ...


@dataclass(slots=True)
class Survey:
    """One survey, as far as it is."""

    started_ms: int
    table: LedgerTable = field(default_factory=LedgerTable)
    listed: int = 0
    """Ledgers listed so far."""
    is_listed: bool = False
    """True if `listed` counts all ledgers there were."""
    deleted: int = 0
    """Ledgers deleted between being listed and being read."""
    unreadable: int = 0
    """Ledgers whose metadata is damaged, or of a newer version: they are not examined."""
    running: bool = True
    problem: str = ""
    """Reason why it ended early."""

    @property
    def total(self) -> int | None:
        """Return the number of ledgers there are; None: it is not known yet."""
        return self.listed - self.deleted if self.is_listed else None

    def as_json(self) -> dict[str, Any]:
        """Return its progress as JSON."""
        return {
            "running": self.running,
            "startedMs": self.started_ms,
            "examined": len(self.table),
            "listed": self.listed,
            "total": self.total,
            "unreadable": self.unreadable,
            "limit": LEDGERS_MAX,
            "problem": self.problem,
        }


class Surveys:
    """Holder of the one survey of a broker."""

    def __init__(self, source: LedgerSource, nursery: trio.Nursery, wall_ms: Callable[[], int]) -> None:
        self._source = source
        self._nursery = nursery
        self._wall_ms = wall_ms
        self._last: Survey | None = None
        self._started_at = float("-inf")
        self._asked_at = float("-inf")

    def current(self) -> Survey | None:
        """Return the survey; None: there is none, or it was forgotten."""
        self._asked_at = trio.current_time()
        return self._last

    def start(self) -> Survey:
        """Start a survey, unless one is running or was started a moment ago; return it."""
        now = self._asked_at = trio.current_time()
        last = self._last
        if last is not None and (last.running or (now - self._started_at < FRESH_S and not last.problem)):
            return last
        self._started_at = now
        made = self._last = Survey(self._wall_ms())
        self._nursery.start_soon(self._run, made, name="survey of ledgers")
        return made

    async def _run(self, survey: Survey) -> None:
        try:
            await self._read_all(survey)
        except (MetadataError, trio.TooSlowError) as error:
            survey.problem = str(error) or f"the metadata service did not answer within {READ_S:g} s"
            log.warning("survey of ledgers ended early", examined=len(survey.table), reason=survey.problem)
        finally:
            survey.running = False
        while trio.current_time() < self._asked_at + KEPT_S:
            await trio.sleep_until(self._asked_at + KEPT_S)
            if self._last is not survey:
                return
        self._last = None

    async def _read_all(self, survey: Survey) -> None:
        ids = array("q")
        async for ledger_id in self._source.list_ledgers():
            survey.listed += 1
            if len(ids) < LEDGERS_MAX:
                ids.append(ledger_id)
            if survey.listed % IDS_IN_STEP == 0:
                await trio.lowlevel.checkpoint()
        survey.is_listed = True
        for first in range(0, len(ids), BATCH):
            for ledger_id, metadata in await self._read_batch(survey, ids[first : first + BATCH]):
                survey.table.add(ledger_id, metadata)

    async def _read_batch(self, survey: Survey, ids: array[int]) -> list[tuple[int, LedgerMetadata]]:
        """Return the metadata of those of some ledgers that have any, in their order."""
        found: dict[int, LedgerMetadata] = {}
        failures: list[Exception] = []
        ahead = iter(ids)

        async def read() -> None:
            for ledger_id in ahead:
                if failures:
                    return
                try:
                    with trio.fail_after(READ_S):
                        found[ledger_id] = await self._source.read_metadata(ledger_id)
                except NoSuchLedgerError:
                    survey.deleted += 1
                except (MalformedMetadataError, UnsupportedLayoutError):
                    survey.unreadable += 1
                except (MetadataError, trio.TooSlowError) as error:
                    failures.append(error)

        async with trio.open_nursery() as readers:
            for _ in range(min(READERS, len(ids))):
                readers.start_soon(read, name="survey of ledgers")
        if failures:
            raise failures[0]
        return [(ledger_id, found[ledger_id]) for ledger_id in ids if ledger_id in found]
