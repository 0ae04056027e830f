"""TLS over any stream: `TlsStream` has the interface of a Stream, and its bytes travel encrypted in another one.

Encryption goes by run, as everything on the hot path. What the peer sent since the last receive is decrypted into one
buffer, however many records it has. What a pass of the server sends becomes one run of records, of up to
ENCRYPTED_MAX bytes, in one write. OpenSSL works on memory only, so a step never waits for a peer.

Why this is hard: encrypted bytes cannot be taken back. When the peer's window accepts only a part of a run of records,
the rest has to leave later, before anything else. It is kept (`_unsent`), and the bytes it was made of count as not
sent (`_owed`): the caller waits, and offers them again with its next call, where they are skipped. So an outbox has the
right number of pending bytes, its bound holds, and no task is needed for the rest. At most ENCRYPTED_MAX bytes are
encrypted and not sent.
"""

from __future__ import annotations

import errno
import ssl
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Final, cast

import trio

from quire.world.doors import Buffer, Stream

ENCRYPTED_MAX: Final = 256 << 10
"""Bytes encrypted at once, and the most that wait for the peer's window in encrypted form."""
SCRATCH_SIZE: Final = 256 << 10
"""Encrypted bytes received at once."""
_SCRATCH_MIN: Final = 17 << 10
"""Encrypted bytes received at once for a small buffer: about one record."""
_UNASKED_MAX: Final = 64 << 10
"""Bytes of answers of the protocol itself (tickets, changes of keys, alerts) that may wait for the peer's window."""
_EAGER_BYTES: Final = 64 << 10
"""Decrypted bytes returned in a row without a receive after which the task yields."""


class TlsError(OSError):
    """A TLS connection failed: a handshake, a record that was changed on its way, an end without notice.

    A retry helps only if the peer, or the certificates of one side, change.
    """


class Scratch:
    """Memory for encrypted bytes, shared by the streams of one event loop.

    A receive fills it just before it returns, and its bytes are taken in the same step.
    """

    __slots__ = ("view",)

    def __init__(self) -> None:
        self.view = memoryview(bytearray(SCRATCH_SIZE))


class TlsStream:
    """A Stream whose bytes are encrypted in `raw`. Await `handshake` before anything else is received or sent."""

    __slots__ = (
        "_closed",
        "_eager_bytes",
        "_ended",
        "_error",
        "_incoming",
        "_open",
        "_outgoing",
        "_owed",
        "_peer_certificate",
        "_raw",
        "_scratch",
        "_tls",
        "_unsent",
        "_verifies",
    )

    def __init__(
        self,
        raw: Stream,
        context: ssl.SSLContext,
        scratch: Scratch,
        *,
        server_side: bool,
        host: str | None = None,
        received: Buffer = b"",
    ) -> None:
        """`host`: name or address that the server's certificate must have, if the context checks names; it is sent as
        the server's name. `received`: bytes of the peer that were received before."""
        self._raw = raw
        self._scratch = scratch
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        if received:
            self._incoming.write(received)
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=server_side, server_hostname=host)
        self._verifies = context.verify_mode != ssl.CERT_NONE
        self._unsent = memoryview(b"")
        """Encrypted bytes that the peer's window did not accept yet."""
        self._owed = 0
        """Bytes of the caller in `_unsent`; it was not reported that they are sent."""
        self._open = False
        self._ended = False
        """True after the peer's notice of its end."""
        self._error: TlsError | None = None
        self._closed = False
        self._eager_bytes = _EAGER_BYTES
        self._peer_certificate: bytes | None = None

    @property
    def raw(self) -> Stream:
        """Return the stream that carries the encrypted bytes."""
        return self._raw

    @property
    def peer(self) -> str:
        return self._raw.peer

    @property
    def peer_certificate(self) -> bytes | None:
        return self._peer_certificate

    @property
    def version(self) -> str:
        """Return the version agreed upon, such as TLSv1.3; empty before the handshake."""
        return self._tls.version() or ""

    async def handshake(self) -> None:
        """Agree upon keys, and verify the peer as the context says. The caller sets the deadline.

        OSError; TlsError if one side does not accept the other one.
        """
        while True:
            try:
                self._tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                await self._send_encrypted()
                if not await self._receive(SCRATCH_SIZE, 1):
                    raise TlsError(errno.ECONNRESET, "TLS handshake: the peer closed the connection") from None
            except (ssl.SSLError, ValueError) as error:
                with suppress(OSError):
                    self._flush()  # an alert, from which the peer learns why
                raise TlsError(errno.EPROTO, f"TLS handshake: {reason_of(error)}") from error
        await self._send_encrypted()
        if self._verifies:
            self._peer_certificate = self._tls.getpeercert(binary_form=True)
        self._open = True

    async def receive_into(self, buffer: memoryview, at_least: int = 1) -> int:
        if self._eager_bytes <= 0:
            # Before bytes are taken, because a cancellation must not lose any.
            self._eager_bytes = _EAGER_BYTES
            await trio.lowlevel.checkpoint()
        while not self._closed:
            if filled := self._decrypt(buffer):
                self._eager_bytes -= filled
                return filled
            if self._error is not None:
                raise self._error
            if self._ended:
                return 0
            self._eager_bytes = _EAGER_BYTES
            if not await self._receive(len(buffer), at_least - self._incoming.pending):
                if self._closed:
                    return 0
                raise TlsError(errno.ECONNRESET, "the connection ended without the notice that TLS requires")
        return 0

    def send_nowait(self, parts: Sequence[Buffer]) -> int:
        if self._closed:
            raise OSError(errno.EBADF, "closed on this side")
        if not self._open or not self._flush():
            return 0
        # The caller offers these again: they have left just now.
        taken, self._owed = self._owed, 0
        for chunk in _chunks(parts, taken):
            try:
                size = self._tls.write(chunk)
            except ssl.SSLError as error:
                raise TlsError(errno.EPROTO, f"TLS: {reason_of(error)}") from error
            if not self._flush():
                self._owed = size
                break
            taken += size
        return taken

    async def wait_writable(self) -> None:
        await self._raw.wait_writable()

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        # The notice would say that all was sent.
        if self._open and not self._unsent and self._error is None:
            with suppress(OSError, ValueError):
                self._tls.unwrap()  # writes the notice; the peer's own is not waited for, which is an error
            with suppress(OSError):
                self._flush()
        self._raw.close()

    # --- between OpenSSL's memory and the raw stream

    async def _receive(self, wanted: int, at_least: int) -> int:
        """Receive encrypted bytes for about `wanted` decrypted ones; return their number, 0 at the end."""
        view = self._scratch.view[: max(_SCRATCH_MIN, wanted)]
        size = await self._raw.receive_into(view, max(1, min(at_least, len(view))))
        if size:
            self._incoming.write(view[:size])
        return size

    def _decrypt(self, buffer: memoryview) -> int:
        """Put decrypted bytes at the start of `buffer`; return their number. Errors and the end are recorded."""
        filled, size = 0, len(buffer)
        tls, incoming = self._tls, self._incoming
        read = cast(Callable[[int, memoryview], int], tls.read)
        try:
            while filled < size and (incoming.pending or tls.pending()):
                count = read(size - filled, buffer[filled:])
                if not count:
                    self._ended = True
                    break
                filled += count
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            self._error = TlsError(errno.EPROTO, f"TLS: {reason_of(error)}")
        if self._outgoing.pending and not self._flush() and len(self._unsent) > ENCRYPTED_MAX + _UNASKED_MAX:
            self._error = TlsError(errno.ENOBUFS, f"TLS: the peer is too slow: {len(self._unsent)} bytes wait")
        return filled

    def _flush(self) -> bool:
        """Send encrypted bytes without waiting; return whether none are left. OSError."""
        unsent = self._unsent
        if self._outgoing.pending:
            made = self._outgoing.read()
            unsent = memoryview(b"".join((unsent, made)) if unsent else made)
        elif not unsent:
            return True
        self._unsent = unsent
        self._unsent = unsent[self._raw.send_nowait((unsent,)) :]
        return not self._unsent

    async def _send_encrypted(self) -> None:
        while not self._flush():
            await self._raw.wait_writable()


def _chunks(parts: Sequence[Buffer], skipped: int) -> Iterator[Buffer]:
    """Yield the bytes of `parts` after the first `skipped` ones, in pieces of up to ENCRYPTED_MAX bytes.

    >>> [bytes(chunk) for chunk in _chunks([b"ab", b"cd", b"e"], 3)]
    [b'de']
    """
    gathered: list[Buffer] = []
    size = 0
    for part in parts:
        length = len(part)
        if skipped:
            if skipped >= length:
                skipped -= length
                continue
            part = memoryview(part)[skipped:]
            length -= skipped
            skipped = 0
        if size + length > ENCRYPTED_MAX and gathered:
            yield b"".join(gathered)
            gathered, size = [], 0
        if length > ENCRYPTED_MAX:
            view = memoryview(part)
            for start in range(0, length, ENCRYPTED_MAX):
                yield view[start : start + ENCRYPTED_MAX]
            continue
        gathered.append(part)
        size += length
    if gathered:
        yield gathered[0] if len(gathered) == 1 else b"".join(gathered)


def reason_of(error: Exception) -> str:
    """Return an error of OpenSSL in words, without the place in its source."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate verify failed: {error.verify_message}"
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.lower().replace("_", " ")
    return str(error)
