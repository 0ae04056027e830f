"""A server as a process: signals become a stop, failures become one line and an exit code.

Exit codes: 0 stopped as asked, 1 could not start or go on (an internal error included), 2 the configuration is
wrong.
"""

from __future__ import annotations

import errno
import gc
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import trio

from quire.metadata.store import MetadataStore
from quire.servers.errors import CliError, InternalError
from quire.service.errors import ConfigError
from quire.service.log import get_logger
from quire.service.task_tree import log_task_tree
from quire.world.faults import Fault, Faults
from quire.world.real_network import raise_descriptor_limit
from quire.world.unwrap import leaves

log = get_logger(__name__)

Store = TypeVar("Store", bound=MetadataStore)

SWITCH_INTERVAL_S = 0.0002
"""Switch interval of the interpreter.

With CPython's default of 5 ms the journal thread waits about 10 ms for each sync while the loop is busy; with this,
about 1.3 ms."""
TASK_TREE_SIGNAL = signal.SIGUSR1
IGNORED_SIGNALS = (signal.SIGUSR2,)
"""Signals that would end the process at once without a handler."""
GC_THRESHOLDS = (3_000, 1, 1_500)
"""Thresholds of the collector, which holds the loop while it looks at objects, about 0.5 us each.

A young collection looks at 3,000 new containers, and every third one at the 9,000 since the last such: 5 ms. With
(50,000, 20, 50) these took 50 and 650 ms while 20,000 topics were loaded; the sum of all is the same. All objects are
looked at once in about ten million new ones."""

ENDS = "internal error, the server ends"
FAULT_GRACE_S = 10.0
"""Seconds that a server may take to end in order after an exception of a callback."""


def exit_code(error: BaseException) -> int | None:
    """Return the exit code for errors an operator can fix: CliError, ConfigError, OSError, damaged or newer data, a
    failed disk; None for internal errors."""
    causes = list(leaves(error))
    if not all(isinstance(cause, _mendable()) for cause in causes):
        return None
    return 2 if any(isinstance(cause, ConfigError) for cause in causes) else 1


def run_server(
    command: str,
    serve: Callable[[trio.Event], Awaitable[None]],
    exit_code: Callable[[BaseException], int | None] = exit_code,
    *,
    remedy: str = "",
) -> int:
    """Run `serve(stop)` until it ends, and return the exit code.

    SIGTERM, SIGINT and SIGHUP set `stop`, a second one cancels. SIGUSR1 writes the task tree into the log. SIGUSR2
    and, in a process started to ignore it (nohup), SIGHUP change nothing.

    A failure with an exit code is printed on standard error, each cause in a line, with `remedy` if it is damage. Any
    other is an internal error: its traceback goes into the log, and the exit code is that of an InternalError.
    """
    raise_descriptor_limit()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    # Objects loaded by now are frozen: the collector skips them, and nearly all garbage is young. A collection before
    # it would free half a megabyte that imports left, and take 5 % of the time of a start.
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    try:
        trio.run(_serve_with_signals, serve)
    except BaseException as error:
        code = exit_code(error)
        if code is None:
            if not isinstance(error, Exception):
                raise
            causes = "; ".join([repr(cause) for cause in leaves(error)])
            log.error(ENDS, where="a task", reason=causes, exc_info=error)
            internal = InternalError(f"internal error: {causes}; see the traceback in the log")
            print(f"quire {command}: {internal}", file=sys.stderr)
            return exit_code(internal) or 1
        for cause in leaves(error):
            print(f"quire {command}: {cause}", file=sys.stderr)
        if remedy and any(map(_is_damage, leaves(error))):
            print(f"quire {command}: {remedy}", file=sys.stderr)
        return code
    return 0


def hold_collector() -> None:
    """Look for no garbage until `release_collector`: a start only loads what stays."""
    gc.disable()


def release_collector() -> None:
    """Look for garbage from now on, but not at what was loaded by now, such as the metadata of all topics."""
    gc.freeze()
    gc.enable()


def _is_damage(cause: BaseException) -> bool:
    """Return whether stored data differ from what was written."""
    from bookie.errors import JournalDamagedError, StorageDamagedError
    from quire.metadata.errors import MalformedMetadataError

    if isinstance(cause, OSError):
        return cause.errno == errno.EIO
    return isinstance(cause, (JournalDamagedError, StorageDamagedError, MalformedMetadataError))


def _mendable() -> tuple[type[BaseException], ...]:
    """Return the exit codes by class. Imports happen only after a failure, so that no start waits for them."""
    from bookie.errors import BookieError
    from quire.metadata import errors

    stored = (
        errors.ClusterRefusedError,
        errors.InvalidConnectStringError,
        errors.MalformedMetadataError,
        errors.MetadataUnavailableError,
        errors.NoNodeError,
        errors.NotAllowedError,
        errors.SessionExpiredError,
        errors.UnsupportedLayoutError,
    )
    return (CliError, ConfigError, OSError, BookieError, *stored)


@asynccontextmanager
async def closing(store: Store) -> AsyncIterator[Store]:
    """Yield the store, and close it when the block ends, even if cancelled: a store's thread must end, or the process
    does not."""
    try:
        yield store
    finally:
        with trio.CancelScope(shield=True):
            await store.aclose()


async def end_when(failed: trio.Event, error: Exception) -> None:
    """Fail with `error` when the event is set. Run it in a task."""
    await failed.wait()
    raise error


@asynccontextmanager
async def ending_at_faults(faults: Faults) -> AsyncIterator[trio.Nursery]:
    """A nursery for what serves, cancelled at the end of the block. After an exception of a callback it ends with an
    InternalError: what the callback left undone cannot be known. Stores that were opened around it are then closed in
        order."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(end_at_fault, faults, name="faults")
        yield nursery
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def cut_after_faults(faults: Faults) -> AsyncIterator[None]:
    """Around a whole server, from before its stores are opened until after they are closed: exceptions of callbacks are
    logged and end it with an InternalError all that time, not only while it serves. What is still open FAULT_GRACE_S
    seconds after the exception is cancelled."""
    faults.watch()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_cut_after_fault, faults, name="faults of the process")
        yield
        nursery.cancel_scope.cancel()
    if faults.first is not None:
        raise _report(faults, faults.first) from faults.first.error


async def end_at_fault(faults: Faults) -> None:
    """A task that fails with an InternalError when a callback has raised."""
    fault = await faults.wait()
    raise _report(faults, fault) from fault.error


async def _cut_after_fault(faults: Faults) -> None:
    fault = await faults.wait()
    failure = _report(faults, fault)
    await trio.sleep(FAULT_GRACE_S)
    raise failure from fault.error


def _report(faults: Faults, fault: Fault) -> InternalError:
    """Log the first fault, once, with its traceback; return the error that ends the server."""
    if not faults.logged:
        faults.logged = True
        log.error(ENDS, where=fault.where, reason=repr(fault.error), exc_info=fault.error)
    return InternalError(f"internal error in {fault.where}: {fault.error!r}; its traceback is in the log")


async def _serve_with_signals(serve: Callable[[trio.Event], Awaitable[None]]) -> None:
    stop = trio.Event()
    received = [signal.SIGTERM, signal.SIGINT, TASK_TREE_SIGNAL, *IGNORED_SIGNALS]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        received.append(signal.SIGHUP)
    with trio.open_signal_receiver(*received) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_stop_on_signal, signals, stop, nursery.cancel_scope, name="signals")
            await serve(stop)
            nursery.cancel_scope.cancel()


async def _stop_on_signal(signals: AsyncIterator[int], stop: trio.Event, scope: trio.CancelScope) -> None:
    async for each in signals:
        if each == TASK_TREE_SIGNAL:
            await log_task_tree()
            continue
        if each in IGNORED_SIGNALS:
            log.warning("signal ignored", signal=signal.Signals(each).name)
            continue
        if stop.is_set():
            scope.cancel()
            return
        stop.set()
