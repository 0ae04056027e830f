"""Weights of bookies: the free bytes of their disks, asked for at intervals, for a weighted choice of bookies.

A bookie is asked when it is first seen as writable, again after the interval, and sooner if it did not answer. One
without an answer has no weight, which counts as the least weight of the others (drawing.py).

Source: BookKeeper's BookieInfoReader, which BookKeeper's client runs with diskWeightBasedPlacementEnabled.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

import trio

from quire.ledger.bookies.disk_space import ask_disk_space
from quire.ledger.bookies.pool import BookieClient
from quire.ledger.errors import BookieError
from quire.ledger.placement.policy import Cluster
from quire.service.log import get_logger
from quire.world.tasks import for_each

log = get_logger(__name__)

AT_ONCE: Final = 16
"""Bookies that are asked at the same time."""


class WeightedBookies(Protocol):
    """The part of a watcher that takes weights."""

    @property
    def changed(self) -> trio.Event: ...

    def cluster(self) -> Cluster: ...

    def set_weights(self, weights: Mapping[str, int]) -> None: ...


class DiskWeights:
    """Weights of the writable bookies of a watcher."""

    def __init__(
        self,
        client: BookieClient,
        watcher: WeightedBookies,
        *,
        interval_s: float,
        retry_s: float,
        answer_s: float = 5.0,
    ) -> None:
        """`answer_s`: time without an answer after which a bookie is asked again later."""
        self._answer_s = answer_s
        self._client = client
        self._watcher = watcher
        self._interval_s = interval_s
        self._retry_s = min(retry_s, interval_s)
        self._weights: dict[str, int] = {}
        self._due: dict[str, float] = {}
        """Time at which each bookie is asked next."""

    async def run(self) -> None:
        """Ask until cancelled."""
        while True:
            changed = self._watcher.changed
            await self._ask_those_due()
            with trio.move_on_at(min(self._due.values(), default=float("inf"))):
                await changed.wait()

    async def _ask_those_due(self) -> None:
        writable = self._watcher.cluster().writable
        for gone in self._due.keys() - set(writable):
            del self._due[gone]
        known = {each: weight for each, weight in self._weights.items() if each in self._due}
        now = trio.current_time()
        due = [each for each in writable if self._due.get(each, now) <= now]

        async def ask(bookie_id: str) -> None:
            weight = await self._weight(bookie_id)
            self._due[bookie_id] = trio.current_time() + (self._retry_s if weight is None else self._interval_s)
            if weight is not None:
                known[bookie_id] = weight

        await for_each(due, ask, at_once=AT_ONCE, name="disk weights")
        if known != self._weights:
            self._weights = known
            self._watcher.set_weights(known)

    async def _weight(self, bookie_id: str) -> int | None:
        """Return the free bytes of a bookie; None if it does not say."""
        try:
            with trio.move_on_after(self._answer_s):
                return (await ask_disk_space(self._client, bookie_id))[1]
            reason = f"no answer in {self._answer_s:g} s"
        except BookieError as error:
            reason = str(error)
        log.info("a bookie does not say how much room it has", bookie=bookie_id, reason=reason)
        return None
