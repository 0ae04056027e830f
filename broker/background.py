"""Work that must not be left half done because whoever asked for it went away."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio

from broker.errors import BrokerError, ServiceNotReadyError
from quire.service.log import get_logger

log = get_logger(__name__)

T = TypeVar("T")


async def see_through(nursery: trio.Nursery, job: Callable[[], Awaitable[T]], *, name: str) -> T:
    """Run `job` in a task of `nursery`, to its end even if the caller is cancelled meanwhile, and return what it returns.

    Raises the job's BrokerError; ServiceNotReadyError if it failed otherwise, which is logged, or was broken off.
    """
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
        raise ServiceNotReadyError(f"{name} was broken off")
    return results[0]
