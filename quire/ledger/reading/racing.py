"""Race: asks the bookies of entries one after the other, the next one when one fails or takes too long. The first good
answer to an entry wins.

    asked ---- answered well -> won; bookies asked earlier that have not answered were overtaken
          ---- failed        -> the next one is asked at once
          ---- nothing yet   -> after a while the next one is asked too; late answers and failures do no harm

The requests of one call to one bookie are one run. The only work per entry is handling its answer.

Source: BookKeeper's PendingReadOp.SequenceReadRequest, ReadLastConfirmedAndEntryOp.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from math import inf
from typing import TypeAlias

import trio

from quire.ledger.bookies.health import BookieHealth
from quire.ledger.bookies.pool import Answer, Body, BookieConnection
from quire.ledger.context import LedgerContext
from quire.ledger.errors import BookieUnavailableError
from quire.wire.bookkeeper import v2

Outcome: TypeAlias = Body | BookieUnavailableError


class Ask:
    """Requests sent to one bookie at once."""

    __slots__ = ("again", "asked_at", "bookie_id", "doubled", "health", "index", "items", "left", "timed", "wait_until")

    def __init__(
        self,
        health: BookieHealth,
        index: int,
        bookie_id: str,
        items: list[int],
        *,
        now: float,
        doubled: int,
        again: bool,
        timed: bool,
    ) -> None:
        self.health = health
        self.index = index
        """Index of the bookie in the ensemble."""
        self.bookie_id = bookie_id
        self.items = items
        self.left = len(items)
        """Number of pending answers."""
        self.asked_at = now
        self.wait_until = inf
        """Time at which other bookies are asked for the missing items."""
        self.doubled = doubled
        """Bookies that were asked for the same earlier, and had not answered."""
        self.again = again
        """True if a bookie was asked for the same earlier."""
        self.timed = timed
        """True if the response time says something about the bookie."""
        health.asked(bookie_id, self.left)

    def came(self, outcome: Outcome | None) -> None:
        """Count one answer."""
        self.left -= 1
        if self.left:
            return
        self.health.answered(self.bookie_id, len(self.items))
        if self.timed and not isinstance(outcome, BookieUnavailableError):
            self.health.took(self.bookie_id, trio.current_time() - self.asked_at)


class _Late:
    """Answer that is not awaited any more."""

    __slots__ = ("answer", "ask")

    def __init__(self, ask: Ask, answer: Answer) -> None:
        self.ask = ask
        self.answer = answer

    def came(self) -> None:
        self.ask.came(self.answer.outcome)


class Race(ABC):
    """Reads of one call. An item is an entry id, or another number chosen by the subclass."""

    timed = True
    """True if the time until an answer says something about the bookie."""

    def __init__(self, context: LedgerContext, bookies: Sequence[str], items: Sequence[int]) -> None:
        self._context = context
        self._bookies = bookies
        self._items = items
        self._orders: dict[int, list[int]] = {}
        """By item: indices of the bookies that were not asked yet, the next one last."""
        self._under_way: dict[int, list[tuple[Answer, Ask]]] = {}
        self._asks: list[Ask] = []
        self._came: trio.Event | None = None
        self._stopped = False

    # --- items, defined by subclasses

    @abstractmethod
    def order(self, item: int) -> list[int]:
        """Return indices of the bookies in the order in which to ask for the item, first one last, in a new list."""

    @abstractmethod
    def send(self, connection: BookieConnection, items: list[int]) -> list[Answer]:
        """Ask one bookie for the items."""

    @abstractmethod
    def take(self, item: int, ask: Ask, body: Body) -> bool:
        """Return whether this answer settles the item; if not, the next bookie is asked."""

    @abstractmethod
    def failed(self, item: int, bookie_id: str, error: BookieUnavailableError) -> None:
        """Record that a bookie did not answer."""

    @abstractmethod
    def wait_s(self, next_bookie: str, doubled: int) -> float:
        """Return how long to wait before the next bookie is asked too; infinite to wait until it fails."""

    def may_double(self, count: int) -> bool:
        """Return whether other bookies may be asked now; if not, they are asked after the original's time."""
        return True

    @abstractmethod
    def done(self) -> bool:
        """Return whether the missing items are no longer needed."""

    def given_up(self, item: int) -> bool:
        """Return whether all bookies of the item were asked and none is pending."""
        return item not in self._under_way and not self._orders.get(item)

    # --- the race

    def stop(self) -> None:
        """End the race soon, with the answers received."""
        self._stopped = True
        self._notify()

    def begun(self, answer: Answer, order: list[int], asked_at: float, wait_until: float) -> None:
        """Start with a request for the only item that was sent already, to the first bookie in order."""
        item = self._items[0]
        self._orders[item] = order[:0:-1]
        ask = self._new_ask(order[0], [item], asked_at, 0, again=False)
        ask.wait_until = wait_until
        answer.notify = self._notify
        self._under_way[item] = [(answer, ask)]

    async def run(self) -> None:
        """Run until it is done, or every item is settled or was denied by all its bookies."""
        try:
            if not self._orders:
                for item in self._items:
                    self._orders[item] = self.order(item)
                self._ask_next(self._items, 0, again=False)
            while True:
                self._collect()
                if self._stopped or not self._under_way or self.done():
                    return
                await self._wait()
        finally:
            self._let_go()

    def _ask_next(self, items: Sequence[int], doubled: int, *, again: bool = True) -> None:
        """Ask the next bookie for each item, if there is one."""
        context = self._context
        orders = self._orders
        while items:
            by_index: dict[int, list[int]] = {}
            for item in items:
                order = orders[item]
                if order:
                    by_index.setdefault(order.pop(), []).append(item)
            unreachable: list[int] = []
            for index, of_bookie in by_index.items():
                bookie_id = self._bookies[index]
                try:
                    connection = context.bookies.connection(bookie_id)
                except BookieUnavailableError as error:
                    context.health.failed(bookie_id, error)
                    for item in of_bookie:
                        self.failed(item, bookie_id, error)
                    unreachable += of_bookie
                    continue
                self._ask(connection, index, of_bookie, doubled, again)
            items = unreachable
            again = True

    def _ask(self, connection: BookieConnection, index: int, items: list[int], doubled: int, again: bool) -> None:
        now = trio.current_time()
        ask = self._new_ask(index, items, now, doubled, again=again)
        following = [order[-1] for item in items if (order := self._orders[item])]
        if following:
            ask.wait_until = now + self.wait_s(self._bookies[following[0]], doubled)
        notify = self._notify
        for item, answer in zip(items, self.send(connection, items), strict=True):
            answer.notify = notify
            self._under_way.setdefault(item, []).append((answer, ask))

    def _new_ask(self, index: int, items: list[int], now: float, doubled: int, *, again: bool) -> Ask:
        health = self._context.health
        bookie_id = self._bookies[index]
        ask = Ask(health, index, bookie_id, items, now=now, doubled=doubled, again=again, timed=self.timed)
        self._asks.append(ask)
        return ask

    def _notify(self) -> None:
        if self._came is not None:
            self._came.set()

    def _collect(self) -> None:
        """Handle all received answers; ask the next bookies for items not settled by them."""
        under_way = self._under_way
        health = self._context.health
        again = True
        while again:
            denied: dict[int, list[int]] = {}
            for item, requests in list(under_way.items()):
                for answer, ask in list(requests) if len(requests) > 1 else requests:
                    outcome = answer.outcome
                    if outcome is None:
                        continue
                    ask.came(outcome)
                    if type(outcome) is not v2.ReadResponse and isinstance(outcome, BookieUnavailableError):
                        health.failed(ask.bookie_id, outcome)
                        self.failed(item, ask.bookie_id, outcome)
                    elif self.take(item, ask, outcome):
                        self._won(item, ask)
                        break
                    else:
                        health.refused(ask.bookie_id, outcome.rc)
                    denied.setdefault(ask.doubled, []).append(item)
                    under_way[item] = [each for each in under_way[item] if each[1] is not ask]
                    if not under_way[item]:
                        del under_way[item]
            again = bool(denied) and not self.done()
            if again:
                for doubled, items in denied.items():
                    self._ask_next(items, doubled)

    def _won(self, item: int, winner: Ask) -> None:
        """Record a win: bookies asked earlier that have not answered are slow; stop waiting for the rest."""
        for answer, ask in self._under_way.pop(item):
            if ask is winner:
                continue
            if self.timed and ask.asked_at < winner.asked_at:
                self._context.health.overtaken(ask.bookie_id)
            _let_go(answer, ask)

    async def _wait(self) -> None:
        """Wait for an answer, or until other bookies must be asked, which is done then."""
        came = self._came = trio.Event()
        deadline = min([ask.wait_until for ask in self._asks if ask.left], default=inf)
        if deadline < inf:
            self._context.alarms.set(deadline, came, self._context.start)
        await came.wait()
        now = trio.current_time()
        if deadline <= now:
            # An answer that was received in the pass in which the alarm rang is not late.
            self._collect()
            self._ask_others(now)

    def _ask_others(self, now: float) -> None:
        """Ask other bookies for requests that have waited long enough."""
        for ask in list(self._asks):
            if ask.wait_until > now:
                continue
            items = [item for item in ask.items if self._orders[item] and self._waits_for(item, ask)]
            patience_s = self._context.config.reads.speculative_first_s
            if items and now < ask.asked_at + patience_s and not self.may_double(len(items)):
                ask.wait_until = ask.asked_at + patience_s
                continue
            ask.wait_until = inf
            if self.timed:  # long polls are sent to several bookies anyway
                self._context.stats.speculative_reads += len(items)
            self._ask_next(items, ask.doubled + 1)

    def _waits_for(self, item: int, ask: Ask) -> bool:
        return any([each is ask for _, each in self._under_way.get(item, ())])

    def _let_go(self) -> None:
        """Stop waiting; later answers are only counted."""
        for requests in self._under_way.values():
            for answer, ask in requests:
                _let_go(answer, ask)
        self._under_way.clear()


def _let_go(answer: Answer, ask: Ask) -> None:
    if answer.outcome is not None:
        ask.came(answer.outcome)
    else:
        answer.notify = _Late(ask, answer).came
