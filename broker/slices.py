"""Long work in short steps: what goes over thousands of topics or names lets others run in between."""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator, Iterable
from typing import TypeVar

import trio

T = TypeVar("T")
R = TypeVar("R")


async def run_through(steps: Generator[object, None, R]) -> R:
    """What `steps` returns, with a checkpoint after each of its elements."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            value: R = done.value
            return value
        await trio.lowlevel.checkpoint()


async def sliced(items: Iterable[T], step: int) -> AsyncIterator[T]:
    """`items`, with a checkpoint after each `step` of them. What an item is may have changed since `items` was made. Neither
    await nor raise in the loop's body: a generator that is left in its middle would have to be closed."""
    left = step
    for item in items:
        yield item
        left -= 1
        if not left:
            left = step
            await trio.lowlevel.checkpoint()
