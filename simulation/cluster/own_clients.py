"""quire.client in a simulated cluster: a producer, a reader that follows a topic, and one that reads all of it in the
end.

It finds brokers, and finds them again after a loss, by itself; what reaches its caller is tried again from where it
stood.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import trio

from quire.client.client import Client, open_client
from quire.client.deliveries import Deliveries
from quire.client.errors import ClientError
from quire.client.message_id import MessageId
from quire.client.options import ClientOptions
from quire.client.packing import pack
from quire.wire.pulsar.metadata import metadata_span
from quire.world.doors import World
from simulation.cluster.clients import ClusterClients
from simulation.common.checkers import Place, SubscriptionHistory, TopicHistory, message, numbered, require
from simulation.standalone.clients import QUIET_S, key_of

FOLLOWER = "follower"
"""Name of a reader in place of a subscription's."""


@dataclass
class OwnClients:
    """Clients of one history."""

    users: ClusterClients
    flushed: dict[tuple[str, str], int] = field(default_factory=dict)
    """Messages covered by a flush, by topic and producer."""

    @asynccontextmanager
    async def _client(self, world: World) -> AsyncGenerator[Client, None]:
        brokers = list(self.users.brokers) if self.users.own_front is None else [self.users.own_front]
        world.rng.shuffle(brokers)
        options = ClientOptions(
            operation_timeout_s=60,
            connect_timeout_s=3,
            keep_alive_interval_s=2,
            backoff_min_s=0.05,
            backoff_max_s=1.0,
            receive_bytes_max=world.rng.choice((300, 3000, 1 << 20)),
        )
        service = ",".join(f"{broker}:{self.users.port}" for broker in brokers)
        async with open_client(world, f"pulsar://{service}", options) as client:
            yield client

    def start(self, name: str, history: TopicHistory, subscribed: Sequence[trio.Event], *, follow: bool) -> None:
        """Start a producer, or a follower, on a host of its own, once all subscriptions exist."""

        async def main(world: World, stop: trio.Event) -> None:
            for each in subscribed:
                await each.wait()
            while True:
                try:
                    async with self._client(world) as client:
                        if follow:
                            await self._follow(world, client, history)
                        else:
                            await self._produce(world, client, history, name)
                except ClientError as error:
                    self.users.universe.trace.event(name, "ClientFailed", error=str(error))
                await trio.sleep(world.rng.uniform(0.1, 1.0))

        if follow:
            history.subscriptions[FOLLOWER] = SubscriptionHistory("all")
        self.users.names.append(name)
        self.users.universe.host(name).start(main)

    async def _produce(self, world: World, client: Client, history: TopicHistory, name: str) -> None:
        """Send numbered messages and flush; after a failure what was not flushed is sent again."""
        rng, users = world.rng, self.users
        done = sent = self.flushed.get((history.topic, name), 0)
        producer = await client.producer(history.topic, name=name, pending_max=rng.choice((2, 10, 100)))
        while not users.finish.is_set():
            sent += rng.randrange(1, 10)
            payloads = [message(name, number, rng.choice(users.sizes)) for number in range(done, sent)]
            await producer.send(pack(payloads, [key_of(number) for number in range(done, sent)], batch=False))
            await producer.flush()
            place = (producer.last_ids.ledger_id, producer.last_ids.entry_id)
            users.universe.trace.event(name, "Flushed", ledger=place[0], entry=place[1])
            history.receipt(producer, name, place, payloads[-1])
            self.flushed[history.topic, name] = done = sent
            await trio.sleep(rng.uniform(0, 1.0 if users.enough() else 0.1))
        await trio.sleep_forever()

    async def _follow(self, world: World, client: Client, history: TopicHistory) -> None:
        """Read from behind the last entry, with one Reader after the other."""
        rng, seen = world.rng, history.subscriptions[FOLLOWER].delivered
        while True:
            last = max(seen, default=None)
            start = MessageId.EARLIEST if last is None else MessageId(last[0], last[1] + 1)
            reader = await client.reader(history.topic, start, window=rng.choice((3, 50, 1000)))
            for _ in range(rng.randrange(5, 100)):
                for place, payload in _messages(await reader.receive()):
                    if last is not None:
                        require(place > last, "EachEntryOnceInOrder", f"{FOLLOWER}: {place} after {last}")
                        follows = place == (last[0], last[1] + 1) or (place[0] > last[0] and place[1] == 0)
                        require(follows, "NoEntryIsLeftOut", f"{FOLLOWER}: {place} after {last}")
                    last = place
                    history.delivery(FOLLOWER, place, payload, key_of(numbered(payload)[1]), done=set())
            await reader.close()

    def check(self, history: TopicHistory, found: dict[Place, bytes]) -> None:
        """Check that flushed messages exist."""
        there = {numbered(payload) for payload in found.values()}
        for (topic, name), count in self.flushed.items():
            if topic == history.topic:
                missing = [number for number in range(count) if (name.encode(), number) not in there]
                require(not missing, "AllAckedEntriesAreReadable", f"{topic} {name}: {missing[:5]} of {count} are lost")

    async def read_all(self, topic: str) -> dict[Place, bytes]:
        """Read everything from the beginning."""
        found: dict[Place, bytes] = {}
        over = trio.Event()

        async def main(world: World, stop: trio.Event) -> None:
            async with self._client(world) as client:
                reader = await client.reader(topic, MessageId.EARLIEST)
                last = await reader.last_message_id()
                while not found or max(found) < (last.ledger_id, last.entry_id):
                    with trio.move_on_after(QUIET_S) as quiet:
                        arrived = await reader.receive()
                    if quiet.cancelled_caught:
                        break
                    found.update(_messages(arrived))
                await reader.close()
            over.set()

        host = self.users.universe.host(f"reader of {topic}")
        host.start(main)
        await over.wait()
        await host.wait_down()
        return found


def _messages(arrived: Deliveries) -> list[tuple[Place, bytes]]:
    places = zip(arrived.ledger_ids, arrived.entry_ids, strict=True)
    return [
        (place, bytes(entry[metadata_span(entry)[1] :])) for place, entry in zip(places, arrived.entries, strict=True)
    ]
