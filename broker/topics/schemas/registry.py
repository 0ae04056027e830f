"""Schemas of the topics of this broker: registration, queries, deletion. Partitions share those of their topic.

What is stored is read each time a client asks, since other brokers change it too; a version never changes, and is kept
in memory.

Source: Pulsar's SchemaRegistryServiceImpl, AbstractTopic.addSchema, PersistentTopic.addSchemaIfIdleOrCheckCompatible.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple, TypeVar

import trio

from broker.background import see_through
from broker.context import Context
from broker.errors import (
    IncompatibleSchemaError,
    InvalidSchemaError,
    MetadataUnavailableError,
    NoRoomError,
    NoSchemaError,
    NotAllowedError,
)
from broker.topics.policies import Held, TopicPolicies
from broker.topics.schemas import checks, stored
from broker.topics.schemas.schema import DEFINED_IN_AVRO, Schema, Version
from broker.topics.schemas.storage import FoundSchemas, RacedError, SchemaStorage
from broker.topics.schemas.stored import schema_id
from broker.topics.schemas.strategies import SchemaDefaults, SchemaRules, Strategy
from broker.topics.schemas.turns import Turns
from cursors.doors import Ledgers, Quorums
from quire.ledger.errors import LedgerError
from quire.metadata.errors import MetadataError
from quire.metadata.store import MetadataStore
from quire.service.log import get_logger
from quire.wire.pulsar.names import NamespaceName, TopicName

log = get_logger(__name__)

VERSIONS_MAX: Final = 5_000
"""Versions that one topic may have. The locator of so many takes 250 KB."""
OPERATION_MAX_S: Final = 25.0
"""Seconds that one request may take: clients wait 30."""
RACES_MAX: Final = 20

T = TypeVar("T")


@dataclass(slots=True)
class SchemaCounts:
    """Counts since the start, by namespace."""

    compatible: Counter[str] = field(default_factory=Counter)
    incompatible: Counter[str] = field(default_factory=Counter)
    gets_failed: Counter[str] = field(default_factory=Counter)
    puts_failed: Counter[str] = field(default_factory=Counter)
    deletes_failed: Counter[str] = field(default_factory=Counter)


class VersionPlace(NamedTuple):
    """Place of a version, for the admin API."""

    number: int
    ledger_id: int
    entry_id: int


class Schemas:
    """Schemas of topics.

    Beside the errors that a call names, it raises MetadataUnavailableError (passing)."""

    def __init__(
        self, context: Context, metadata: MetadataStore, ledgers: Ledgers, quorums: Quorums, policies: TopicPolicies
    ) -> None:
        self._context = context
        self._storage = SchemaStorage(metadata, ledgers, quorums)
        self._policies = policies
        self._turns = Turns()
        self.counts = SchemaCounts()

    @property
    def defaults(self) -> SchemaDefaults:
        """Return what holds where no policy says otherwise."""
        options = self._context.options
        return SchemaDefaults(
            strategy=Strategy(options.schema_compatibility_strategy),
            system_strategy=Strategy(options.system_topic_schema_strategy),
            auto_update=options.allow_auto_update_schema,
            enforced=options.schema_validation_enforced,
        )

    async def rules(self, name: TopicName) -> SchemaRules:
        """Return what holds for the topic."""
        return self.rules_of(name, await self._policies.load(name))

    def rules_of(self, name: TopicName, policies: Held) -> SchemaRules:
        """The same, with policies that are known."""
        return self.defaults.rules(name, policies.of_namespace, policies.of_topic)

    # Queries

    async def newest(self, name: TopicName) -> Version | None:
        """Return the schema of a topic; None: it has none, or no more."""
        async with self._reading(name) as key:
            found = await self._storage.find(key)
            return await self._storage.read(key, found.index[-1]) if found.index else None

    async def version(self, name: TopicName, number: int) -> Version | None:
        """Return one version; None: there is none, or it does not count any more."""
        async with self._reading(name) as key:
            found = await self._storage.find(key)
            place = next((each for each in found.index if each.number == number), None)
            return None if place is None else await self._storage.read(key, place)

    async def versions(self, name: TopicName) -> list[Version]:
        """Return the versions that count, in order."""
        async with self._reading(name) as key:
            return await self._storage.read_all(key, (await self._storage.find(key)).index)

    async def places(self, name: TopicName) -> list[VersionPlace]:
        """Return where the versions are, those that do not count any more too."""
        async with self._reading(name) as key:
            locator = (await self._storage.find(key)).locator
            return [
                VersionPlace(each.number, each.ledger_id, each.entry_id) for each in (locator.index if locator else ())
            ]

    async def find_version(self, name: TopicName, schema: Schema) -> int:
        """Return the number of the version that says the same; -1: none does."""
        async with self._reading(name) as key:
            known = await self._known(key, await self._storage.find(key), schema)
            return -1 if known is None else known.number

    async def has_schema(self, name: TopicName) -> bool:
        """Return whether the topic has a schema."""
        async with self._reading(name) as key:
            return bool((await self._storage.find(key)).index)

    # Registration

    async def register(
        self, name: TopicName, schema: Schema, rules: SchemaRules, check: Callable[[], None] = lambda: None
    ) -> int:
        """Return the version of the topic that says the same as `schema`, which is added if there is none.

        `check` is called before an added one counts, and may raise. Raises InvalidSchemaError, IncompatibleSchemaError,
        NotAllowedError (too many versions), NoRoomError."""
        work = partial(self._register, name, schema, rules, check)
        return await see_through(self._context.nursery, work, name=f"schema of {name.full}")

    async def _register(self, name: TopicName, schema: Schema, rules: SchemaRules, check: Callable[[], None]) -> int:
        async with self._changing(name, self.counts.puts_failed) as key:
            for _ in range(RACES_MAX):
                found = await self._storage.find(key)
                known = await self._known(key, found, schema)
                if known is not None:
                    return known.number
                await self._check_new(name, key, found, schema, rules)
                try:
                    made = partial(Version, schema=schema, timestamp_ms=self._context.world.clock.wall_ms())
                    added = await self._storage.add(key, found, made, check)
                except RacedError:
                    continue
                log.info("schema added", topic=name.partitioned.full, version=added.number, type=schema.type.name)
                return added.number
        raise MetadataUnavailableError(f"the schemas of {name.full} are being changed by others")

    async def _known(self, key: str, found: FoundSchemas, schema: Schema) -> Version | None:
        """Return the version that says the same. The index has its hash, unless it is written in another way."""
        hashed = schema.hash
        for each in found.index:
            if each.hash == hashed:
                known = await self._storage.read(key, each)
                if known is not None and known.schema.is_same(schema):
                    return known
        if not found.index or schema.type not in DEFINED_IN_AVRO:
            return None
        versions = await self._storage.read_all(key, found.index)
        return await self._worked_out(versions, schema, partial(checks.find_same, versions, schema))

    async def _check_new(
        self, name: TopicName, key: str, found: FoundSchemas, schema: Schema, rules: SchemaRules
    ) -> None:
        """Raise the reason why a schema that no version has may not be added."""
        if why := await self._worked_out((), schema, partial(checks.why_invalid, schema)):
            raise InvalidSchemaError(f"{name.full}: {why}")
        if not rules.auto_update:
            raise IncompatibleSchemaError(
                f"{name.full}: the schema is none of the topic's, and adding one is not allowed "
                "(isAllowAutoUpdateSchema)"
            )
        if found.locator is not None and len(found.locator.index) >= VERSIONS_MAX:
            raise NotAllowedError(f"{name.full} has {VERSIONS_MAX} versions of its schema, the maximum")
        if why_full := self._context.no_room():
            raise NoRoomError(why_full)
        await self._compare(name, await self._compared(key, found, rules.strategy), schema, rules.strategy)

    async def _compared(self, key: str, found: FoundSchemas, strategy: Strategy) -> list[Version]:
        """Return the versions that a strategy looks at."""
        return await self._storage.read_all(key, found.index if strategy.is_transitive else found.index[-1:])

    async def _compare(self, name: TopicName, versions: Sequence[Version], schema: Schema, strategy: Strategy) -> None:
        why = await self._worked_out(versions, schema, partial(checks.why_incompatible, versions, schema, strategy))
        if strategy is not Strategy.ALWAYS_COMPATIBLE and versions:
            (self.counts.incompatible if why else self.counts.compatible)[name.namespace_path] += 1
        if why:
            log.info("schema refused", topic=name.full, reason=why)
            raise IncompatibleSchemaError(f"{name.full}: incompatible schema: {why}")

    async def _worked_out(self, versions: Sequence[Version], schema: Schema, work: Callable[[], T]) -> T:
        """Return the result of a check: of small definitions at once, of large ones by a worker."""
        if len(schema.data) + sum(len(each.schema.data) for each in versions) <= checks.SMALL_BYTES:
            return work()
        return await self._context.world.offload.run(work, name="check of a schema")

    async def check_compatible(self, name: TopicName, schema: Schema, strategy: Strategy) -> None:
        """Raise InvalidSchemaError, IncompatibleSchemaError if the schema could not be added."""
        async with self._reading(name) as key:
            if why := await self._worked_out((), schema, partial(checks.why_invalid, schema)):
                raise InvalidSchemaError(f"{name.full}: {why}")
            found = await self._storage.find(key)
            await self._compare(name, await self._compared(key, found, strategy), schema, strategy)

    async def check_consumer(self, name: TopicName, schema: Schema, strategy: Strategy) -> None:
        """Check a consumer's schema, which has to read what is there. Nothing is added.

        Raises NoSchemaError (the topic has none), IncompatibleSchemaError."""
        if strategy is Strategy.ALWAYS_COMPATIBLE:
            return
        compared = checks.consumer_strategy(strategy)
        async with self._reading(name) as key:
            if why := await self._worked_out((), schema, partial(checks.why_invalid, schema)):
                raise InvalidSchemaError(f"{name.full}: {why}")
            found = await self._storage.find(key)
            if not found.index:
                raise NoSchemaError(f"topic {name.full} has no schema")
            await self._compare(name, await self._compared(key, found, compared), schema, compared)

    # Deletion

    async def delete(self, name: TopicName) -> int:
        """End the versions of a topic with a tombstone; return its number. Producers may add a schema again, of any
        type."""
        return await see_through(
            self._context.nursery, partial(self._delete, name), name=f"delete schema of {name.full}"
        )

    async def _delete(self, name: TopicName) -> int:
        async with self._changing(name, self.counts.deletes_failed) as key:
            for _ in range(RACES_MAX):
                found = await self._storage.find(key)
                try:
                    made = partial(stored.tombstone, timestamp_ms=self._context.world.clock.wall_ms())
                    return (await self._storage.add(key, found, made, lambda: None)).number
                except RacedError:
                    continue
        raise MetadataUnavailableError(f"the schemas of {name.full} are being changed by others")

    async def delete_all(self, name: TopicName) -> bool:
        """Delete every version with its ledger, and the locator; return whether there were any.

        A registration that is under way on this broker ends first."""
        work = partial(self._delete_all, name)
        return await see_through(self._context.nursery, work, name=f"delete schemas of {name.full}")

    async def _delete_all(self, name: TopicName) -> bool:
        async with self._changing(name, self.counts.deletes_failed) as key:
            return await self._storage.delete(key)

    async def settle(self, name: TopicName) -> None:
        """Wait until no registration for the topic is under way on this broker."""
        async with self._turns.of(schema_id(name)):
            pass

    async def delete_namespace(self, namespace: NamespaceName) -> None:
        """Delete the schemas of all topics of a deleted namespace."""
        with self._translated(str(namespace), self.counts.deletes_failed, str(namespace)):
            for key in await self._storage.keys_of_namespace(str(namespace)):
                async with self._turns.of(key):
                    await self._storage.delete(key)
            await self._storage.forget_namespace(str(namespace))

    # Bounds

    @asynccontextmanager
    async def _reading(self, name: TopicName) -> AsyncIterator[str]:
        """Give the id of a topic's schemas, within the time that a request may take."""
        with self._translated(name.full, self.counts.gets_failed, name.namespace_path):
            with trio.fail_after(OPERATION_MAX_S):
                yield schema_id(name)

    @asynccontextmanager
    async def _changing(self, name: TopicName, failed: Counter[str]) -> AsyncIterator[str]:
        """The same, one caller at a time."""
        key = schema_id(name)
        with self._translated(name.full, failed, name.namespace_path):
            with trio.fail_after(OPERATION_MAX_S):
                async with self._turns.of(key):
                    yield key

    @staticmethod
    def _translated(what: str, failed: Counter[str], namespace: str) -> _Translated:
        return _Translated(what, failed, namespace)


class _Translated:
    """Context manager that turns failures of the stores into MetadataUnavailableError, and counts them."""

    __slots__ = ("_failed", "_namespace", "_what")

    def __init__(self, what: str, failed: Counter[str], namespace: str) -> None:
        self._what = what
        self._failed = failed
        self._namespace = namespace

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, LedgerError | MetadataError | trio.TooSlowError):
            self._failed[self._namespace] += 1
            raise MetadataUnavailableError(
                f"the schemas of {self._what} cannot be reached: {error or 'no answer in time'}"
            ) from error
