"""A link to a bookie over the Network door: connects by itself, sends the output of a pass with one write, reads in one
task.

send -> waiting (until connected) -> outbox -> flush at the end of the pass -> socket
socket -> FrameStream -> receiver, all whole frames of a chunk in one pass
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

import trio

from quire.ledger.bookies.authentication import BookieCredentials, authenticate
from quire.ledger.bookies.link import BookieLink, Closed, Receive, ignore_closed
from quire.ledger.bookies.start_tls import start_tls
from quire.ledger.errors import BookieProtocolError, BookieUnavailableError
from quire.metadata.errors import MetadataError
from quire.wire.bookkeeper import v2
from quire.wire.bookkeeper.entry import Buffer
from quire.wire.bookkeeper.errors import BookkeeperWireError
from quire.wire.bookkeeper.stream import FrameStream
from quire.world.doors import Network, Stream
from quire.world.faults import Faults
from quire.world.outbox import Outbox, Turn

if TYPE_CHECKING:
    from quire.world.tls_sides import ClientTls

Resolve: TypeAlias = Callable[[str], Awaitable[tuple[str, int]]]

CONNECT_TIMEOUT_S = 10.0
OUTBOX_BYTES_MAX = 64 << 20


async def address_of(bookie_id: str) -> tuple[str, int]:
    """Return host and port of a bookie whose id is its address, `host:port`, the usual kind. OSError if it is not."""
    host, colon, port = bookie_id.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit():
        raise OSError(f"bookie id {bookie_id!r} is not host:port")
    return host, int(port)


class TcpLink:
    """Link over one TCP connection, opened in a task of `nursery`.

    Up to `bytes_max` unsent bytes are kept. Above that the link breaks, because a bookie so far behind is of no use.
    """

    def __init__(
        self,
        network: Network,
        nursery: trio.Nursery,
        bookie_id: str,
        *,
        resolve: Resolve = address_of,
        turn: Turn | None = None,
        faults: Faults | None = None,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        bytes_max: int = OUTBOX_BYTES_MAX,
        tls: ClientTls | None = None,
        credentials: BookieCredentials | None = None,
    ) -> None:
        """`turn`: the pass that sends frames at its end, and that is ended after answers; None: a task of the link
        sends them, in the next step of the scheduler. `faults`: receives exceptions of the code that handles answers.
        `tls`: of the connection; None: it has none. `credentials`: sent before anything else; None: nothing is."""
        self.closed: Closed = ignore_closed
        self._bookie_id = bookie_id
        self._receive: Receive | None = None
        self._network = network
        self._resolve = resolve
        self._turn = turn
        self._faults = faults or Faults()
        self._connect_timeout_s = connect_timeout_s
        self._bytes_max = bytes_max
        self._tls = tls
        self._credentials = credentials
        self._waiting: list[Buffer] = []
        self._waiting_bytes = 0
        self._outbox: Outbox | None = None
        self._written = trio.Event()
        self._over = False
        self._scope = trio.CancelScope()
        nursery.start_soon(self._run, name=f"link to bookie {bookie_id}")

    def set_receiver(self, receive: Receive) -> None:
        self._receive = receive

    def send(self, frames: Sequence[v2.Frame]) -> None:
        if self._over:
            return
        parts: list[Buffer] = []
        for frame in frames:
            if isinstance(frame, tuple):
                parts += frame
            else:
                parts.append(frame)
        if self._outbox is not None:
            self._outbox.write(parts)
            if self._turn is None:
                self._written.set()
            else:
                self._turn.mark(self._outbox)
            return
        self._waiting += parts
        self._waiting_bytes += sum(map(len, parts))
        if self._waiting_bytes > self._bytes_max:
            self._broken(
                BookieUnavailableError(f"bookie {self._bookie_id}: {self._waiting_bytes} bytes wait for a connection")
            )

    def close(self) -> None:
        self._over = True
        self._waiting = []
        self._scope.cancel()

    def _broken(self, error: BookieUnavailableError) -> None:
        if not self._over:
            self.close()
            self._faults.call(f"callback for the end of the link to bookie {self._bookie_id}", self.closed, error)

    def _outbox_broken(self, error: OSError) -> None:
        self._broken(BookieUnavailableError(f"bookie {self._bookie_id}: {error}"))

    async def _run(self) -> None:
        with self._scope:
            stream = await self._connect()
            if stream is None:
                return
            try:
                outbox = Outbox(stream, bytes_max=self._bytes_max, on_broken=self._outbox_broken)
                outbox.write(self._waiting)
                self._waiting = []
                self._outbox = outbox
                outbox.flush()
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(outbox.run, name=f"outbox to bookie {self._bookie_id}")
                    if self._turn is None:
                        nursery.start_soon(self._flush, outbox, name=f"flush to bookie {self._bookie_id}")
                    await self._read(stream)
            finally:
                stream.close()

    async def _connect(self) -> Stream | None:
        try:
            with trio.fail_after(self._connect_timeout_s):
                host, port = await self._resolve(self._bookie_id)
                stream = await self._network.connect(host, port)
                if self._tls is not None:
                    stream = await start_tls(stream, self._tls, host)
                if self._credentials is not None:
                    await authenticate(stream, self._credentials)
                return stream
        except (OSError, MetadataError) as error:
            self._broken(BookieUnavailableError(f"bookie {self._bookie_id} cannot be reached: {error}"))
        except trio.TooSlowError:
            text = f"bookie {self._bookie_id} cannot be reached within {self._connect_timeout_s} s"
            self._broken(BookieUnavailableError(text))
        return None

    async def _flush(self, outbox: Outbox) -> None:
        """Send once per pass, whatever the number of `send` calls in it."""
        while True:
            await self._written.wait()
            self._written = trio.Event()
            outbox.flush()

    async def _read(self, stream: Stream) -> None:
        """Pass on responses until the connection ends."""
        frames = FrameStream()
        assert self._receive is not None, "set_receiver comes before the first response"
        try:
            while size := await stream.receive_into(frames.space()):
                chunk = frames.received(size)
                if chunk:
                    self._answered(chunk)
        except OSError as error:
            self._broken(BookieUnavailableError(f"bookie {self._bookie_id}: {error}"))
        except BookkeeperWireError as error:
            self._broken(BookieProtocolError(f"bookie {self._bookie_id} sent something that is not a frame: {error}"))
        else:
            self._broken(BookieUnavailableError(f"bookie {self._bookie_id} closed the connection"))

    def _answered(self, chunk: Buffer) -> None:
        """Handle answers in one pass: output caused by them leaves at its end, not in a later step of the scheduler."""
        assert self._receive is not None, "set_receiver comes before the first response"
        turn = self._turn
        if turn is not None:
            turn.working = True
        try:
            self._receive(chunk)
        except Exception as error:
            self._faults.raised(f"handler of answers of bookie {self._bookie_id} cause", error)
        finally:
            if turn is not None:
                turn.flush()


def tcp_links(
    network: Network,
    nursery: trio.Nursery,
    *,
    resolve: Resolve = address_of,
    turn: Turn | None = None,
    faults: Faults | None = None,
    tls: ClientTls | None = None,
    credentials: BookieCredentials | None = None,
) -> Callable[[str], BookieLink]:
    """Return a `connect` function for LedgerClient whose links have their tasks in `nursery`."""

    def connect(bookie_id: str) -> BookieLink:
        return TcpLink(
            network,
            nursery,
            bookie_id,
            resolve=resolve,
            turn=turn,
            faults=faults,
            tls=tls,
            credentials=credentials,
        )

    return connect
