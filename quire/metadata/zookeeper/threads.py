"""The boundary to kazoo's threads: one per client, which connects, sends, receives and pings.

Events of that thread are posted to the event loop by trio's token, in their order: answers, watch events, changes of
the connection. None of our other code runs there. Simultaneous posts are one wake-up, so a call costs no thread switch
besides kazoo's own.

Requests are created and queued as in kazoo's asynchronous methods, but without those methods, which create two results
with a condition each, and without kazoo's worker threads for callbacks. Used parts outside its public interface:
KazooClient._call, ._data_watchers, ._child_watchers, kazoo.protocol.serialization, and those in `connection`. The tests
run against a real server, so that a release which changes them is noticed.
"""

from __future__ import annotations

import logging
import os
import select
import ssl
import struct
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import trio
from kazoo.client import KazooClient
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.states import KazooState, KeeperState
from kazoo.retry import KazooRetry

from quire.metadata.zookeeper.config import Tls, ZooKeeperConfig
from quire.metadata.zookeeper.connection import mend
from quire.service.log import get_logger
from quire.world.faults import Faults

log = get_logger(__name__)

_INT = struct.Struct("!i")
_ANY_WATCH = 3


@dataclass(frozen=True)
class RemoveWatches:
    """ZooKeeper's request 18, which kazoo lacks: forget this session's watches on a path. Source: ZooKeeper's
    zookeeper.jute, RemoveWatchesRequest; ZooDefs.OpCode."""

    path: str
    forget: Callable[[], None]
    """Called when it is done, in kazoo's thread, the only one that changes kazoo's tables of watches."""

    type: ClassVar[int] = 18

    def serialize(self) -> bytes:
        name = self.path.encode()
        return _INT.pack(len(name)) + name + _INT.pack(_ANY_WATCH)

    def deserialize(self, data: bytes, offset: int) -> bool:
        self.forget()
        return True


class Answerable(Protocol):
    """Receiver of a request's outcome from kazoo's thread. More than one may arrive; the first one counts."""

    def set(self, value: Any) -> None: ...

    def set_exception(self, error: Exception) -> None: ...


class Observer(Protocol):
    """Observer of connection events, called on the event loop."""

    def connected(self, session: int) -> None: ...

    def disconnected(self) -> None: ...

    def session_expired(self) -> None: ...

    def ended(self, why: str) -> None:
        """Called when there will be no connection any more: refused credentials, or a failure inside kazoo."""


class Link:
    """One kazoo client. Created and used on the event loop; `stop` blocks and runs off it."""

    def __init__(self, config: ZooKeeperConfig, observer: Observer, faults: Faults | None = None) -> None:
        """`faults`: receives exceptions of posted functions."""
        self._faults = faults or Faults()
        self._observer = observer
        self._token = trio.lowlevel.current_trio_token()
        self._inbox: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._scheduled = False
        self._stopping = False
        self.words = _Words()
        tls = config.tls
        self._client = KazooClient(
            hosts=",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in config.servers),
            timeout=config.session_timeout_s,
            handler=_Handler(tls),
            auth_data=list(config.auth),
            connection_retry=KazooRetry(
                max_tries=-1, delay=config.retry_first_s, backoff=2, max_delay=config.retry_max_s
            ),
            command_retry=KazooRetry(max_tries=1),
            logger=self.words.logger,
            use_ssl=tls is not None,
        )
        mend(self._client)
        self._client.add_listener(self._state_changed)

    @property
    def last_zxid(self) -> int:
        """Return the newest transaction of the server known to this client."""
        zxid: int = self._client.last_zxid
        return zxid

    def start(self) -> None:
        """Begin to connect, and reconnect, until `stop`."""
        self._client.start_async()

    def send(self, request: Any, answer: Answerable) -> None:
        """Queue one of kazoo's requests, with the whole path."""
        self._client._call(request, answer)

    def remove_watches(self, path: str, watchers: Sequence[Callable[[Any], None]]) -> RemoveWatches:
        """Return the request that removes all watches on a whole path, of which ours are `watchers`."""
        return RemoveWatches(path, lambda: self._forget(path, watchers))

    def _forget(self, path: str, watchers: Sequence[Callable[[Any], None]]) -> None:
        for table in (self._client._data_watchers, self._client._child_watchers):
            if path in table:
                table[path].difference_update(watchers)
                if not table[path]:
                    del table[path]

    def post(self, func: Callable[..., None], *args: Any) -> None:
        """Run `func(*args)`, which must not raise, on the event loop, in the order of the posts; from any thread."""
        self._inbox.append((func, args))
        if not self._scheduled:
            self._scheduled = True
            try:
                self._token.run_sync_soon(self._drain)
            except trio.RunFinishedError:
                return  # the loop has ended, nothing to report to

    def stop(self) -> None:
        """End the session, wait for the thread, free the sockets; blocking, at most about a session timeout."""
        self._stopping = True
        try:
            self._client.stop()
        finally:
            if self._client._connection.connection_stopped.is_set():
                self._client.close()

    def _drain(self) -> None:
        self._scheduled = False  # before reading: later posts are seen, or scheduled again
        inbox = self._inbox
        for _ in range(len(inbox)):
            func, args = inbox.popleft()
            self._faults.call("what an answer or event of ZooKeeper causes", func, *args)

    def _state_changed(self, state: str) -> None:
        """Handle a state change, in kazoo's thread."""
        if state == KazooState.CONNECTED:
            self.post(self._observer.connected, self._client.client_id[0])
        elif state == KazooState.SUSPENDED:
            self.post(self._observer.disconnected)
        elif self._client.client_state == KeeperState.EXPIRED_SESSION:
            self.post(self._observer.session_expired)
        elif self._client.client_state == KeeperState.AUTH_FAILED:
            self.post(self._observer.ended, "the server refused the credentials")
        elif not self._stopping:
            self.post(self._observer.ended, f"kazoo's thread has ended: {self.words.last or 'no reason given'}")


class _Handler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """Handler without worker threads, with cheaper waits (about 3 us each instead of 20), and with TLS.

    Files of TLS are read again when they have changed, and failed handshakes leave no socket open.
    """

    def __init__(self, tls: Tls | None) -> None:
        super().__init__()
        self._tls = None if tls is None else _Contexts(tls)

    def create_connection(
        self, address: tuple[str, int], hostname: str | None = None, timeout: float | None = None, **_: object
    ) -> Any:
        connection = super().create_connection(address, timeout=timeout)
        if self._tls is None:
            return connection
        # (`wrap_socket` closes the connection when it fails.)
        return self._tls.current().wrap_socket(connection, server_hostname=hostname)

    def start(self) -> None:
        self._running = True

    def stop(self) -> None:
        self._running = False

    def dispatch_callback(self, callback: Any) -> None:
        """Run a callback here: ours only post to the event loop, so they stay in order with the answers."""
        callback.func(*callback.args)

    def select(
        self, readable: Sequence[Any], writable: Sequence[Any], _: Sequence[Any], timeout: float | None = None
    ) -> tuple[list[Any], list[Any], list[Any]]:
        # Data already decrypted by TLS does not make the socket readable.
        pending = [each for each in readable if hasattr(each, "pending") and each.pending()]
        poll = select.poll()
        for each in readable:
            poll.register(each, select.POLLIN)
        for each in writable:
            poll.register(each, select.POLLOUT)
        ready = {fd for fd, _ in poll.poll(0 if pending else None if timeout is None else max(timeout, 0) * 1000)}
        return (
            [each for each in readable if each in pending or each.fileno() in ready],
            [each for each in writable if each.fileno() in ready],
            [],
        )


class _Contexts:
    """TLS contexts of one client: a new one when a file has changed since the last look, at each connection.

    Files that cannot be used change nothing, and are reported once. Blocking: runs in kazoo's thread.
    """

    def __init__(self, tls: Tls) -> None:
        """OSError: the files cannot be used."""
        self._tls = tls
        self._seen = self._look()
        self._context = _tls_context(tls)

    def current(self) -> ssl.SSLContext:
        """Return the context for a new connection."""
        seen = self._look()
        if seen != self._seen:
            self._seen = seen
            try:
                self._context = _tls_context(self._tls)
            except OSError as error:
                log.warning("tls files cannot be used, the previous ones stay", server="ZooKeeper", reason=str(error))
            else:
                log.info("tls files changed, used for new connections", server="ZooKeeper")
        return self._context

    def _look(self) -> list[tuple[int, int, int] | None]:
        """Return what differs when a file is replaced or written; None for a file that is not there."""
        return [_mark(name) for name in (self._tls.ca_file, self._tls.certificate_file, self._tls.key_file) if name]


def _mark(name: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(name)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def _tls_context(tls: Tls) -> ssl.SSLContext:
    """Return the TLS context. Blocking: reads files. OSError if they cannot be read or are invalid."""
    context = ssl.create_default_context(cafile=tls.ca_file)
    context.check_hostname = tls.check_hostname and tls.verify
    context.verify_mode = ssl.CERT_REQUIRED if tls.verify else ssl.CERT_NONE
    if tls.certificate_file is not None:
        context.load_cert_chain(tls.certificate_file, tls.key_file, tls.key_password)
    return context


class _Words(logging.Handler):
    """Log handler for kazoo: keeps its lines for our own messages, and passes on failures inside kazoo."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.last = ""
        self.logger = logging.Logger("kazoo", logging.WARNING)  # not in the tree, so without other handlers
        self.logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        if record.msg == "Transition to CONNECTING":
            return  # it follows the reason, which is wanted
        self.last = record.getMessage()
        if record.exc_info and record.exc_info[1] is not None:
            self.last = f"{self.last}: {record.exc_info[1]}"
        if record.levelno >= logging.ERROR:
            log.error("kazoo failed", reason=self.last)
        else:
            log.debug("kazoo", reason=self.last)
