"""Repeated sends to a bookie after a pause: adds that an overloaded bookie refused, and all unconfirmed entries for a
failed bookie that stays in the ensemble (delayed or disabled ensemble changes).

The pauses grow, so an unreachable bookie costs one connection attempt every few seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import trio

from quire.ledger.bookies.connection import AddChannel
from quire.ledger.context import LedgerContext
from quire.ledger.errors import BookieError
from quire.wire.bookkeeper import v2
from quire.world.backoff import Backoff

EXCUSED_PAUSE_S = 0.1
EXCUSED_PAUSE_MAX_S = 2.0
EXCUSED_CALM_S = 30.0
"""Seconds without a failure after which the pauses start over."""


class SecondTries:
    """Repeated sends of one appender."""

    def __init__(
        self,
        context: LedgerContext,
        name: str,
        channels: Sequence[AddChannel | None],
        *,
        renew: Callable[[int], None],
    ) -> None:
        """`channels`: the current one of each ensemble index, to which refused adds are sent again; `renew` uses a
        bookie again, by its ensemble index, with all entries it may lack.
        """
        self.excused: dict[int, BookieError] = {}
        """Ensemble indices that failed, are sent nothing for now, and are not replaced, with the errors."""
        self._context = context
        self._name = name
        self._channels = channels
        self._renew = renew
        self._refused: list[tuple[AddChannel, Sequence[v2.Frame], int]] = []
        self._sending = False
        self._renewing = False
        self._pauses = Backoff(EXCUSED_PAUSE_S, EXCUSED_PAUSE_MAX_S, context.rng)
        self._excused_at = 0.0

    def refused(self, channel: AddChannel, frames: Sequence[v2.Frame], count: int) -> None:
        """Send `count` adds again after a pause."""
        self._refused.append((channel, frames, count))
        if not self._sending:
            self._sending = True
            self._context.start(self._send_refused, f"{self._name} retry")

    def excuse(self, index: int, error: BookieError) -> None:
        """Use the bookie again after a pause."""
        now = trio.current_time()
        if now - self._excused_at > EXCUSED_CALM_S:
            self._pauses.reset()
        self._excused_at = now
        self.excused[index] = error
        if not self._renewing:
            self._renewing = True
            self._context.start(self._renew_excused, f"{self._name} second tries")

    async def _send_refused(self) -> None:
        backoff = self._context.backoff()
        while self._refused:
            await trio.sleep(backoff.next())
            refused, self._refused = self._refused, []
            for channel, frames, count in refused:
                if self._channels[channel.index] is channel:
                    channel.send(frames, count)
        self._sending = False

    async def _renew_excused(self) -> None:
        while self.excused:
            await trio.sleep(self._pauses.next())
            excused, self.excused = self.excused, {}
            for index in excused:
                self._renew(index)
        self._renewing = False
