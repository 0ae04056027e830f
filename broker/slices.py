"""Long work in short steps: work on thousands of topics or names that lets other tasks run in between."""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator, Iterable
from typing import TypeVar

import trio

T = TypeVar("T")
R = TypeVar("R")


async def run_through(steps: Generator[object, None, R]) -> R:
    """Run `steps` with a checkpoint after each of its elements; return its result."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            value: R = done.value
            return value
        await trio.lowlevel.checkpoint()


async def sliced(items: Iterable[T], step: int) -> AsyncIterator[T]:
    """Yield `items` with a checkpoint after each `step` of them.

    The state behind an item may have changed since `items` was made. The loop's body must neither await nor raise,
    because a generator that is left early would have to be closed."""
    left = step
    for item in items:
        yield item
        left -= 1
        if not left:
            left = step
            await trio.lowlevel.checkpoint()
