"""One event loop per process, in its own thread, with one client per cluster, for use by blocking code.

Spark's processes are plain blocking Python. The loop is made at the first call (never at import, never when a reader is
made or pickled), and again in a forked child, where threads do not follow. Clients are leased: a client stays as long
as there is a lease; IDLE_S after the last one is given back its connections are closed. Nothing has to be
closed for correctness: when the process ends, its sockets do.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
from collections.abc import Awaitable, Callable, Hashable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import trio

from quire.client.authentication import Credentials, CredentialsError, basic, basic_file, certificate, token, token_file
from quire.client.client import Client, open_client
from quire.client.options import ClientOptions
from quire.spark.errors import OptionError
from quire.spark.options.parse import Options
from quire.world.doors import World
from quire.world.real import real_world

if TYPE_CHECKING:
    from quire.ledger.reading.known import KnownReader

T = TypeVar("T")
C = TypeVar("C")

_log = logging.getLogger(__name__)

IDLE_S = 30.0
"""Time a client without leases keeps its connections."""
START_DEADLINE_S = 30.0
STOP_DEADLINE_S = 5.0


def client_options(options: Options) -> ClientOptions:
    """Return the client options of a query."""
    timeout_s = options.operation_timeout_ms / 1000
    return ClientOptions(
        operation_timeout_s=timeout_s,
        connect_timeout_s=min(timeout_s, 10.0),
        tls=options.tls,
        client_name="Quire-Spark",
        credentials=credentials_of(options),
    )


def credentials_of(options: Options) -> Credentials | None:
    """Return the credentials of a query; None: it has none. Raises OptionError: they cannot be sent."""
    given = options.authentication
    if given.token_file:
        return token_file(given.token_file)
    if given.password_file:
        return basic_file(given.password_file)
    try:
        if given.token:
            return token(given.token.text)
        if given.password:
            return basic(*given.password.text.split(":", 1))
    except CredentialsError as error:
        raise OptionError("authToken" if given.token else "authPassword", None, str(error)) from None
    # A broker looks at the certificate of a connection only if the client names this way to authenticate.
    return certificate() if options.tls.certificate_file else None


class LeasedClient(Generic[C]):
    """Lease of a client. Return it with `release`, once or more often."""

    def __init__(self, entry: _Entry, client: C) -> None:
        self.client = client
        self._entry: _Entry | None = entry

    def release(self) -> None:
        """On the loop only. The client may be closed IDLE_S later."""
        entry, self._entry = self._entry, None
        if entry is not None:
            entry.leases -= 1
            if entry.leases == 0:
                entry.unused.set()


ClientLease = LeasedClient[Client]
BOOKIES = "bookies"
"""Key of the reader of bookies. It is one for all clusters: bookies have other addresses in each."""


class _Entry:
    """One client and the task that keeps it open."""

    def __init__(self) -> None:
        self.leases = 0
        self.ready = trio.Event()
        self.client: Any = None
        self.error: Exception | None = None
        self.unused = trio.Event()
        """Set when the last lease was returned; replaced by the waiting task."""


class Runtime:
    """The loop of this process; take the one of `runtime()`."""

    def __init__(
        self,
        *,
        idle_s: float = IDLE_S,
        make_world: Callable[[], World] = real_world,
        open_bookies: Callable[[World], AbstractAsyncContextManager[KnownReader]] | None = None,
    ) -> None:
        self.pid = os.getpid()
        self._idle_s = idle_s
        self._make_world = make_world
        self._open_bookies = open_bookies
        self._token: trio.lowlevel.TrioToken | None = None
        self._stop: trio.Event | None = None
        self._nursery: trio.Nursery | None = None
        self._world: World | None = None
        self._entries: dict[Hashable, _Entry] = {}
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, name="quire-spark-loop", daemon=True)
        self._thread.start()
        if not self._started.wait(START_DEADLINE_S):
            raise RuntimeError(f"the event loop did not start in {START_DEADLINE_S:g} s")

    def call(self, function: Callable[..., Awaitable[T]], *args: object) -> T:
        """Run `await function(*args)` on the loop, wait, and raise its error. Call from any thread but the loop's."""
        assert self._token is not None, "the loop runs since __init__"
        return trio.from_thread.run(function, *args, trio_token=self._token)

    async def lease(self, service_url: str, options: ClientOptions) -> ClientLease:
        """Return the client of a cluster, opened if it is not; on the loop.

        Raises ValueError (the URL), ClientError."""
        world = self._world
        assert world is not None, "the loop runs since __init__"
        return await self._lease((service_url, options), service_url, partial(open_client, world, service_url, options))

    async def lease_bookies(self) -> LeasedClient[KnownReader]:
        """Return the reader of bookies, opened if it is not; on the loop."""
        assert self._world is not None, "the loop runs since __init__"
        if self._open_bookies is None:
            # Imported here, because processes that read through brokers do not need it.
            from quire.ledger.reading.known import open_known_reader

            self._open_bookies = open_known_reader
        return await self._lease(BOOKIES, BOOKIES, partial(self._open_bookies, self._world))

    async def _lease(
        self, key: Hashable, name: str, make: Callable[[], AbstractAsyncContextManager[C]]
    ) -> LeasedClient[C]:
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = _Entry()
            assert self._nursery is not None, "the loop runs since __init__"
            self._nursery.start_soon(self._keep, key, name, entry, make, name=f"client of {name}")
        entry.leases += 1
        try:
            await entry.ready.wait()
            if entry.client is None:
                assert entry.error is not None, "ready, and neither client nor error"
                raise entry.error
        except BaseException:
            entry.leases -= 1
            if entry.leases == 0:
                entry.unused.set()
            raise
        return LeasedClient(entry, entry.client)

    @property
    def clients(self) -> int:
        """Return the number of open clients."""
        return len(self._entries)

    def close(self) -> None:
        """Close every client and end the loop; waits briefly for it. Idempotent."""
        token, stop = self._token, self._stop
        if token is not None and stop is not None and self.pid == os.getpid():
            try:
                token.run_sync_soon(stop.set)
            except trio.RunFinishedError:
                pass
            self._thread.join(STOP_DEADLINE_S)

    async def _keep(
        self, key: Hashable, name: str, entry: _Entry, make: Callable[[], AbstractAsyncContextManager[object]]
    ) -> None:
        """Open a client, keep it while it is in use, and close it when it was unused for a while."""
        try:
            async with make() as client:
                entry.client = client
                entry.ready.set()
                while not await self._idle(entry):
                    pass
                # Removed from the map before any await, so that a closing client cannot be leased.
                del self._entries[key]
        except Exception as error:
            if entry.ready.is_set():
                _log.error("client of %s ended: %r", name, error, exc_info=error)
            entry.error = error
        finally:
            if self._entries.get(key) is entry:
                del self._entries[key]
            entry.ready.set()

    async def _idle(self, entry: _Entry) -> bool:
        """Wait until the client is unleased, and then for the pause; return whether it was not leased meanwhile."""
        await entry.unused.wait()
        entry.unused = trio.Event()
        if entry.leases:
            return False
        with trio.move_on_after(self._idle_s) as pause:
            await entry.unused.wait()
        return pause.cancelled_caught and entry.leases == 0

    def _run(self) -> None:
        trio.run(self._main)

    async def _main(self) -> None:
        self._world = self._make_world()
        self._stop = trio.Event()
        self._token = trio.lowlevel.current_trio_token()
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            self._started.set()
            await self._stop.wait()
            nursery.cancel_scope.cancel()


_runtime: Runtime | None = None
_lock = threading.Lock()


def runtime() -> Runtime:
    """Return the loop of this process, made at the first call; another one in a forked child."""
    global _runtime
    with _lock:
        if _runtime is None or _runtime.pid != os.getpid():
            _runtime = Runtime()
        return _runtime


def close_runtime() -> None:
    """End this process's loop, if there is one. The next `runtime()` makes another."""
    global _runtime
    with _lock:
        made, _runtime = _runtime, None
    if made is not None:
        made.close()


def _forget_lock() -> None:
    """Replace the lock in a forked child, because the parent's thread that may hold it does not exist there."""
    global _lock
    _lock = threading.Lock()


atexit.register(close_runtime)
os.register_at_fork(after_in_child=_forget_lock)
