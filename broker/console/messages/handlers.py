"""The message viewer: a part of a topic, decoded. It reads by place and acknowledges nothing; no cursor moves.

GET      /console/api/messages/{tenant}/{namespace}/{topic}

    from        earliest, latest, ledger:entry[:batch index], or milliseconds since 1970 (publish time)
    direction   forward: from there on; back: the messages before it
    key, text   only messages with this key; with this text in key, value or a property
    limit       messages at most
    shown       characters of a value that are shown

Answer: {"messages": [...], "earlier": "ledger:entry" or null, "later": ..., "looked": entries that were read,
"more": true if the search stopped before it had `limit` messages, "schema": type}. Messages are in the order of the
topic. 404, 405 it is partitioned.

One answer reads at most ENTRIES_MAX entries or READ_BYTES_MAX bytes, stored and decompressed together, so a search goes
on with `later` or `earlier`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import trio
from starlette.responses import Response

from broker.admin.errors import MalformedRequestError
from broker.admin.positions.every import on_topic
from broker.admin.requests import AdminCall
from broker.admin.resource import answer
from broker.console.messages.entries import EntryMessage, UnpackedEntry, is_large, unpack
from broker.console.messages.values import is_slow, key_shown, shown
from broker.errors import BrokerError, ServiceNotReadyError
from broker.topics.schemas.schema import Schema, version_number
from broker.topics.topic import Topic
from managed_ledger.errors import ManagedLedgerError
from managed_ledger.places import Places
from quire.ledger.position import Position
from quire.service.web.parameters import OneOf, Parameter, WholeNumber

ENTRIES_MAX: Final = 2000
READ_BYTES_MAX: Final = 16 << 20
RUN_ENTRIES: Final = 50
RUN_BYTES: Final = 2 << 20
SCHEMAS_MAX: Final = 50
"""Versions of a schema that one answer looks up."""
MESSAGES_IN_STEP: Final = 500
ROWS_IN_STEP: Final = 10
SHOWN_TOGETHER: Final = 16 << 20
"""Characters of all values of an answer; each gets its part of them."""

_FROM = Parameter("from", "earliest, latest, ledger:entry, or milliseconds since 1970.")
_DIRECTION = OneOf("direction", "forward: from there on; back: what is before it.", ("forward", "back"), "forward")
_KEY = Parameter("key", "Key of the messages.")
_TEXT = Parameter("text", "Text in key, value or properties.")
_LIMIT = WholeNumber("limit", "Messages at most.", 1, 200)
_SHOWN = WholeNumber("shown", "Characters of a value.", 1, 1 << 20)
_PLACE: Final = re.compile(r"(\d{1,18}):(\d{1,18})(?::(\d{1,9}))?")
_TIME: Final = re.compile(r"\d{1,18}")


class Spot(NamedTuple):
    """A place between messages: before message `within` of the batch of entry `number`."""

    number: int
    within: int


START: Final = Spot(0, 0)
ALL: Final = 1 << 31
"""More than any index of a batch."""


class MessageSearch(NamedTuple):
    """Messages that are wanted."""

    key: bytes | None
    text: bytes
    limit: int
    shown: int

    def takes(self, message: EntryMessage) -> bool:
        """Return whether a message is wanted."""
        if self.key is not None and message.key != self.key:
            return False
        if not self.text:
            return True
        parts = (
            message.value or b"",
            message.key or b"",
            *(each.encode() for pair in message.properties for each in pair),
        )
        return any(self.text in each for each in parts)


async def messages(call: AdminCall) -> Response:
    """Answer a part of the messages of a topic."""
    limit, given_key = call.whole(_LIMIT) or 50, call.given(_KEY)
    key = given_key.encode() if given_key else None
    shown_max = min(call.whole(_SHOWN) or 2000, SHOWN_TOGETHER // limit)
    search = MessageSearch(key, (call.given(_TEXT) or "").encode(), limit, shown_max)
    begin, back = call.given(_FROM) or "latest", call.choice(_DIRECTION) == "back"
    if begin not in ("earliest", "latest") and not _PLACE.fullmatch(begin) and not _TIME.fullmatch(begin):
        raise MalformedRequestError(f"from must be earliest, latest, ledger:entry or a time, not {begin[:100]!a}")

    async def work(topic: Topic) -> dict[str, Any]:
        topic.check_open()
        try:
            return await _Viewing(call, topic, search).part(begin, back=back)
        except ManagedLedgerError as error:
            raise ServiceNotReadyError(f"messages of {topic.name.full} cannot be read: {error}") from error

    return answer(await on_topic(call, work))


class _Viewing:
    """One answer."""

    def __init__(self, call: AdminCall, topic: Topic, search: MessageSearch) -> None:
        self._call = call
        self._topic = topic
        self._search = search
        self._schemas: dict[int, Schema | None] = {}
        self._looked = self._bytes = 0

    async def part(self, begin: str, *, back: bool) -> dict[str, Any]:
        places = self._topic.ledger.index.places()
        start, back = await self._start(begin, places, back=back)
        newest = await self._call.administration.schemas.newest(self._topic.name)
        self._schemas[-1] = None if newest is None else newest.schema
        found, low, high = await (self._back(places, start) if back else self._forward(places, start))
        whole = self._looked < ENTRIES_MAX and self._bytes < READ_BYTES_MAX
        return {
            "messages": found,
            "earlier": _place(places, low) if low > START else None,
            "later": _place(places, high) if high.number < places.count else None,
            "looked": self._looked,
            "more": not whole and len(found) < self._search.limit,
            "entries": places.count,
            "schema": None if newest is None else newest.schema.type.name,
        }

    async def _start(self, begin: str, places: Places, *, back: bool) -> tuple[Spot, bool]:
        """Return where to begin, and whether to go back from there."""
        if begin == "earliest":
            return START, False
        if begin == "latest":
            return Spot(places.count, 0), True
        if place := _PLACE.fullmatch(begin):
            return Spot(places.number(Position(int(place[1]), int(place[2]))), int(place[3] or 0)), back
        at = await self._call.administration.message_id_at(self._topic.name, int(begin))
        return Spot(places.number(at), 0), back

    async def _forward(self, places: Places, start: Spot) -> tuple[list[dict[str, Any]], Spot, Spot]:
        found: list[dict[str, Any]] = []
        at = start
        while at.number < places.count and self._goes_on(found):
            entries = await self._read(places.place(at.number), min(RUN_ENTRIES, places.count - at.number))
            if not entries:
                break
            for position, entry in entries:
                rows, cut = await self._rows(position, entry, range(at.within, ALL), len(found), back=False)
                found += rows
                at = Spot(at.number + 1, 0) if cut is None else Spot(at.number, cut)
                if not self._goes_on(found):
                    break
        return found, start, at

    async def _back(self, places: Places, start: Spot) -> tuple[list[dict[str, Any]], Spot, Spot]:
        found: list[dict[str, Any]] = []
        at = start
        while at > START and self._goes_on(found):
            end = at.number + (at.within > 0)
            first = max(0, end - min(RUN_ENTRIES, self._search.limit))
            run: list[tuple[Position, bytes]] = []
            while first + len(run) < end:
                entries = await self._read(places.place(first + len(run)), end - first - len(run))
                if not entries:
                    break
                run += entries
            if not run:
                break
            for number in range(first + len(run) - 1, first - 1, -1):
                wanted = range(at.within) if number == at.number else range(ALL)
                rows, cut = await self._rows(*run[number - first], wanted, len(found), back=True)
                found = rows + found
                at = Spot(number, cut or 0)
                if not self._goes_on(found):
                    break
        return found, at, start

    def _goes_on(self, found: list[dict[str, Any]]) -> bool:
        return len(found) < self._search.limit and self._looked < ENTRIES_MAX and self._bytes < READ_BYTES_MAX

    async def _read(self, position: Position, count: int) -> list[tuple[Position, bytes]]:
        run = await self._topic.ledger.read(position, count, RUN_BYTES)
        self._looked += len(run.payloads)
        self._bytes += sum(map(len, run.payloads))
        return [
            (Position(run.ledger_id, run.first_entry_id + place), bytes(each))
            for place, each in enumerate(run.payloads)
        ]

    async def _rows(
        self, position: Position, entry: bytes, wanted: range, have: int, *, back: bool
    ) -> tuple[list[dict[str, Any]], int | None]:
        """Return rows of the messages of an entry, and the index at which to go on if not all have room."""
        offload = self._topic.context.world.offload
        try:
            # A small entry may be a large one that is compressed, or have thousands of messages.
            if is_large(entry):
                unpacked = await offload.run(lambda: unpack(position, entry), name="console message")
            else:
                unpacked = unpack(position, entry)
        except BrokerError as error:
            return [{"ledger": position.ledger_id, "entry": position.entry_id, "problem": str(error)}], None
        self._bytes += sum(len(each.value or b"") for each in unpacked.messages)
        transactions = self._transactions(position, entry)
        version = unpacked.metadata.schema_version
        schema = await self._schema(version_number(version) if unpacked.metadata.HasField("schema_version") else -1)
        taken: list[EntryMessage] = []
        for number, message in enumerate(unpacked.messages, 1):
            if max(message.batch_index, 0) in wanted and self._search.takes(message):
                taken.append(message)
            if not number % MESSAGES_IN_STEP:
                await trio.lowlevel.checkpoint()
        room, cut = self._search.limit - have, None
        if len(taken) > room:
            cut = taken[-room].batch_index if back else taken[room].batch_index
            taken = taken[-room:] if back else taken[:room]
        rows: list[dict[str, Any]] = []
        for at in range(0, len(taken), ROWS_IN_STEP):
            part = taken[at : at + ROWS_IN_STEP]
            make = partial(self._made, part, unpacked, schema, transactions)
            slow = any(is_slow(each.value, schema) for each in part)
            rows += await offload.run(make, name="console rows") if slow else make()
            await trio.lowlevel.checkpoint()
        return rows, cut

    def _made(
        self, part: Sequence[EntryMessage], unpacked: UnpackedEntry, schema: Schema | None, more: dict[str, bool]
    ) -> list[dict[str, Any]]:
        return [self._row(each, unpacked, schema, more) for each in part]

    def _transactions(self, position: Position, entry: bytes) -> dict[str, bool]:
        topic = self._topic
        held, bound = topic.screen.transactions, topic.read_bound
        found: dict[str, bool] = {}
        if bound is not None and position > bound:
            found["uncommitted"] = True
        if held is not None and held.hides(entry):
            found["aborted"] = True
        return found

    async def _schema(self, number: int) -> Schema | None:
        if number not in self._schemas:
            if len(self._schemas) >= SCHEMAS_MAX:
                return None
            found = await self._call.administration.schemas.version(self._topic.name, number)
            self._schemas[number] = None if found is None else found.schema
        return self._schemas[number]

    def _row(
        self, message: EntryMessage, unpacked: UnpackedEntry, schema: Schema | None, more: dict[str, bool]
    ) -> dict[str, Any]:
        readable = None if unpacked.problem else schema
        row: dict[str, Any] = {
            "ledger": message.position.ledger_id,
            "entry": message.position.entry_id,
            "batchIndex": message.batch_index if message.batch_index >= 0 else None,
            "key": key_shown(message.key),
            "eventMs": message.event_ms or None,
            "properties": dict(message.properties),
            "value": shown(message.value, readable, self._search.shown, key=message.key),
            **unpacked.facts,
            **more,
        }
        return {**row, "problem": unpacked.problem} if unpacked.problem else row


def _place(places: Places, spot: Spot) -> str:
    """Return a place as `from` takes it; the end is behind the last entry."""
    at = places.place(min(spot.number, places.count - 1))
    index = f":{spot.within}" if spot.within else ""
    return f"{at.ledger_id}:{at.entry_id + (spot.number >= places.count)}{index}"
