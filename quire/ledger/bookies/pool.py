"""Connection pool of one ledger client, by bookie and protocol version.

    protocol "v2"   a link of version 2 for adds and reads; a second one of version 3 for requests that version 2 lacks:
                    explicit LACs, force, long poll, bookie info, deferred sync
    protocol "v3"   all requests by version 3

Source: BookKeeper's BookieClientImpl, whose v2 mode keeps a second pool of v3 connections too.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal, TypeAlias

from quire.ledger.bookies.answers import Answer, Body, failed
from quire.ledger.bookies.connection import GIVE_UP_AFTER, AddChannel, AddReceiver, BookieConnection, V2Connection
from quire.ledger.bookies.connection_v3 import V3Connection
from quire.ledger.bookies.deadlines import DeadlineWheel
from quire.ledger.bookies.link import BookieLink
from quire.ledger.errors import BookieUnavailableError

__all__ = [
    "GIVE_UP_AFTER",
    "AddChannel",
    "AddReceiver",
    "Answer",
    "Body",
    "BookieClient",
    "BookieConnection",
    "V2Connection",
    "V3Connection",
    "WireProtocol",
    "failed",
]

WireProtocol: TypeAlias = Literal["v2", "v3"]


class BookieClient:
    """Connections by bookie; opened when first needed, forgotten when broken."""

    def __init__(
        self,
        connect: Callable[[str], BookieLink],
        wheel: DeadlineWheel,
        read_timeout_s: float,
        *,
        protocol: WireProtocol = "v2",
    ) -> None:
        self._connect = connect
        self._wheel = wheel
        self._read_timeout_s = read_timeout_s
        self._protocol: WireProtocol = protocol
        self._connections: dict[WireProtocol, dict[str, list[BookieConnection]]] = {"v2": {}, "v3": {}}
        self.closed = False

    def connection(self, bookie_id: str) -> BookieConnection:
        """Return a connection for requests other than adds; BookieUnavailableError if it cannot be opened."""
        return self._any(bookie_id, self._protocol)

    def channel(
        self, bookie_id: str, ledger_id: int, receiver: AddReceiver, index: int, write_flags: int = 0
    ) -> AddChannel:
        """Return a channel for the adds of a ledger; with `write_flags` it always uses version 3.

        BookieUnavailableError.
        """
        protocol = "v3" if write_flags else self._protocol
        for connection in self._usable(bookie_id, protocol):
            if ledger_id not in connection.channels:
                return connection.open_channel(ledger_id, receiver, index, write_flags)
        return self._open(bookie_id, protocol).open_channel(ledger_id, receiver, index, write_flags)

    def close(self) -> None:
        """Close all connections without notifying the writers."""
        self.closed = True
        for by_bookie in self._connections.values():
            for connections in list(by_bookie.values()):
                for connection in connections:
                    connection.channels.clear()
                    connection.give_up(BookieUnavailableError("the ledger client is closed"))
            by_bookie.clear()

    def _any(self, bookie_id: str, protocol: WireProtocol) -> BookieConnection:
        connections = self._usable(bookie_id, protocol)
        return connections[0] if connections else self._open(bookie_id, protocol)

    def _usable(self, bookie_id: str, protocol: WireProtocol) -> list[BookieConnection]:
        by_bookie = self._connections[protocol]
        connections = [each for each in by_bookie.get(bookie_id, ()) if each.broken is None]
        by_bookie[bookie_id] = connections
        return connections

    def _open(self, bookie_id: str, protocol: WireProtocol) -> BookieConnection:
        if self.closed:
            raise BookieUnavailableError("the ledger client is closed")
        link = self._connect(bookie_id)
        connection: BookieConnection
        if protocol == "v3":
            connection = V3Connection(bookie_id, link, self._wheel, self._read_timeout_s)
        else:
            side = partial(self._any, bookie_id, "v3")
            connection = V2Connection(bookie_id, link, self._wheel, self._read_timeout_s, side=side)
        self._connections[protocol][bookie_id].append(connection)
        return connection
