"""A broker of Quire that serves what a Pulsar left."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, cast

import trio

from broker.server import Broker
from quire.wire.pulsar import PulsarApi_pb2 as api
from tests.golden.takeover import taken_over
from tests.unit.broker.peers import OPTIONS, FakeStream, Peer
from tests.unit.managed_ledger.fake_ledgers import fake_world


@dataclass
class Served:
    """A broker of Quire on the data of Pulsar."""

    broker: Broker
    nursery: trio.Nursery

    async def connect(self, client_version: str = "t") -> Peer:
        stream = FakeStream()
        self.nursery.start_soon(self.broker.handle, cast(Any, stream))
        peer = Peer(stream)
        peer.send(
            api.BaseCommand(
                type=api.BaseCommand.CONNECT,
                connect=api.CommandConnect(client_version=client_version, protocol_version=20),
            )
        )
        await peer.expect(api.BaseCommand.CONNECTED)
        return peer


@asynccontextmanager
async def served(moment: str) -> AsyncIterator[Served]:
    """Serve the data of one moment."""
    async with taken_over(moment) as left, left.broker() as factory, trio.open_nursery() as nursery:
        options = replace(OPTIONS, cluster_name="golden")
        broker = Broker(fake_world(), left.store, factory, options, nursery, service_url="pulsar://test:6650")
        broker.start()
        yield Served(broker, nursery)
        nursery.cancel_scope.cancel()
