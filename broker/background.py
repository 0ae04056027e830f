"""Work that must be completed even if its caller is cancelled or one of many jobs fails."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

import trio

from broker.errors import BrokerError, ServiceNotReadyError
from quire.service.log import get_logger
from quire.world.tasks import for_each

log = get_logger(__name__)

AT_ONCE_MAX = 16
"""Jobs of one `for_all` that run at the same time."""

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
            log.error(f"{name} failed", reason=repr(error), exc_info=True)
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


async def for_all(items: Iterable[T], job: Callable[[T], Awaitable[None]], *, name: str) -> None:
    """Run `AT_ONCE_MAX` jobs at a time. All are tried, then the first BrokerError is raised; any other error cancels
    the rest."""
    await for_each(items, job, at_once=AT_ONCE_MAX, name=name, tried_all=(BrokerError,))
