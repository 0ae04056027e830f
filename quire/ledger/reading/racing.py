"""Race: asks the bookies of one or many entries one after the other, the next one when one fails or takes too long; the first
good answer to an entry wins.

    asked ---- answered well -> won; those asked before who have not answered were overtaken
          ---- failed        -> the next one is asked at once
          ---- nothing yet   -> after a while the next one is asked too; who fails or answers last does no harm

What one call asks of one bookie is one request run. Nothing is done per entry but what its answer needs.

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
    """What was asked of one bookie at once."""

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
        """The bookie's place in the ensemble."""
        self.bookie_id = bookie_id
        self.items = items
        self.left = len(items)
        """Answers that have not come."""
        self.asked_at = now
        self.wait_until = inf
        """When others are asked for what has not come."""
        self.doubled = doubled
        """Bookies that were asked for the same before, and had not answered."""
        self.again = again
        """Whether any was asked for the same before."""
        self.timed = timed
        """Whether it says something about the bookie how long this takes."""
        health.asked(bookie_id, self.left)

    def came(self, outcome: Outcome | None) -> None:
        """One of the answers came."""
        self.left -= 1
        if self.left:
            return
        self.health.answered(self.bookie_id, len(self.items))
        if self.timed and not isinstance(outcome, BookieUnavailableError):
            self.health.took(self.bookie_id, trio.current_time() - self.asked_at)


class _Late:
    """An answer that nobody waits for any more."""

    __slots__ = ("answer", "ask")

    def __init__(self, ask: Ask, answer: Answer) -> None:
        self.ask = ask
        self.answer = answer

    def came(self) -> None:
        self.ask.came(self.answer.outcome)


class Race(ABC):
    """One call's reads. An item is an entry id, or whatever the subclass makes of the number."""

    timed = True
    """Whether the time until an answer says something about the bookie."""

    def __init__(self, context: LedgerContext, bookies: Sequence[str], items: Sequence[int]) -> None:
        self._context = context
        self._bookies = bookies
        self._items = items
        self._orders: dict[int, list[int]] = {}
        """By item: the indices of the bookies that were not asked yet, the next one last."""
        self._under_way: dict[int, list[tuple[Answer, Ask]]] = {}
        self._asks: list[Ask] = []
        self._came: trio.Event | None = None
        self._stopped = False

    # --- what is to be read

    @abstractmethod
    def order(self, item: int) -> list[int]:
        """Indices of the bookies in the order in which they are asked for the item, the last one first; a list of its own."""

    @abstractmethod
    def send(self, connection: BookieConnection, items: list[int]) -> list[Answer]:
        """Ask one bookie for the items."""

    @abstractmethod
    def take(self, item: int, ask: Ask, body: Body) -> bool:
        """Whether this answer settles the item; if not, the next bookie is asked."""

    @abstractmethod
    def failed(self, item: int, bookie_id: str, error: BookieUnavailableError) -> None:
        """A bookie did not answer."""

    @abstractmethod
    def wait_s(self, next_bookie: str, doubled: int) -> float:
        """How long to wait before the next bookie is asked too; infinite for until it fails."""

    def may_double(self, count: int) -> bool:
        """Whether other bookies may be asked too now; if not, they are after the time that the original waits."""
        return True

    @abstractmethod
    def done(self) -> bool:
        """Whether what is still missing is of no interest."""

    def given_up(self, item: int) -> bool:
        """Whether nobody is, or will be, asked for the item."""
        return item not in self._under_way and not self._orders.get(item)

    # --- the race

    def stop(self) -> None:
        """End it soon, with what there is."""
        self._stopped = True
        self._notify()

    def begun(self, answer: Answer, order: list[int], asked_at: float, wait_until: float) -> None:
        """The only item was asked for already, of the first bookie in order."""
        item = self._items[0]
        self._orders[item] = order[:0:-1]
        ask = self._new_ask(order[0], [item], asked_at, 0, again=False)
        ask.wait_until = wait_until
        answer.notify = self._notify
        self._under_way[item] = [(answer, ask)]

    async def run(self) -> None:
        """Until it is done, or every item is settled or was denied by all its bookies."""
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
        """Ask the next bookie of each, if there is one."""
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
        """Deal with all answers that have come; ask on for those that were none."""
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
        """Whoever was asked before and has not answered is slow; nobody waits for the rest."""
        for answer, ask in self._under_way.pop(item):
            if ask is winner:
                continue
            if self.timed and ask.asked_at < winner.asked_at:
                self._context.health.overtaken(ask.bookie_id)
            _let_go(answer, ask)

    async def _wait(self) -> None:
        """For an answer; or until it is time to ask others too, which is done then."""
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
        """Of those who have been waited for long enough."""
        for ask in list(self._asks):
            if ask.wait_until > now:
                continue
            items = [item for item in ask.items if self._orders[item] and self._waits_for(item, ask)]
            patience_s = self._context.config.reads.speculative_first_s
            if items and now < ask.asked_at + patience_s and not self.may_double(len(items)):
                ask.wait_until = ask.asked_at + patience_s
                continue
            ask.wait_until = inf
            self._ask_next(items, ask.doubled + 1)

    def _waits_for(self, item: int, ask: Ask) -> bool:
        return any([each is ask for _, each in self._under_way.get(item, ())])

    def _let_go(self) -> None:
        """Nobody waits any more; what comes is only counted."""
        for requests in self._under_way.values():
            for answer, ask in requests:
                _let_go(answer, ask)
        self._under_way.clear()


def _let_go(answer: Answer, ask: Ask) -> None:
    if answer.outcome is not None:
        ask.came(answer.outcome)
    else:
        answer.notify = _Late(ask, answer).came
