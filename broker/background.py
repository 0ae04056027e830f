"""Work that must be completed even if its caller is cancelled or one of many jobs fails."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

import trio

from broker.errors import BrokerError, ServiceNotReadyError
from quire.service.log import get_logger

log = get_logger(__name__)

AT_ONCE_MAX = 16
"""Jobs of one `for_each` that run at the same time."""

T = TypeVar("T")


async def see_through(nursery: trio.Nursery, job: Callable[[], Awaitable[T]], *, name: str) -> T:
    """Run `job` in a task of `nursery` to its end, even if the caller is cancelled meanwhile; return its result.

    Raises the job's BrokerError; ServiceNotReadyError if it failed otherwise, which is logged, or was interrupted."""
    results: list[T] = []
    errors: list[BrokerError] = []
    done = trio.Event()

    async def run() -> None:
        try:
            results.append(await job())
        except BrokerError as error:
            errors.append(error)
        except Exception as error:
            log.error(f"{name} failed", error=repr(error), exc_info=True)
            errors.append(ServiceNotReadyError(f"{name} failed"))
        finally:
            done.set()

    nursery.start_soon(run, name=name)
    await done.wait()
    if errors:
        raise errors[0]
    if not results:
        raise ServiceNotReadyError(f"{name} was interrupted")
    return results[0]


async def for_each(items: Iterable[T], job: Callable[[T], Awaitable[None]]) -> None:
    """`AT_ONCE_MAX` at the same time; all are tried, then the first BrokerError is raised."""
    errors: list[BrokerError] = []
    waiting = iter(items)

    async def work() -> None:
        for item in waiting:
            try:
                await job(item)
            except BrokerError as error:
                errors.append(error)

    async with trio.open_nursery() as nursery:
        for _ in range(AT_ONCE_MAX):
            nursery.start_soon(work)
    if errors:
        raise errors[0]
