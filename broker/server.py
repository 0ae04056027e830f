"""The broker: its options, its connections, its topics, and the housekeeping tasks over them."""

from __future__ import annotations

import trio

from broker import replies
from broker.administration import Administration
from broker.config import BrokerOptions
from broker.connection import Connection
from broker.topics import Topics
from broker.turn import Turn
from managed_ledger.factory import ManagedLedgerFactory
from quire.metadata.store import MetadataStore
from quire.service.log import get_logger
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.wire.pulsar.metadata import encode_entry
from quire.wire.pulsar.names import TopicName
from quire.world.doors import Stream, World

log = get_logger(__name__)

HEALTH_TOPIC = "persistent://pulsar/system/healthcheck"
HEALTH_ENTRY = encode_entry(b"healthcheck", producer_name="healthcheck")


class Broker:
    """Serves topics; everything durable is in the managed ledgers and the metadata store."""

    def __init__(
        self,
        world: World,
        metadata: MetadataStore,
        factory: ManagedLedgerFactory,
        options: BrokerOptions,
        nursery: trio.Nursery,
        *,
        turn: Turn | None = None,
        service_url: str = "",
        incarnation: int = 0,
    ) -> None:
        self.world = world
        self.options = options
        self.nursery = nursery
        self.service_url = service_url
        self.turn = turn or Turn()
        self.metadata = metadata
        self.topics = Topics(self, factory, metadata)
        self.administration = Administration(self)
        self.topics.partitioned.on_half_deleted = self.administration.finish_deletion
        self.connections: dict[Connection, None] = {}
        self.closed = trio.Event()
        """Set when `begin_close` is done."""
        self.publish_bytes = 0
        """Payload bytes of all topics that are not confirmed yet."""
        self._factory = factory
        self._incarnation = incarnation
        self._producer_count = 0

    def start(self) -> None:
        """Start the housekeeping tasks in the broker's nursery."""
        self.nursery.start_soon(self.turn.run, name="end of turn")
        self.nursery.start_soon(self._keep_alive, name="keep alive")

    async def handle(self, stream: Stream) -> None:
        """Serve one connection until it ends; the caller closes the stream."""
        connection = Connection(self, stream)
        self.connections[connection] = None
        try:
            await connection.serve()
        finally:
            self.connections.pop(connection, None)

    def refuse(self, stream: Stream) -> None:
        """The last word to a connection above the limit, which the caller closes."""
        message = "the broker serves as many connections as it may"
        stream.send_nowait((replies.error(replies.U64_MAX, pb.NotAllowedError, message),))

    def next_producer_name(self) -> str:
        """A name no other producer of this cluster has: cluster, incarnation of the broker, count."""
        self._producer_count += 1
        return f"{self.options.cluster_name}-{self._incarnation}-{self._producer_count}"

    def random_name(self) -> str:
        """For consumers that bring no name."""
        return f"{self.world.rng.getrandbits(40):010x}"

    async def _keep_alive(self) -> None:
        """PING who is silent for one interval; drop who stays silent for another, and who never said CONNECT. Beside it,
        let go of what is kept in the cache for those who do not come for it."""
        interval = self.options.keep_alive_interval_s
        tick = min(interval, self.options.handshake_timeout_s) / 2
        while True:
            await trio.sleep(tick)
            now = trio.current_time()
            for connection in list(self.connections):
                silent = now - connection.last_heard
                if not connection.connected:
                    # Since it was opened: bytes that are no CONNECT do not buy time.
                    if now - connection.opened_at >= self.options.handshake_timeout_s:
                        connection.abort("no CONNECT in time")
                elif silent >= 2 * interval:
                    log.warning("connection dropped: silent", peer=connection.stream.peer, silent_s=round(silent, 1))
                    connection.abort("silent")
                elif silent >= interval and not connection.pinged:
                    connection.pinged = True
                    connection.ping()
            for topic in self.topics.loaded():
                topic.release_tail()
            self.turn.flush()

    def begin_close(self) -> None:
        """Stopping: topics are closed in the background, so that clients are told before their connections are cut."""
        self.nursery.start_soon(self._close, name="close topics")

    async def _close(self) -> None:
        await self.topics.close_all()
        self.turn.flush()
        for connection in list(self.connections):
            connection.abort("the broker stops")
        self.closed.set()

    async def check_health(self) -> None:
        """Publish one message to this broker's own health topic and see it confirmed; raises what is wrong."""
        topic = await self.topics.get(TopicName.parse(HEALTH_TOPIC))
        sink = _HealthSink()
        topic.ledger.append([HEALTH_ENTRY], sink)
        await sink.done.wait()
        if sink.error is not None:
            raise sink.error

    def ledger_reads(self) -> int:
        """Reads of topics that went to bookies."""
        return sum(topic.ledger.ledger_reads for topic in self.topics.loaded())


class _HealthSink:
    def __init__(self) -> None:
        self.done = trio.Event()
        self.error: Exception | None = None

    def confirmed(self, ledger_id: int, first_entry_id: int, count: int) -> None:
        self.done.set()

    def failed(self, error: Exception) -> None:
        self.error = error
        self.done.set()
