"""One client connection: bytes in, topic calls out.

The reader receives up to 256 KiB, works on the whole frames in it in synchronous passes of bounded length, flushes what
each pass wants to send, and only then waits again. SEND, ACK, FLOW, REDELIVER and PING are done in the pass, in order;
whatever has to wait (PRODUCER, SUBSCRIBE, SEEK ...) runs in a task of this connection. How each command runs is given
to the connection as a table (`RequestTable`), which `broker.connections.requests` fills.

An idle connection costs one task and 4 KiB of buffer; `rest` gives the buffer of busier times back.
"""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import trio

from broker import replies
from broker.connections import bounds
from broker.connections.bounds import ProtocolError
from broker.connections.liveness import is_alive
from broker.connections.pending import Pending
from broker.connections.refusals import failure, refuse
from broker.context import Context
from broker.dispatch.consumer import Consumer
from broker.dispatch.subscription import Subscription
from broker.ends import End, Life
from broker.publish_budget import Budget
from broker.security.authentication.refreshing import LoginSession
from broker.security.principal import Principal
from broker.topics.non_persistent.subscription import NonPersistentSubscription
from broker.topics.producer import Producer
from quire.service.log import get_logger
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.wire.pulsar.errors import FrameError
from quire.wire.pulsar.frames import FRAME_HEADROOM
from quire.wire.pulsar.large_commands import LargeCommand
from quire.wire.pulsar.receive_buffer import IDLE_SIZE, ReceiveBuffer
from quire.wire.pulsar.splitter import BadChecksum, BadFrameError, Item, Other, SendRun
from quire.world.doors import Buffer, Stream
from quire.world.outbox import Outbox
from quire.world.unwrap import reason_of

log = get_logger(__name__)

_DONE = object()


@dataclass(frozen=True, slots=True)
class RequestTable:
    """Table of handlers. A command that is not in it is not served."""

    by_type: Mapping[int, Callable[[Connection, pb.BaseCommand], Iterator[None] | None]]
    """Handlers called in the pass. A returned iterator is the rest of the work: one element per step of the event loop,
    before the connection reads on."""
    large: Callable[[Connection, LargeCommand], Iterator[None]]
    """The same for a command of more bytes than are parsed in one step."""


class Connection:
    """The state of one connection; every method but `serve` is synchronous."""

    def __init__(self, context: Context, requests: RequestTable, stream: Stream) -> None:
        self.context = context
        self.stream = stream
        self.log = log.bind(connection=stream.peer)
        self._requests = requests
        self.producers: dict[int, Producer] = {}
        self.consumers: dict[int, Consumer[Subscription]] = {}
        self.direct: dict[int, Consumer[NonPersistentSubscription]] = {}
        """Consumers of non-persistent topics."""
        self.watchers: dict[int, Pending] = {}
        """Watchers of topic lists."""
        self.closed_producers: dict[int, None] = {}
        """Producers closed by the broker. Their remaining sends are ignored."""
        self.creating: dict[tuple[str, int], Pending] = {}
        """Producers and consumers that are being created, by kind and id."""
        self.closed = False
        self.connected = False
        self.principal: Principal | None = None
        """Roles that the connection acts with. None only before CONNECTED, or with authentication off."""
        self.session: LoginSession | None = None
        """Its credentials; None as `principal`, and if they cannot expire."""
        self.client_version = ""
        self.takes_entry_metadata = False
        self.sends_in_flight = 0
        self.requests_in_flight = 0
        self.neighbour = None if context.neighbours is None else context.neighbours.meet(stream.peer)
        """Shares of its role and address; None: they have no limits."""
        self.publishing: Budget = self.neighbour or context.publishing
        """Counts the bytes of its producers while they are stored."""
        self.work_left = 0
        """Remaining part of bounds.WORK_PER_STEP in the current step."""
        self._many: Iterator[None] | None = None
        """The rest of a command with many message ids: one step of the event loop per element."""
        self.opened_at = self.last_heard = trio.current_time()
        self.pinged = False
        frame_max = context.options.message_size_max + FRAME_HEADROOM
        first_max = frame_max if context.authentication is None else min(frame_max, bounds.CONNECT_FRAME_MAX)
        self._buffer = ReceiveBuffer(first_max)
        self._outbox = Outbox(
            stream,
            bytes_max=16 * context.options.connection_out_bytes_max,
            on_broken=lambda error: self.abort(str(error)),
            on_stalled=self._output_stalled,
            queued=context.output.queued,
        )
        self._paused: trio.CancelScope | None = None
        """Set while reading is paused."""
        self._answered: trio.Event | None = None
        """Set while reading is paused until something is answered."""
        self.resuming = False
        """True from when its output reached the bound until half of that is left: nothing is dispatched to it."""
        self._reading: trio.CancelScope | None = None
        """Cancelled to release the buffer of the receive under way..."""
        self._receiving = False
        """...and only during the receive: a pass must not be interrupted."""
        self.nursery: trio.Nursery

    # Life

    async def serve(self) -> None:
        """Serve until the peer goes, breaks the protocol, or the connection is aborted."""
        why = "closed by the client"
        try:
            async with trio.open_nursery() as nursery:
                self.nursery = nursery
                try:
                    while not await self._read():
                        self._buffer.rest()
                except (FrameError, ProtocolError, OSError) as error:
                    why, violates = str(error), not isinstance(error, OSError)
                    if violates and self.context.rare_lines.admits("protocol violation", self.stream.peer):
                        self.log.warning("connection closed: protocol violation", reason=why)
                finally:
                    self.closed = True  # from here on nothing is written and no task started
                nursery.cancel_scope.cancel()  # here: one that an error leaves is in a cycle with what it cancels
        except* OSError as errors:
            why = reason_of(errors)
        finally:
            self._gone()
            self.log.debug("connection ended", reason=why)

    async def _read(self) -> bool:
        """Receive and work. Return whether the connection has ended; False: `rest` asked for the buffer."""
        buffer, receive_into = self._buffer, self.stream.receive_into
        with trio.CancelScope() as self._reading:
            while not self.closed:
                if self._must_pause():
                    await self._pause()
                self._receiving = True
                received = await receive_into(buffer.space(), buffer.missing)
                self._receiving = False
                if received == 0:
                    return True
                self.last_heard = trio.current_time()
                self.pinged = False
                if self.neighbour is not None and self._must_pause():
                    await self._pause()  # it was waiting to receive when others used up what they share
                    if self.closed:
                        return True
                await self._work_on(received)
                while buffer.more and not self.closed:
                    await trio.lowlevel.checkpoint()
                    if self._must_pause():
                        await self._pause()
                    await self._work_on(0)
                in_flight = self.sends_in_flight
                options = self.context.options
                if in_flight >= options.send_linger_threshold and received < options.send_linger_chunk_max:
                    await trio.sleep(min(in_flight * options.send_linger_per_send_s, options.send_linger_max_s))
            return True
        return False

    def rest(self) -> None:
        """Release the excess of the buffer after an idle time.

        A receive uses it, and restarts with a small one. Nothing that was received is lost."""
        if self._receiving and self._reading is not None and self._buffer.size > IDLE_SIZE:
            self._reading.cancel()

    async def _work_on(self, received: int) -> None:
        """Handle everything that the last `size` bytes brought, in order, in one pass or several. Raises FrameError."""
        broken = ""  # not the error, whose traceback has this frame
        try:
            items: Sequence[Item] = self._buffer.received(received)
        except BadFrameError as error:
            broken, items = str(error), error.items
            self.context.frames += 1
        left = iter(items)
        while not self._pass(left):
            await trio.lowlevel.checkpoint()
            if self.closed:
                return
        if broken:
            raise FrameError(broken)

    def _pass(self, items: Iterator[Item]) -> bool:
        """Work for one step of the event loop, then send the resulting output; return False if something is left."""
        turn = self.context.turn
        turn.working = True
        self.work_left = bounds.WORK_PER_STEP
        try:
            if self._many is not None:
                if next(self._many, _DONE) is not _DONE:
                    return False
                self._many = None
            for item in items:
                self.context.frames += len(item.sequence_ids) if isinstance(item, SendRun) else 1
                if isinstance(item, SendRun):
                    self._send(item)
                elif isinstance(item, Other):
                    self._handle(item.command)
                elif isinstance(item, LargeCommand):
                    self._large(item)
                else:
                    self._bad_checksum(item)
                self.work_left -= bounds.WORK_PER_COMMAND
                if self._many is not None or self.work_left <= 0:
                    return False
            return True
        finally:
            turn.flush()

    def _gone(self) -> None:
        """Remove the producers and consumers of an ended connection. Entries they held are delivered to others."""
        self.closed = True
        self.stream.close()
        self._outbox.fail(OSError(errno.EPIPE, "connection ended"))
        if self.neighbour is not None:
            self.neighbour.log_out()
        # At once: the connection itself may be part of a reference cycle, and the collector runs rarely.
        del self._buffer, self._reading, self.nursery
        # `closed` is set, so entries held by one consumer do not go to another one of this connection first.
        for producer in list(self.producers.values()):
            producer.topic.end_producer(producer, End.LOST)
        self.producers.clear()
        for consumer in list(self.consumers.values()):
            consumer.subscription.end_consumer(consumer, End.LOST)
        self.consumers.clear()
        for direct in list(self.direct.values()):
            direct.subscription.end_consumer(direct, End.LOST)
        self.direct.clear()
        for watcher in list(self.watchers.values()):
            watcher.withdraw()

    def abort(self, why: str) -> None:
        """Close from outside: keep-alive, shutdown."""
        self.log.debug("connection aborted", reason=why)
        self.closed = True
        self.stream.close()
        if self._paused is not None:
            self._paused.cancel()

    # Back-pressure

    def _must_pause(self) -> bool:
        options, publishing = self.context.options, self.context.publishing
        out_max = options.connection_out_bytes_max
        return (
            self.sends_in_flight > options.pending_sends_max
            or self.requests_in_flight > options.pending_requests_max
            or (publishing.bytes > publishing.limit and bool(self.producers))
            or (out_max <= self._outbox.pending_bytes and not self._output_below(out_max))
            or (self.neighbour is not None and self.neighbour.is_over(publishes=bool(self.producers)))
        )

    async def _pause(self) -> None:
        """Stop reading until half of the pending requests is answered and the peer has taken the output above the
        bound."""
        out_max = self.context.options.connection_out_bytes_max
        with trio.CancelScope() as self._paused:
            while not self.closed:
                if not self._output_below(out_max):
                    await self._outbox.wait_below(out_max - 1)
                elif self._has_too_much_in_flight():
                    await self._wait_for_answers()
                else:
                    break
        self._paused = None

    def _has_too_much_in_flight(self) -> bool:
        options = self.context.options
        return (
            self.sends_in_flight > options.pending_sends_max // 2
            or self.requests_in_flight > options.pending_requests_max // 2
            or (bool(self.producers) and not self.context.publishing.is_low)
            or (self.neighbour is not None and not self.neighbour.is_low(publishes=bool(self.producers)))
        )

    async def _wait_for_answers(self) -> None:
        """Wait for an answer on this connection or, if it publishes, for an answer to any of its sends."""
        answered = self._answered = trio.Event()
        self.publishing.tell(answered)
        try:
            await answered.wait()
        finally:
            if self.is_deaf:
                self._listen_anew()
            self._answered = None
            self.publishing.forget(answered)

    @property
    def is_deaf(self) -> bool:
        """Return whether this side does not read, in which case silence of the peer does not count."""
        out_max = self.context.options.connection_out_bytes_max
        return self._answered is not None and self._outbox.pending_bytes < out_max

    def silent_s(self) -> float:
        """Return the seconds without a sign of the peer. Restarts whenever this side does not read."""
        if self.is_deaf:
            self._listen_anew()
        return trio.current_time() - self.last_heard

    def _listen_anew(self) -> None:
        self.last_heard = trio.current_time()
        self.pinged = False

    def sends_answered(self, count: int) -> None:
        self.sends_in_flight -= count
        if self._answered is not None:
            self._answered.set()

    def request_done(self) -> None:
        self.requests_in_flight -= 1
        if self._answered is not None:
            self._answered.set()

    def producer_closed(self, producer: Producer) -> None:
        """Ignore the remaining sends of a closed producer from now on."""
        if self.producers.get(producer.producer_id) is producer:
            del self.producers[producer.producer_id]
            self.closed_producers[producer.producer_id] = None
            if self._answered is not None:
                self._answered.set()
        if len(self.closed_producers) > bounds.CLOSED_PRODUCERS_MAX:
            del self.closed_producers[next(iter(self.closed_producers))]

    def consumer_closed(self, consumer_id: int) -> None:
        """Forget a consumer."""
        self.consumers.pop(consumer_id, None)
        self.direct.pop(consumer_id, None)

    @property
    def output_below_bound(self) -> bool:
        """Return whether more may be dispatched to the connection: its queue is below its own bound, and below its
        share of the free part of the common bound."""
        pending = self._outbox.pending_bytes
        if self.context.output.may_queue(pending):
            return self._output_below(self.context.options.connection_out_bytes_max)
        return self._output_below(pending)

    def _output_below(self, bound: int) -> bool:
        """Return whether fewer bytes than `bound` are queued; if not, consumers are served again at half of that."""
        if self._outbox.pending_bytes < bound:
            return True
        if not self.resuming and not self.closed:
            self.resuming = True
            self.nursery.start_soon(self._resume_consumers, bound // 2, name="connection resume")
        return False

    def _output_stalled(self) -> None:
        """Start a task that sends the rest to a peer that does not take everything at once."""
        if not self.closed:
            self.nursery.start_soon(self._outbox.drain, name="connection output")

    async def _resume_consumers(self, size: int) -> None:
        """Resume dispatch when a slow peer has taken all but `size` bytes of its queue."""
        await self._outbox.wait_below(size)
        self.resuming = False
        for consumer in list(self.consumers.values()):
            consumer.subscription.pump()
        for direct in self.direct.values():
            direct.subscription.resume()

    def write(self, parts: Sequence[Buffer]) -> None:
        """Queue output; it leaves when the pass ends."""
        if not self.closed:
            self._outbox.write(parts)
            self.context.turn.mark(self._outbox)

    # Work done in the pass

    def begin(self) -> None:
        """Serve commands, and frames of any permitted size, from now on."""
        self.connected = True
        self._buffer.accept(self.context.options.message_size_max + FRAME_HEADROOM)

    def _send(self, run: SendRun) -> None:
        producer = self.producers.get(run.producer_id)
        if producer is None or producer.life is not Life.OPEN:
            if run.producer_id in self.closed_producers:
                return
            raise ProtocolError(f"SEND of the unknown producer {run.producer_id}")
        self.sends_in_flight += len(run.sequence_ids)
        producer.topic.publish(producer, run)

    def _bad_checksum(self, bad: BadChecksum) -> None:
        producer = self.producers.get(bad.producer_id)
        if producer is None or producer.life is not Life.OPEN:
            if bad.producer_id in self.closed_producers:
                return
            raise ProtocolError(f"SEND of the unknown producer {bad.producer_id}")
        message = "the checksum of the message does not match"
        producer.after_sends(replies.send_error(bad.producer_id, bad.sequence_id, pb.ChecksumError, message))

    def _handle(self, command: pb.BaseCommand) -> None:
        kind = command.type
        if not self.connected and kind != pb.BaseCommand.CONNECT:
            raise ProtocolError(f"{pb.BaseCommand.Type.Name(kind)} before CONNECT")
        run = self._requests.by_type.get(kind)
        if run is not None:
            self._many = run(self, command)
        else:
            self.write((refuse(command),))

    def _large(self, command: LargeCommand) -> None:
        if not self.connected:
            raise ProtocolError(f"{pb.BaseCommand.Type.Name(command.kind)} before CONNECT")
        self._many = self._requests.large(self, command)

    def start(self, command: pb.BaseCommand, work: Callable[[], Awaitable[None]]) -> None:
        """Run a request in a task of its own and answer with its BrokerError, if any."""
        self.requests_in_flight += 1
        if self.neighbour is not None:
            self.neighbour.take_request()
        self.nursery.start_soon(self._request, command, work, name=pb.BaseCommand.Type.Name(command.type))

    async def _request(self, command: pb.BaseCommand, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except Exception as error:
            self.answer_failure(command, error)
        finally:
            if self.neighbour is not None:
                self.neighbour.give_request()
            self.request_done()

    def answer_failure(self, command: pb.BaseCommand, error: Exception) -> None:
        """Answer a request with the error that ended it."""
        self.write((failure(command, error, self.log),))

    def ping(self) -> None:
        """Ask for a sign of life; any command is one."""
        self.write((replies.PING,))

    async def alive(self) -> bool:
        """Probe the peer; return whether it is alive. A dead holder of a name loses it to a new connection."""
        return await is_alive(self)
