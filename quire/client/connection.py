"""One connection to a broker, shared by everything that is attached there.

The reader receives up to 256 KiB, cuts every whole frame in one synchronous pass, and hands runs on to consumers and
producers; what they send meanwhile leaves with one write. Requests are answered by id. Nothing per message is awaited
or made, but its bytes.

Bound: while more than `receive_bytes_max` bytes wait to be taken, the connection is not read. But a caller that waits
for other data from it (an answer, a receipt, another reader's entries) must not wait forever, so it is read while any
caller waits. What arrives then is bounded by the permits of the readers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Protocol

import trio

from quire.client import commands
from quire.client.authentication import Credentials, CredentialsError
from quire.client.errors import ClientError, ConnectionLostError, NoCredentialsError, ServerRefusedError
from quire.client.options import ClientOptions
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.wire.pulsar.client_splitter import ClientItem, ClientSplitter, MessageRun, ReceiptRun
from quire.wire.pulsar.errors import FrameError
from quire.wire.pulsar.frames import FRAME_HEADROOM, NO_REQUEST, encode
from quire.wire.pulsar.receive_buffer import ChunkBuffer
from quire.world.doors import Buffer, Offload, Stream
from quire.world.outbox import Outbox

log = logging.getLogger(__name__)

_OUT_BYTES_MAX = 1 << 40  # producers bound what they have under way, and requests are small


class MessageReceiver(Protocol):
    """Receiver of the messages of a connection, registered by consumer id. The methods must not raise."""

    @property
    def queued_bytes(self) -> int:
        """Bytes delivered and not taken yet."""

    @property
    def waiting(self) -> bool:
        """Return whether a caller waits for messages, and there are none."""

    def delivered(self, run: MessageRun) -> None: ...

    def lost(self, error: ClientError) -> None:
        """Detach: the connection ended, or the broker closed this consumer."""


class ReceiptReceiver(Protocol):
    """Receiver of the receipts of a connection, registered by producer id. The methods must not raise."""

    @property
    def waiting(self) -> bool:
        """Return whether receipts are expected."""

    def receipts(self, run: ReceiptRun) -> None: ...

    def refused(self, error: ServerRefusedError, sequence_id: int) -> None:
        """Handle a SEND that was not stored."""

    def lost(self, error: ClientError) -> None:
        """Detach: the connection ended, or the broker closed this producer."""


class _Waiter:
    """A caller that waits for an answer."""

    __slots__ = ("answer", "done", "error")

    def __init__(self) -> None:
        self.done = trio.Event()
        self.answer: pb.BaseCommand | None = None
        self.error: ClientError | None = None


class Connection:
    """Connection to one broker, made connected; `serve` has to run in a task. Every method but `request` is
    synchronous."""

    def __init__(self, stream: Stream, options: ClientOptions, offload: Offload) -> None:
        """`offload` reads credentials, which may block."""
        self.consumers: dict[int, MessageReceiver] = {}
        self.producers: dict[int, ReceiptReceiver] = {}
        self.closed = False
        self.message_size_max = options.message_size_max
        """Maximum bytes of metadata and payload of one message."""
        self._stream = stream
        self._options = options
        self._offload = offload
        self._challenged = trio.Event()
        self._splitter = ClientSplitter(options.message_size_max + FRAME_HEADROOM)
        self._buffer = ChunkBuffer(self._splitter)
        self._outbox = Outbox(stream, bytes_max=_OUT_BYTES_MAX, on_broken=lambda error: self.fail(str(error)))
        self._written = trio.Event()
        self._unflushed = 0
        self._waiters: dict[int, _Waiter] = {}
        self._request_id = 0
        self._why: ClientError | None = None
        self._connected = trio.Event()
        self._heard_at = trio.current_time()
        self._may_read = trio.Event()

    @property
    def peer(self) -> str:
        return self._stream.peer

    @property
    def error(self) -> ClientError:
        """Reason of its end."""
        return self._why or ConnectionLostError(f"the connection to {self.peer} has ended")

    # Life

    async def serve(self, proxy_to: str, ready: Callable[[], None]) -> None:
        """Exchange CONNECT, call `ready`, and serve until the end, the reason of which is `error`."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._outbox.run, name=f"outbox to {self.peer}")
                nursery.start_soon(self._flush, name=f"flush to {self.peer}")
                nursery.start_soon(self._keep_alive, ready, name=f"keep alive {self.peer}")
                credentials = self._options.credentials
                if credentials is None:
                    self.send(encode(commands.connect(self._options.client_name, proxy_to)))
                elif await self._introduce(credentials, proxy_to):
                    nursery.start_soon(self._answer_challenges, credentials, name=f"credentials for {self.peer}")
                await self._read()
                nursery.cancel_scope.cancel()
        finally:
            self.fail("closed by this client")
            self._over()

    async def _introduce(self, credentials: Credentials, proxy_to: str) -> bool:
        """Send CONNECT with credentials; return False if they cannot be had."""
        data = await self._credentials(credentials)
        if data is not None:
            self.send(encode(commands.connect(self._options.client_name, proxy_to, credentials.method, data)))
        return data is not None

    async def _answer_challenges(self, credentials: Credentials) -> None:
        """Send credentials again whenever the broker asks for them."""
        while True:
            await self._challenged.wait()
            self._challenged = trio.Event()
            data = await self._credentials(credentials)
            if data is not None:
                self.send(encode(commands.auth_response(self._options.client_name, credentials.method, data)))

    async def _credentials(self, credentials: Credentials) -> bytes | None:
        """Return the data to authenticate with; None: the connection has failed."""
        try:
            return await self._offload.run(credentials.data, name="credentials")
        except CredentialsError as error:
            self._fail(NoCredentialsError(str(error)))
            return None

    def fail(self, reason: str) -> None:
        """Close; only the first reason counts."""
        self._fail(ConnectionLostError(f"connection to {self.peer}: {reason}"))

    def _fail(self, error: ClientError) -> None:
        if self._why is None:
            self._why = error
            log.debug("%s", error)
        self._stream.close()

    def _over(self) -> None:
        self.closed = True
        error = self.error
        for waiter in self._waiters.values():
            waiter.error = error
            waiter.done.set()
        self._waiters.clear()
        owners: list[MessageReceiver | ReceiptReceiver] = [*self.consumers.values(), *self.producers.values()]
        self.consumers.clear()
        self.producers.clear()
        for owner in owners:
            owner.lost(error)

    async def _read(self) -> None:
        bound = self._options.receive_bytes_max
        buffer = self._buffer
        try:
            while size := await self._stream.receive_into(buffer.space(), buffer.missing):
                self._heard_at = trio.current_time()
                self._work(buffer.received(size))
                if self._queued() > bound:
                    await self._pause()
            self.fail("closed by the broker")
        except OSError as error:
            self.fail(str(error))
        except FrameError as error:
            self.fail(f"the broker broke the protocol: {error}")

    async def _keep_alive(self, ready: Callable[[], None]) -> None:
        timeout_s = self._options.connect_timeout_s
        with trio.move_on_after(timeout_s):
            await self._connected.wait()
        if not self._connected.is_set():
            self.fail(f"no answer to CONNECT in {timeout_s:g} s")
            return
        ready()
        interval_s = self._options.keep_alive_interval_s
        while True:
            await trio.sleep_until(self._heard_at + interval_s)
            now = trio.current_time()
            if now < self._heard_at + interval_s:
                continue
            self.send(commands.PING)
            await trio.sleep(interval_s)
            if self._heard_at < now:
                self.fail(f"silent for {trio.current_time() - self._heard_at:.0f} s")
                return

    # Back-pressure

    def _queued(self) -> int:
        return sum([consumer.queued_bytes for consumer in self.consumers.values()])

    def _must_pause(self) -> bool:
        owners: tuple[MessageReceiver | ReceiptReceiver, ...] = (*self.consumers.values(), *self.producers.values())
        somebody_waits = bool(self._waiters) or any(owner.waiting for owner in owners)
        return self._queued() > self._options.receive_bytes_max and not somebody_waits

    async def _pause(self) -> None:
        """Stop reading until a caller takes, or waits for, something. Keep-alive continues meanwhile."""
        while self._must_pause() and self._why is None:
            self._may_read = trio.Event()
            with trio.move_on_after(self._options.keep_alive_interval_s / 2) as quiet:
                await self._may_read.wait()
            self._heard_at = trio.current_time()  # this side does not read, so the peer's silence does not count
            if quiet.cancelled_caught:
                self.send(commands.PING)

    def look_again(self) -> None:
        """Check whether to resume reading, because something was taken or is waited for."""
        self._may_read.set()

    # Output

    def send(self, frame: bytes) -> None:
        """Send a frame at the end of this pass."""
        self.write((frame,), len(frame))

    def write(self, parts: Sequence[Buffer], size: int) -> None:
        """Send `parts`, of `size` bytes, at the end of this pass. They must not change afterwards."""
        self._outbox.write(parts, size)
        self._unflushed += size
        self._written.set()

    @property
    def unflushed(self) -> int:
        """Return the bytes written in this pass."""
        return self._unflushed

    async def _flush(self) -> None:
        """Send once per pass, whatever the number of writes in it."""
        while True:
            await self._written.wait()
            self._written = trio.Event()
            self._unflushed = 0
            self._outbox.flush()

    # Requests

    async def request(self, make: Callable[[int], pb.BaseCommand]) -> pb.BaseCommand:
        """Send a command made with a request id, and wait for its answer, without a deadline.

        Raises ServerRefusedError, ConnectionLostError."""
        if self._why is not None:
            raise ConnectionLostError(str(self._why))
        self._request_id += 1
        request_id = self._request_id
        waiter = self._waiters[request_id] = _Waiter()
        self.send(encode(make(request_id)))
        self.look_again()
        try:
            await waiter.done.wait()
        finally:
            self._waiters.pop(request_id, None)
        if waiter.error is not None:
            raise waiter.error
        assert waiter.answer is not None, "a waiter is woken with an answer or an error"
        return waiter.answer

    def tell(self, make: Callable[[int], pb.BaseCommand]) -> None:
        """Send a command without waiting for its answer."""
        if self._why is None:
            self._request_id += 1
            self.send(encode(make(self._request_id)))

    # Input

    def _work(self, items: Sequence[ClientItem]) -> None:
        for item in items:
            if isinstance(item, MessageRun):
                # Entries of a recently closed consumer are dropped.
                if (consumer := self.consumers.get(item.consumer_id)) is not None:
                    consumer.delivered(item)
            elif isinstance(item, ReceiptRun):
                if (producer := self.producers.get(item.producer_id)) is not None:
                    producer.receipts(item)
            else:
                self._handle(item.command)

    def _handle(self, command: pb.BaseCommand) -> None:
        kind = command.type
        if (part := commands.ANSWERS.get(kind)) is not None:
            self._answered(getattr(command, part).request_id, command)
        elif kind == pb.BaseCommand.PING:
            self.send(commands.PONG)
        elif kind == pb.BaseCommand.CLOSE_CONSUMER:
            self._closed_by_broker(self.consumers.pop(command.close_consumer.consumer_id, None))
        elif kind == pb.BaseCommand.CLOSE_PRODUCER:
            self._closed_by_broker(self.producers.pop(command.close_producer.producer_id, None))
        elif kind == pb.BaseCommand.SEND_ERROR:
            failed = command.send_error
            if (producer := self.producers.get(failed.producer_id)) is not None:
                producer.refused(ServerRefusedError(failed.error, failed.message), failed.sequence_id)
        elif kind == pb.BaseCommand.AUTH_CHALLENGE:
            if self._options.credentials is None:
                self._fail(NoCredentialsError(f"the broker {self.peer} asks for credentials, and there are none"))
            self._challenged.set()
        elif kind == pb.BaseCommand.CONNECTED:
            if command.connected.HasField("max_message_size"):
                self.message_size_max = command.connected.max_message_size
                self._splitter.accept(self.message_size_max + FRAME_HEADROOM)
            self._connected.set()
        # PONG was noted when it arrived. The other commands belong to features this client does not use.

    def _closed_by_broker(self, owner: MessageReceiver | ReceiptReceiver | None) -> None:
        if owner is not None:
            owner.lost(ConnectionLostError(f"closed by the broker {self.peer}"))

    def _answered(self, request_id: int, answer: pb.BaseCommand) -> None:
        refusal = commands.refusal(answer)
        waiter = self._waiters.pop(request_id, None)
        if waiter is not None:
            waiter.answer, waiter.error = answer, refusal
            waiter.done.set()
        elif refusal is not None and (request_id == NO_REQUEST or not self._connected.is_set()):
            self._fail(refusal)  # the broker refuses the connection itself, for example without a password
