"""Shared and Key_Shared: what consumers acknowledge in transactions.

An entry that was acknowledged in a transaction is held by no consumer. If the transaction is aborted, it waits to be
delivered again like any other; its key, by which it finds its consumer, is read from the log then.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import merge
from itertools import islice

import trio

from broker.dispatch.consumer import Consumer
from broker.dispatch.many_consumers import ManyConsumers
from broker.dispatch.subscription import Subscription
from managed_ledger.errors import ManagedLedgerError
from quire.ledger.position import Position

POSITIONS_IN_STEP = 500
"""Entries of an aborted transaction that are looked at before other tasks run."""


class TransactedConsumers(ManyConsumers):
    """Part of Shared and Key_Shared."""

    def hold_in_transaction(self, consumer: Consumer[Subscription], positions: Sequence[Position]) -> None:
        for position in positions:
            self._release(consumer, position)

    def release_committed(self, positions: Sequence[Position]) -> None:
        consumer = next(iter(self._pending), None)
        if consumer is None:
            return
        for position in positions:
            if self.cursor.is_acked(position):
                self._release(consumer, position)
            else:
                self._release_part(consumer, position)

    def deliver_again(self, positions: Sequence[Position]) -> None:
        if len(positions) > POSITIONS_IN_STEP:
            if self.consumers:  # the first consumer begins with a rewind
                name = f"deliver again {self.name}"
                self.topic.nursery.start_soon(self._deliver_many, positions, self._epoch, name=name)
            return
        unknown = [position for position in positions if not self._waits_again(position)]
        if unknown and self.consumers:
            name = f"deliver again {self.name}"
            self.topic.nursery.start_soon(self._deliver_unknown, sorted(unknown), self._epoch, name=name)
        self.pump()

    def _waits_again(self, position: Position) -> bool:
        """Let an entry wait to be delivered again, if it is to and its key is known. Return False if its key has to be
        read."""
        if position >= self.cursor.read_position or self.cursor.is_acked(position):
            return True  # it is read anyway, or was acknowledged without a transaction
        for consumer, pending in self._pending.items():
            if (entry := pending.pop(position)) is not None:  # a part of a batch
                self._unacked -= entry.messages
                self._made_replay().add(position, entry.key_hash, again=True)
                self._released(consumer, (entry.key_hash,))
                return True
        return False

    async def _deliver_many(self, positions: Sequence[Position], epoch: int) -> None:
        """As `deliver_again`, in steps of the event loop, in the order of the log."""
        parts: list[list[Position]] = []
        for at in range(0, len(positions), POSITIONS_IN_STEP):
            parts.append(sorted(positions[at : at + POSITIONS_IN_STEP]))
            await trio.lowlevel.checkpoint()
        ordered = merge(*parts)
        while some := list(islice(ordered, POSITIONS_IN_STEP)):
            if self.stopped or epoch != self._epoch:
                return
            await self._deliver_unknown([each for each in some if not self._waits_again(each)], epoch)
            self.pump()
            await trio.lowlevel.checkpoint()

    async def _deliver_unknown(self, positions: Sequence[Position], epoch: int) -> None:
        """Let entries wait to be delivered again, whose keys have to be read, in this order."""
        for position in positions:
            try:
                run = await self.topic.ledger.read(position, 1, 1, replay=True)
            except ManagedLedgerError as error:
                self.log.warning("entries are delivered again from the log", reason=str(error))
                if not self.stopped:
                    self.rewind()
                    self.pump()
                return
            if self.stopped or epoch != self._epoch:
                return  # everything is read again
            is_it = bool(run.payloads) and (run.ledger_id, run.first_entry_id) == position
            if is_it and not self._is_unwanted(position) and position < self.cursor.read_position:
                self._made_replay().add(position, self._hash_in_replay(run.payloads[0]), again=True)
                self.pump()  # the next read may take long
