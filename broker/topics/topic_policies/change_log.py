"""A log of change events at its owner: read to its end, and added to.

A log that was compacted, here or by the original, begins with its compacted view; the entries behind that follow.
Source: Pulsar's CompactedTopicImpl, CompactedTopicUtils.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import trio

from broker.errors import ServiceNotReadyError
from broker.ownership.values import Json
from broker.topics.compaction.view import CompactedLedgerLostError, CompactedView
from broker.topics.schemas.avro_schema import AvroSchemaError, AvroType, parse
from broker.topics.schemas.registry import Schemas
from broker.topics.schemas.schema import SchemaType
from broker.topics.topic import Topic
from broker.topics.topic_policies.events import changes_in, version_of
from broker.topics.topic_policies.source import CHANGES_MAX, PolicyChanges
from managed_ledger.errors import ManagedLedgerError
from quire.ledger.position import EARLIEST, Position
from quire.service.log import get_logger
from quire.wire.pulsar.errors import PulsarWireError

log = get_logger(__name__)

READ_ENTRIES_MAX: Final = 100
READ_BYTES_MAX: Final = 1 << 20
STEP_ENTRIES_MAX: Final = 10
"""Events that are decoded before other tasks run."""
APPEND_S: Final = 20.0
NEWEST: Final = -1


class ChangeLog:
    """The events of one loaded topic. `turn` is for the caller that changes policies."""

    def __init__(self, topic: Topic, schemas: Schemas) -> None:
        self.topic = topic
        self.turn = trio.Lock()
        self.announced: Position | None = None
        """The place that other brokers were told last."""
        self._schemas = schemas
        self._reading = trio.Lock()
        self._first = EARLIEST
        self._read_to = EARLIEST
        self._begun = False
        self._said: dict[str, tuple[Position, Json | None]] = {}
        """By key, in the order in which it was said."""
        self._types: dict[int, AvroType] = {}

    @property
    def read_to(self) -> Position:
        """Place of the last event that is known."""
        return self._read_to

    def fields(self, key: str) -> Json | None:
        """Return the policies of a key."""
        found = self._said.get(key)
        return None if found is None else found[1]

    def has(self, key: str) -> bool:
        """Return whether anything was said of a key."""
        return key in self._said

    async def read_on(self) -> None:
        """Read to the end. Raises ServiceNotReadyError."""
        async with self._reading:
            try:
                while self._has_to_begin():
                    await self._begin()
                await self._read_log()
            except (ManagedLedgerError, PulsarWireError) as error:
                raise ServiceNotReadyError(f"{self.topic.name.full} cannot be read: {error}") from error

    def _view(self) -> CompactedView | None:
        compaction = self.topic.compaction
        return None if compaction is None else compaction.view

    def _has_to_begin(self) -> bool:
        """Return whether nothing was read yet, or events that were not read may be compacted, and trimmed."""
        view = self._view()
        return not self._begun or (view is not None and self._read_to < view.horizon)

    async def _begin(self) -> None:
        """Read the compacted part, if there is one. What was known counts until that is done."""
        view, said = self._view(), dict[str, tuple[Position, Json | None]]()
        try:
            at = EARLIEST
            while view is not None and (found := await view.read(at, READ_ENTRIES_MAX, READ_BYTES_MAX)):
                await self._learn([(place, bytes(entry)) for place, entry in found], said)
                at = Position(found[-1][0].ledger_id, found[-1][0].entry_id + 1)
        except CompactedLedgerLostError:
            if view is self._view():
                raise
            return  # it was compacted again meanwhile
        self._said = said
        self._first = self._read_to = EARLIEST if view is None else view.horizon
        self._begun = True

    async def _read_log(self) -> None:
        ledger = self.topic.ledger
        while self._read_to < ledger.last_confirmed:
            run = await ledger.read(ledger.next_position(self._read_to), READ_ENTRIES_MAX, READ_BYTES_MAX, replay=True)
            if not run.payloads:
                break
            entries = [
                (Position(run.ledger_id, run.first_entry_id + index), bytes(payload))
                for index, payload in enumerate(run.payloads)
            ]
            await self._learn(entries, self._said)
            self._read_to = max(self._read_to, entries[-1][0])

    async def _learn(
        self, entries: Sequence[tuple[Position, bytes]], known: dict[str, tuple[Position, Json | None]]
    ) -> None:
        """Note in `known` what these say."""
        for count, (position, entry) in enumerate(entries, 1):
            needed = self._needed(entry)
            if needed is not None:
                await self._load_type(needed)
            for change in changes_in(entry, self._types.get):
                before = known.get(change.key)
                if change.first and before is not None and before[1] is not None:
                    continue
                known.pop(change.key, None)  # it goes to the end
                known[change.key] = (position, change.fields)
            if not count % STEP_ENTRIES_MAX:
                await trio.lowlevel.checkpoint()

    def _needed(self, entry: bytes) -> int | None:
        """Return the version of the schema that has to be read first; None: none."""
        number = version_of(entry)
        return None if number is None or number in self._types else number

    async def _load_type(self, number: int) -> None:
        name = self.topic.name
        found = await (self._schemas.newest(name) if number == NEWEST else self._schemas.version(name, number))
        if found is None or found.schema.type is not SchemaType.AVRO:
            return
        try:
            self._types[number] = parse(found.schema.data)
        except AvroSchemaError as error:
            log.error("schema of change events not read", topic=name.full, version=number, reason=str(error))

    def changes(self, since: Position | None) -> PolicyChanges:
        """Return what was said behind a place, or from the beginning on, of at most CHANGES_MAX topics."""
        whole = since is None or since < self._first
        after = None if whole else since
        found: list[tuple[str, Position, Json | None]] = []
        for key in reversed(self._said):
            position, fields = self._said[key]
            if after is not None and position <= after:
                break
            found.append((key, position, fields))
        found.reverse()
        more = len(found) > CHANGES_MAX
        if more:
            # Events of one batch have one place, and go together.
            last = found[CHANGES_MAX - 1][1]
            found = [each for each in found if each[1] <= last]
            more = bool(self._said) and next(reversed(self._said.values()))[0] > last
        upto = found[-1][1] if more else self._read_to
        return PolicyChanges(whole, upto, {key: fields for key, _, fields in found}, more)

    async def append(self, entries: Sequence[bytes]) -> None:
        """Add events, and learn them; durable on return. Raises ServiceNotReadyError: then it is not known whether they
        are."""
        self.topic.check_open()
        sink = _Sink(len(entries))
        self.topic.ledger.append(list(entries), sink)
        with trio.move_on_after(APPEND_S) as scope:
            await sink.done.wait()
        if scope.cancelled_caught or sink.error is not None:
            raise ServiceNotReadyError(f"{self.topic.name.full}: not stored: {sink.error or 'no answer in time'}")
        await self.read_on()


class _Sink:
    """Outcome of an append of so many entries."""

    def __init__(self, count: int) -> None:
        self.done = trio.Event()
        self.error: Exception | None = None
        self._left = count

    def confirmed(self, ledger_id: int, first_entry_id: int, count: int) -> None:
        self._left -= count
        if self._left <= 0:
            self.done.set()

    def failed(self, error: Exception) -> None:
        self.error = error
        self.done.set()
