"""Jobs beside each other: so many at a time, and an error that comes alone, in no group."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from itertools import chain, islice
from typing import TypeVar

import trio

T = TypeVar("T")


async def for_each(
    items: Iterable[T],
    job: Callable[[T], Awaitable[None]],
    *,
    at_once: int,
    name: str,
    tried_all: tuple[type[Exception], ...] = (),
) -> None:
    """Await `job(item)` for each item, begun in order.

    Args:
        items: taken one by one, when a job can begin.
        job: what is done for one item.
        at_once: how many jobs run at the same time, above 0.
        name: of the tasks.
        tried_all: errors after which the other items are done all the same. Any other error cancels the jobs that run,
            and no more are begun.

    Raises:
        Exception: the first error of a job, as it is: one that cancelled the others before one of `tried_all`.
    """
    failure: Exception | None = None
    first_noted: Exception | None = None
    rest = iter(items)
    first = list(islice(rest, at_once))
    waiting = chain(first, rest)

    async with trio.open_nursery() as nursery:

        async def attempt(item: T) -> None:
            nonlocal first_noted
            try:
                await job(item)
            except tried_all as error:
                first_noted = first_noted or error

        async def work() -> None:
            nonlocal failure
            try:
                for item in waiting:
                    await attempt(item)
            except Exception as error:
                failure = failure or error
                nursery.cancel_scope.cancel()

        for _ in first:
            nursery.start_soon(work, name=name)
    error = failure or first_noted
    if error is not None:
        raise error
