"""Sockets of the real world."""

from __future__ import annotations

import errno
import os
import resource
import socket
import struct
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import trio

from quire.world.doors import Buffer, Listener, Stream
from quire.world.real_disk import closed
from quire.world.socket_options import DEFAULT_OPTIONS, SocketOptions

_IOV_MAX = 1024
"""Parts per vectored write or send: Linux's UIO_MAXIOV."""
_JOIN_BELOW = 4096
"""Mean part size, in bytes, below which copying parts together is cheaper than an iovec for each."""
_JOIN_BYTES_MAX = 512 << 10
"""Approximate number of bytes joined per send: joining data that a full socket buffer refuses is wasted."""
_EAGER_RECEIVES = 8
"""Receives in a row that may succeed at once before the task yields."""
_EAGER_BYTES = 64 << 10
"""Bytes received in a row after which the task yields earlier."""
_NO_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
CONNECTIONS_MIN = 16
"""Lower bound on the connections of one port, however few descriptors there are: `check_descriptors` is stricter."""
_LOW_WATER_MIN = 16 * 1024
"""Number of missing bytes from which on it pays to tell the kernel not to wake us for fewer: the rest of a large frame.
"""


class RealStream:
    def __init__(self, sock: socket.socket, address: Any, *, no_delay: bool = True) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, int(no_delay))
        self._socket = sock
        self._closed = False
        self._eager = _EAGER_RECEIVES
        self._eager_bytes = _EAGER_BYTES
        self._drained = False
        self._low_water = 1
        host, port = address[:2]
        self._peer = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    @property
    def socket(self) -> socket.socket:
        """Return the socket, for its addresses."""
        return self._socket

    @property
    def peer(self) -> str:
        return self._peer

    @property
    def peer_certificate(self) -> bytes | None:
        return None

    async def receive_into(self, buffer: memoryview, at_least: int = 1) -> int:
        # Available data is taken without a trip through the loop, but a peer that never stops sending must not starve
        # the others. The pause comes before the receive, because a cancellation must not lose received bytes. No pause
        # is needed where the poller is asked anyway.
        if not self._drained and (self._eager <= 0 or self._eager_bytes <= 0):
            self._rested()
            await trio.lowlevel.checkpoint()
        while not self._closed:
            if not self._drained:
                try:
                    size = self._socket.recv_into(buffer)
                except BlockingIOError:
                    pass
                else:
                    self._eager -= 1
                    self._eager_bytes -= size
                    # A receive that did not fill the buffer took all there was: the next one asks the poller first.
                    self._drained = 0 < size < len(buffer)
                    return size
            self._drained = False
            self._rested()
            low_water = at_least if at_least >= _LOW_WATER_MIN else 1
            if low_water != self._low_water:
                self._low_water = low_water
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, low_water)
            try:
                await trio.lowlevel.wait_readable(self._socket)
            except trio.ClosedResourceError:
                return 0
        return 0

    def _rested(self) -> None:
        self._eager = _EAGER_RECEIVES
        self._eager_bytes = _EAGER_BYTES

    def send_nowait(self, parts: Sequence[Buffer]) -> int:
        try:
            if len(parts) == 1:
                return self._socket.send(parts[0])
            return self._send_many(parts)
        except BlockingIOError:
            return 0

    def _send_many(self, parts: Sequence[Buffer]) -> int:
        sent = 0
        count = len(parts)
        at = 0
        while at < count:
            batch = parts[at : at + _IOV_MAX]
            size = sum(map(len, batch))
            if size < _JOIN_BELOW * len(batch):
                if size > _JOIN_BYTES_MAX:
                    batch = batch[: len(batch) * _JOIN_BYTES_MAX // size + 1]
                joined = b"".join(batch)
                size = len(joined)
            else:
                joined = None
            try:
                taken = self._socket.sendmsg(batch) if joined is None else self._socket.send(joined)
            except BlockingIOError:
                return sent
            sent += taken
            if taken < size:
                return sent
            at += len(batch)
        return sent

    async def wait_writable(self) -> None:
        if self._closed:
            raise closed()
        try:
            await trio.lowlevel.wait_writable(self._socket)
        except trio.ClosedResourceError:
            raise closed() from None

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            trio.lowlevel.notify_closing(self._socket)
            self._socket.close()


def raise_descriptor_limit() -> None:
    """Raise this process's limit of descriptors to its maximum: the soft limit is often 1024, for programs that use
    select().
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        # If it cannot be raised, connections are bounded by it as it is.
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def connections_that_fit(descriptors: int) -> int:
    """Return how many connections `limit` descriptors allow. A part is left for files and outgoing connections. 0: no
    bound.

    >>> [connections_that_fit(limit) for limit in (64, 256, 1024, 20_000)]
    [16, 176, 768, 18976]
    """
    if descriptors == resource.RLIM_INFINITY:
        return 0
    kept = min(1024, max(80, descriptors // 4))
    return max(CONNECTIONS_MIN, descriptors - kept)


def descriptors_kept(limit: int) -> int:
    """Return how many of `limit` descriptors must be free for files when a connection is accepted.

    >>> [descriptors_kept(limit) for limit in (64, 256, 1024, 20_000)]
    [10, 32, 128, 1024]
    """
    return min(1024, max(10, limit // 8))


def check_descriptors(descriptor: int) -> None:
    """Raise OSError (EMFILE) if a connection would take a descriptor that is kept for files, so that it waits in the
    port's queue.

    The system gives out the lowest free number, so a copy of any `descriptor` shows how many may be left.
    """
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY:
        return
    lowest = os.dup(descriptor)
    os.close(lowest)
    if lowest >= limit - descriptors_kept(limit):
        raise OSError(errno.EMFILE, f"{limit - lowest} of {limit} descriptors are free, and kept for files")


class RealListener:
    def __init__(self, sock: socket.socket, options: SocketOptions = DEFAULT_OPTIONS) -> None:
        self._socket = sock
        self._no_delay = options.no_delay
        self._closed = False
        self._address: tuple[str, int] = sock.getsockname()[:2]

    @property
    def address(self) -> tuple[str, int]:
        return self._address

    @property
    def capacity(self) -> int:
        return connections_that_fit(resource.getrlimit(resource.RLIMIT_NOFILE)[0])

    async def accept(self) -> Stream:
        await trio.lowlevel.checkpoint()
        while not self._closed:
            check_descriptors(self._socket.fileno())
            try:
                return RealStream(*self._socket.accept(), no_delay=self._no_delay)
            except BlockingIOError:
                with suppress(trio.ClosedResourceError):
                    await trio.lowlevel.wait_readable(self._socket)
            except OSError as error:
                if error.errno in _NO_DESCRIPTORS:
                    raise  # the connection waits in the backlog until another one is closed
                # Any other error concerns only the connection to be accepted, which is gone already.
        raise closed()

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            trio.lowlevel.notify_closing(self._socket)
            self._socket.close()


def _rows(options: SocketOptions) -> list[tuple[int, int, int | bytes]]:
    """Return the arguments of setsockopt, one call a row. Connections inherit them from the listening socket."""
    rows: list[tuple[int, int, int | bytes]] = []
    if options.keep_alive:
        rows.append((socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1))
        for option, value in (
            (socket.TCP_KEEPIDLE, options.keep_idle_s),
            (socket.TCP_KEEPINTVL, options.keep_interval_s),
            (socket.TCP_KEEPCNT, options.keep_count),
        ):
            if value:
                rows.append((socket.IPPROTO_TCP, option, value))
    if options.abort_at_close:
        rows.append((socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)))
    return rows


class RealNetwork:
    async def listen(self, host: str, port: int, options: SocketOptions = DEFAULT_OPTIONS) -> Listener:
        found = await trio.socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE | socket.AI_NUMERICSERV
        )
        # A name such as localhost may have addresses of both kinds; IPv4 is usually meant.
        family, kind, protocol, _, address = min(found, key=lambda row: row[0] != socket.AF_INET)
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            for row in _rows(options):
                sock.setsockopt(*row)
            sock.bind(address)
            sock.listen(1024)
        except BaseException:
            sock.close()
            raise
        return RealListener(sock, options)

    async def connect(self, host: str, port: int) -> Stream:
        found = await trio.socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICSERV)
        failure: OSError | None = None
        for family, kind, protocol, _, address in found:
            sock = socket.socket(family, kind, protocol)
            try:
                await _connect(sock, address)
                return RealStream(sock, address)
            except OSError as error:
                sock.close()
                failure = failure or error
            except BaseException:
                sock.close()
                raise
        raise failure or OSError(errno.EADDRNOTAVAIL, f"no address for {host}")


async def _connect(sock: socket.socket, address: Any) -> None:
    sock.setblocking(False)
    try:
        sock.connect(address)
    except BlockingIOError:
        await trio.lowlevel.wait_writable(sock)
        code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise OSError(code, os.strerror(code)) from None
