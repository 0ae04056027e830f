"""Fixes of kazoo's connection to ZooKeeper: request numbers continue across connections, failures do not end its
thread, and a server that does not answer a new connection does not cost the session.

Numbers. Each request has a number. A follower or observer recognises the commits of its own clients' writes by session
and number alone: a commit that equals the head of its queue in both is that request's answer. So a session must never
reuse a number, not in its next connection either; ZooKeeper's own client continues counting. kazoo begins at 1 with
each connection. Then a write that an earlier server of the session had proposed, and that is committed after the
session has moved, answers a new request with the same number. The request appears successful although it was not
executed, or, if the two differ in kind, gets no answer at all ("Destruction averted" in the server's log) and the next
one gets it.
Source: ZooKeeper's CommitProcessor.run, ClientCnxn.getXid, ServerCnxn.serialize.

Failures. An answer that does not belong to the oldest open request, or that breaks kazoo, counts as a lost connection,
as in ZooKeeper's own client (ClientCnxn's "Xid out of order"). Every request of the connection fails with that, also
the one whose answer was being read, and the next connection continues the session. kazoo alone would end its thread,
and forget the session.

Handshakes. A server that is just starting cannot close a connection: it listens before it has its database, without
which the close fails, and the connection stays open without an answer (ZooKeeper 3.9: a NullPointerException in
ZooKeeperServer.removeCnxn). kazoo waits for the answer as long as a session lasts, and then the session has expired. So
a handshake has a third of that time.

All of it runs in kazoo's thread. It relies on parts outside kazoo's public interface: the overridden methods and what
they use.
"""

from __future__ import annotations

from typing import Any, Final

from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionDropped, ConnectionLoss
from kazoo.protocol.connection import PING_XID, STOP_CONNECTING, WATCH_XID, ConnectionHandler
from kazoo.protocol.states import KeeperState
from kazoo.retry import RetryFailedError

HANDSHAKE_S_MIN: Final = 2.0
"""Time that a handshake has, however short the session."""


class Connection(ConnectionHandler):  # type: ignore[misc]  # kazoo has no types
    """All connections of one client, one after the other. Created by `mend`."""

    _numbers_used = 0
    """Number of the last request of earlier connections; 1 to 2^31 - 1, then 1 again."""

    def zk_loop(self) -> None:
        """Connect and serve, again and again: until `stop`, or until credentials are refused."""
        client, retry = self.client, self.retry_sleeper.copy()
        self.connection_stopped.clear()
        try:
            while not client._stopped.is_set():
                try:
                    if retry(self._connect_loop, retry) is STOP_CONNECTING:
                        break
                except RetryFailedError:
                    break  # `stop` was called while it waited; it never gives up
                except Exception as error:
                    self.logger.warning("Connection broken: %r", error)
                    if client.client_state != KeeperState.CONNECTING:
                        client._session_callback(KeeperState.CONNECTING)
                    client._stopped.wait(retry.delay)
        finally:
            self.connection_stopped.set()
            client._session_callback(KeeperState.CLOSED)

    def _connect_attempt(self, host: str, hostip: str, port: int, retry: Any) -> Any:
        self._numbers_used = self._xid or 0  # before kazoo sets it to 0
        return super()._connect_attempt(host, hostip, port, retry)

    def _connect(self, host: str, hostip: str, port: int) -> Any:
        self._xid = self._numbers_used
        return super()._connect(host, hostip, port)

    def _invoke(self, timeout: float, request: Any, xid: int | None = None) -> Any:
        """Make a request of a handshake; `timeout` is that of the session. ConnectionDropped, kazoo's time-out."""
        return super()._invoke(min(timeout, max(timeout / 3, HANDSHAKE_S_MIN)), request, xid)

    def _read_socket(self, read_timeout: float) -> Any:
        """Read one answer, event or ping. ConnectionDropped if it makes no sense."""
        header, data, offset = self._read_header(read_timeout)
        number = header.xid
        if number == PING_XID:
            self.ping_outstanding.clear()
            return None
        if number == WATCH_XID:
            return self._read_watch_event(data, offset)
        open_requests = self.client._pending
        if not open_requests:
            raise ConnectionDropped(f"an answer came to request {number}, but no request is open")
        _, answer, due = open_requests[0]
        if number != due:
            raise ConnectionDropped(f"the answer to request {number} came instead of the answer to {due} was due")
        try:
            return self._read_response(header, data, offset)
        except Exception:
            if answer is not None:
                answer.set_exception(ConnectionLoss())  # kazoo has removed it and will not report it
            raise


def mend(client: KazooClient) -> None:
    """Install such a connection in a client that was not started yet."""
    old = client._connection
    client._connection = Connection(client, old.retry_sleeper, logger=old.logger, sasl_options=old.sasl_options)
