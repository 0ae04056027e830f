"""Subscriptions that keep entries from their consumers until their delivery time."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Generator, Iterator

from broker.dispatch.delayed.delays import Delays
from broker.dispatch.filtering import FilteringSubscription
from broker.dispatch.ports import Host
from broker.dispatch.subscription import Subscription
from cursors.cursor import Cursor
from managed_ledger.managed_ledger import EntryRun
from quire.ledger.position import Position
from quire.world.doors import Buffer

AHEAD_OF_DELAYED_MAX = 1000
"""Maximum ratio of entries read to permits while most of them are delayed."""
DELAYED_COST = 12
"""Cost of an entry that is put aside in the work of a pass, beside that of reading it."""
RESTORE_COST = 2
"""Cost of a block of the stored index in the work of a pass."""
_DONE = object()


class DelayingSubscription(FilteringSubscription):
    """Part of Shared and Key_Shared that puts delayed entries aside as they are read."""

    def __init__(self, topic: Host[Subscription], name: str, cursor: Cursor, kind: int, durable: bool) -> None:
        super().__init__(topic, name, cursor, kind, durable)
        self._delays: Delays | None = None
        """Set from the first entry on that had to wait for its time."""
        self._ahead_of_delayed = 1
        """Ratio of entries read to permits: above 1 while most of them are delayed."""
        self._restoring: Iterator[None] | None = None
        """Set until the stored index is restored. The pump does that before it reads anything."""
        if cursor.delayed_index:
            self._delays = self._new_delays()
            self._restoring = self._delays.restoring()

    def _new_delays(self) -> Delays:
        return Delays(self.topic, self.name, self.cursor, self._hash_in_replay, self.pump)

    def _is_restored(self) -> bool:
        """Return whether the stored index of delayed messages is in memory. Continues with it as far as this pass
        allows."""
        steps = self._restoring
        if steps is None:
            return True
        turn = self._turn
        while turn.left > 0:
            turn.left -= RESTORE_COST
            if next(steps, _DONE) is _DONE:
                self._restoring = None
                if self._delays is not None:
                    self._delays.start()
                return True
        self._put_off()
        return False

    @abstractmethod
    def _offer(self, run: EntryRun, *, replay: bool) -> bool:
        """Deliver the entries of `run` that consumers can take; return False if there were none."""

    @abstractmethod
    def _hash_in_replay(self, payload: Buffer) -> int:
        """Return the hash under which an entry that is due waits to be delivered."""

    @property
    def delayed(self) -> int:
        return 0 if self._delays is None else self._delays.count

    @property
    def stores_index(self) -> bool:
        """Return whether `stop` may have to store an index of delayed messages."""
        return self._delays is not None

    @property
    def next_due_ms(self) -> int | None:
        """Return the due time of the first delayed entry, in ms since 1970; None if there is none."""
        return None if self._delays is None else self._delays.next_due_ms

    @property
    def delayed_index_bytes(self) -> int:
        return 0 if self._delays is None else self._delays.size_bytes

    def release_acked(self) -> Generator[None, None, None]:
        if self._delays is not None:
            yield from self._delays.forget_acked()

    def rewind(self) -> None:
        """Deliver again everything that is not acknowledged. What is delayed stays known: it is not read again."""
        super().rewind()
        if self._delays is not None:
            self._delays.start()

    async def seek(self, target: Position, ack_set: tuple[int, ...] = ()) -> None:
        try:
            await super().seek(target, ack_set)
        finally:
            if self._delays is not None and not self.seeking:
                self._restoring = None
                self._delays.clear()

    def abandoned(self) -> None:
        super().abandoned()
        if self._delays is not None and not self.consumers:
            self._delays.stop()

    def stop(self) -> None:
        super().stop()
        if self._delays is not None:
            self._delays.stop()
            if self._restoring is None:
                self._delays.store_last()

    def _passes_delayed(self, delays: Delays) -> bool:
        """Advance the read position over entries that are known to be delayed; return whether it moved."""
        position = self.cursor.read_position
        free = delays.first_free(position)
        if free == position.entry_id:
            return False
        self._advance(position.ledger_id, free)
        return True

    def _offer_due(self, run: EntryRun) -> bool:
        """Put aside the entries of a new `run` that are delayed, and offer the others; return False if none of the run
        could be passed."""
        delays = self._delays
        if delays is None:
            delays = self._delays = self._new_delays()
        ledger_id, first, payloads = run
        delayed = delays.find(run)
        self._turn.left -= len(delayed) * DELAYED_COST
        mostly = 2 * len(delayed) > len(payloads)
        self._ahead_of_delayed = min(self._ahead_of_delayed << 1, AHEAD_OF_DELAYED_MAX) if mostly else 1
        if not delayed:
            return self._offer(run, replay=False)
        before = self.cursor.read_position
        start = 0
        for index, due_ms in [*delayed, (len(payloads), 0)]:
            if start:
                self._advance(ledger_id, first + start)
            if start < index:
                self._offer(EntryRun(ledger_id, first + start, payloads[start:index]), replay=False)
                if self.cursor.read_position < (ledger_id, first + index):
                    break
            if index < len(payloads):
                delays.add(due_ms, Position(ledger_id, first + index), payloads[index])
            start = index + 1
        return self.cursor.read_position > before
