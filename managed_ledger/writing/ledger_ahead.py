"""Next ledger of a log, created before it is needed, so that a roll does not wait for the creation.

    none -- want() --> being made, one write: ledger + list that names it as to be deleted --> ready -- take() --> none

What holds: LedgersNeverLeak: what was made and is not used (a crash, a close, another configuration) is named as to be
deleted, by the write that made it. OnlyOneLedgerOpenAtATime: the list takes it in by the write that closes its
predecessor.
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from cursors.doors import Writer
from cursors.topic_log import topic_log
from managed_ledger.errors import LedgerIdOrderError, ManagedLedgerFencedError
from managed_ledger.stored_list import StoredList
from quire.ledger.errors import LedgerError
from quire.metadata.errors import MetadataError
from quire.service.log import get_logger

log = get_logger(__name__)

RETRY_S = 10.0


class LedgerAhead:
    """Ledger made ahead of one log."""

    def __init__(self, name: str, nursery: trio.Nursery, stored: StoredList, is_wanted: Callable[[], bool]) -> None:
        """Take the parts it uses. `is_wanted`: returns whether the log still accepts entries."""
        self._name = name
        self._nursery = nursery
        self._stored = stored
        self._is_wanted = is_wanted
        self._writer: Writer | None = None
        self._made_with: tuple[object, ...] = ()
        self._making: trio.Event | None = None
        self._not_before = 0.0

    @property
    def ledger_id(self) -> int:
        """Return the id of the ready ledger; -1: none."""
        return -1 if self._writer is None else self._writer.ledger_id

    def want(self) -> None:
        """Create the next ledger in the background, because the current one is nearly full, unless that is done or has
        just failed."""
        if self._writer is None and self._making is None and trio.current_time() >= self._not_before:
            self._making = trio.Event()
            self._nursery.start_soon(self._make, self._making, name=f"ledger ahead of {self._name}")

    async def _make(self, done: trio.Event) -> None:
        try:
            async with self._stored.held():
                if self._is_wanted():
                    made_with = self._stored.config().of_ledgers
                    self._writer = await self._stored.ledger_ahead()
                    self._made_with = made_with
        except (LedgerError, MetadataError, LedgerIdOrderError, ManagedLedgerFencedError) as error:
            # The roll finds the same, if it lasts, and deals with it.
            topic_log(log, self._name).info("next ledger not made ahead", reason=str(error))
            self._not_before = trio.current_time() + RETRY_S
        finally:
            self._making = None
            done.set()

    def take(self) -> Writer | None:
        """Take the ledger made ahead, if it still matches the configuration of new ledgers. Call inside the list's
        `held`."""
        writer = self._writer
        if writer is None or self._made_with != self._stored.config().of_ledgers:
            return None
        self._writer = None
        return writer

    def give_back(self, writer: Writer) -> None:
        """Return a ledger that could not be put into the list yet."""
        self._writer = writer

    def drop(self) -> int | None:
        """Drop it; return the id of the unneeded ledger, which the list names for deletion."""
        writer, self._writer = self._writer, None
        return None if writer is None else writer.ledger_id

    async def settle(self) -> None:
        """Wait until none is being created."""
        while self._making is not None:
            await self._making.wait()
