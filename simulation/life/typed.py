"""Schemas of a topic: registered, read by version, and refused.

- SchemaVersionsStay: a version that was answered once is always found, and means the same bytes; the same schema has
  the same version.
- IncompatibleIsRefused: a schema that changes the type of a field is never taken.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import trio

from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.world.doors import World
from simulation.common.checkers import require
from simulation.common.pulsar_client import ClientError, Connection
from simulation.life.part import Part

STEPS_MIN = 30


def definition(fields: int, kind: str = "int") -> bytes:
    """Return an Avro record with so many fields beside the first, which is of a kind."""
    more = [{"name": f"f{number}", "type": ["null", "string"], "default": None} for number in range(fields)]
    return json.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "type": kind}, *more]}).encode()


class SchemaModel:
    """Versions of one topic's schema, as clients were told them (pure)."""

    def __init__(self) -> None:
        self.versions: dict[bytes, bytes] = {}
        """Definition by version."""

    def told(self, version: bytes, data: bytes) -> None:
        known = self.versions.setdefault(version, data)
        require(known == data, "SchemaVersionsStay", f"version {version.hex()} was {known!r} and is {data!r}")
        same = [each for each, found in self.versions.items() if found == data]
        require(len(same) == 1, "SchemaVersionsStay", f"{data!r} has the versions {[each.hex() for each in same]}")


class Typed(Part):
    name = "typed"

    def __init__(self, stage: Any) -> None:
        super().__init__(stage)
        self.model = SchemaModel()
        self.fields = 0
        self.steps = 0

    @property
    def policies(self) -> Mapping[str, Any]:
        return {"schema_compatibility_strategy": "FULL"}

    def start(self) -> None:
        self.run("author", self.topic("s"), self._work)

    async def _work(self, world: World, connection: Connection) -> None:
        rng = world.rng
        first = pb.Schema(name="s", type=pb.Schema.Avro, schema_data=definition(0))
        made = await connection.producer(self.topic("s"), 1, "p", schema=first)
        self.model.told(made.schema_version, first.schema_data)
        while not self.finished.is_set():
            kind = rng.choice(("add", "again", "get", "get", "refuse"))
            if kind == "add":
                self.fields += 1
                await self._register(connection, definition(self.fields))
            elif kind == "again":
                await self._register(connection, definition(rng.randrange(self.fields + 1)))
            elif kind == "get":
                await self._get(connection, rng.choice(list(self.model.versions)))
            else:
                await self._refuse(connection, definition(rng.randrange(self.fields + 1), "string"))
            self.steps += 1
            self.counts[kind] += 1
            await trio.sleep(rng.uniform(0, 0.8))
        await trio.sleep_forever()

    async def _created(self, connection: Connection, data: bytes) -> pb.CommandGetOrCreateSchemaResponse:
        number = connection.next_id()
        request = pb.CommandGetOrCreateSchema(request_id=number, topic=self.topic("s"))
        request.schema.CopyFrom(pb.Schema(name="s", type=pb.Schema.Avro, schema_data=data))
        command = pb.BaseCommand(type=pb.BaseCommand.GET_OR_CREATE_SCHEMA, getOrCreateSchema=request)
        found = (await connection.ask(command, number)).getOrCreateSchemaResponse
        if found.HasField("error_code"):
            raise ClientError(found.error_message, found.error_code)
        return found

    async def _register(self, connection: Connection, data: bytes) -> None:
        self.model.told((await self._created(connection, data)).schema_version, data)

    async def _refuse(self, connection: Connection, data: bytes) -> None:
        try:
            await self._created(connection, data)
        except ClientError as error:
            if error.code != pb.IncompatibleSchema:
                raise
            return
        self.require(False, "IncompatibleIsRefused", f"{data!r} is taken")

    async def _get(self, connection: Connection, version: bytes) -> None:
        number = connection.next_id()
        request = pb.CommandGetSchema(request_id=number, topic=self.topic("s"), schema_version=version)
        command = pb.BaseCommand(type=pb.BaseCommand.GET_SCHEMA, getSchema=request)
        found = (await connection.ask(command, number)).getSchemaResponse
        if found.HasField("error_code"):
            lost = found.error_code == pb.TopicNotFound
            self.require(not lost, "SchemaVersionsStay", f"version {version.hex()} is not found")
            raise ClientError(found.error_message, found.error_code)
        self.model.told(version, found.schema.schema_data)

    async def settle(self) -> None:
        await self.until("Liveness", lambda: self.steps >= STEPS_MIN, lambda: f"{self.steps} steps")
        self.finished.set()

        async def get_all(world: World, connection: Connection) -> None:
            for version in list(self.model.versions):
                await self._get(connection, version)

        await self.once("reader of all", self.topic("s"), get_all)
