"""kazoo's connection to ZooKeeper, mended: its requests are numbered on, and nothing that goes wrong ends its thread.

Numbers. Each request carries a number, and a follower or observer knows the commits of its own clients' writes by session
and number alone: a commit that equals the head of its queue in these two is that request's answer. So the numbers of a
session must never come again, not in its next connection either; ZooKeeper's own client counts on. kazoo begins at 1 with
each connection. Then a write that a former server of the session had proposed, and that is committed after the session has
moved, answers a new request of the same number: with a success that it had not, or, where the two differ in kind, with no
answer at all ("Destruction averted" in the server's log) and the next one in its place.
Source: ZooKeeper's CommitProcessor.run, ClientCnxn.getXid, ServerCnxn.serialize.

Failures. An answer that is not to the oldest open request, or that breaks kazoo, is a lost connection, as ZooKeeper's own
client has it (ClientCnxn's "Xid out of order"): every request of the connection is told so, also the one whose answer was just
being read, and the next connection goes on with the session. kazoo would end its thread, and forget the session.

All of it runs in kazoo's thread. Taken beyond its public interface: what is overridden here and what that uses.
"""

from __future__ import annotations

from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionDropped, ConnectionLoss
from kazoo.protocol.connection import PING_XID, STOP_CONNECTING, WATCH_XID, ConnectionHandler
from kazoo.protocol.states import KeeperState
from kazoo.retry import RetryFailedError


class Connection(ConnectionHandler):  # type: ignore[misc]  # kazoo has no types
    """All connections of one client, one after the other. Made by `mend`."""

    _numbers_used = 0
    """The number of the last request of the connections before; 1 to 2^31 - 1, then 1 again."""

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
                    break  # `stop` came while it waited; it never gives up
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

    def _read_socket(self, read_timeout: float) -> Any:
        """Take one answer, event or ping. ConnectionDropped if it makes no sense."""
        header, data, offset = self._read_header(read_timeout)
        number = header.xid
        if number == PING_XID:
            self.ping_outstanding.clear()
            return None
        if number == WATCH_XID:
            return self._read_watch_event(data, offset)
        open_requests = self.client._pending
        if not open_requests:
            raise ConnectionDropped(f"an answer came to request {number}, and there is no open one")
        _, answer, due = open_requests[0]
        if number != due:
            raise ConnectionDropped(f"the answer to request {number} came where that to {due} was due")
        try:
            return self._read_response(header, data, offset)
        except Exception:
            if answer is not None:
                answer.set_exception(ConnectionLoss())  # kazoo has taken it out and will not tell it
            raise


def mend(client: KazooClient) -> None:
    """Give a client that was not started yet such a connection."""
    old = client._connection
    client._connection = Connection(client, old.retry_sleeper, logger=old.logger, sasl_options=old.sasl_options)
