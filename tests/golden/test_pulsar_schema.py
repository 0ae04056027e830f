"""Topics of Pulsar are taken over, published to, acknowledged in every way and closed by Quire's broker. Afterwards
Pulsar's own schema reads every stored value, with the right meaning. The schema is made from its field table alone.

"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from google.protobuf.message import DecodeError

from cursors.cursor import Cursor
from managed_ledger.managed_ledger import ManagedLedger
from managed_ledger.stored_list import log_path
from managed_ledger.writing.state import State
from quire.ledger.client import LedgerClient
from quire.ledger.position import Position
from quire.wire.bookkeeper.entry import Digest, DigestType
from quire.wire.pulsar import MLDataFormats_pb2 as ml
from quire.wire.pulsar.names import encode_name
from tests.golden.pulsar_files import MOMENTS, cursor_nodes, logs
from tests.golden.pulsar_schema import CLASSES, OURS, TABLE, read, unknown_numbers
from tests.golden.takeover import NEWER, ORDERS, Left, taken_over
from tests.unit.managed_ledger.cluster import publish

NEWER_NUMBER = 100
"""Number of the field in NEWER."""


def ranges_of(stored: list[Any]) -> Iterator[tuple[int, int, int]]:
    """Yield (ledger, first, last) of ranges whose lower endpoint is open."""
    for each in stored:
        lower, upper = each.lowerEndpoint, each.upperEndpoint
        assert lower.ledgerId == upper.ledgerId
        yield upper.ledgerId, lower.entryId + 1, upper.entryId


def bitmaps_of(stored: list[Any]) -> Iterator[tuple[int, int, int]]:
    """Yield (ledger, first, last) of bitmaps: the runs of bits that are set."""
    for each in stored:
        bits = sum((word & (1 << 64) - 1) << (64 * number) for number, word in enumerate(each.values))
        entry_id = 0
        while bits >> entry_id:
            if not bits >> entry_id & 1:
                entry_id += 1
                continue
            first = entry_id
            while bits >> entry_id & 1:
                entry_id += 1
            yield each.key, first, entry_id - 1


class AsPulsarReads:
    """The state of a cursor in its node and, if the node does not have all of it, in the last entry of its ledger."""

    def __init__(self, node: Any, last: Any | None) -> None:
        self.node = node
        state = node if last is None else last
        if last is None:
            self.mark_delete = Position(node.markDeleteLedgerId, node.markDeleteEntryId)
            self.ranges = list(ranges_of(node.individualDeletedMessages))
        else:
            self.mark_delete = Position(last.ledgerId, last.entryId)
            # Pulsar takes the bitmaps if there are any.
            maps = last.individualDeletedMessageRanges
            self.ranges = list(bitmaps_of(maps) if maps else ranges_of(last.individualDeletedMessages))
        self.partial = {
            Position(each.position.ledgerId, each.position.entryId): list(each.deleteSet)
            for each in state.batchedEntryDeletionIndexInfo
        }
        self.properties = {each.name: each.value for each in state.properties}


async def cursor_of(left: Left, path: str, extra: frozenset[int]) -> AsPulsarReads:
    node = await left.store.get(path)
    assert node is not None
    info = read("ManagedCursorInfo", node.value)
    check_numbers(info, extra)
    if info.cursorsLedgerId < 0:
        return AsPulsarReads(info, None)
    last = read("PositionInfo", last_entry(left, info.cursorsLedgerId))
    check_numbers(last, frozenset())
    return AsPulsarReads(info, last)


def last_entry(left: Left, ledger_id: int) -> bytes:
    """Return the last entry of a cursor's ledger, as the bookies have it."""
    stored = next(bookie.entries[ledger_id] for bookie in left.bookies.values() if ledger_id in bookie.entries)
    entry_id = max(stored)
    return bytes(Digest(DigestType.CRC32C, b"").open(ledger_id, entry_id, memoryview(stored[entry_id])))


def check_numbers(message: Any, extra: frozenset[int]) -> None:
    """Check that fields outside the table are Quire's, with numbers far above, or were in the value before."""
    assert {number for number in unknown_numbers(message) if number < OURS} == set(extra)


def test_the_table_has_every_field_of_what_the_original_wrote() -> None:
    for moment in MOMENTS:
        for kind, values in (("ManagedLedgerInfo", logs(moment)), ("ManagedCursorInfo", cursor_nodes(moment))):
            for value in values.values():
                found = read(kind, value)
                assert list(unknown_numbers(found)) == []
                assert found.SerializeToString() == value


def described(field: Any) -> tuple[object, ...]:
    return field.name, field.number, field.type, field.is_required, field.is_repeated


def test_our_schema_differs_from_it_by_fields_of_ours_alone() -> None:
    by_name: dict[str, Any] = dict(ml.DESCRIPTOR.message_types_by_name)
    by_name["LedgerInfo"] = by_name["ManagedLedgerInfo"].nested_types_by_name["LedgerInfo"]
    assert len(CLASSES) == len(TABLE.strip().splitlines())
    for name, theirs in CLASSES.items():
        ours = by_name[name].fields
        assert {described(each) for each in ours if each.number < OURS} == set(map(described, theirs.DESCRIPTOR.fields))
        assert all(each.name.startswith("quire") for each in ours if each.number >= OURS)


def test_a_required_field_that_is_missing_is_seen() -> None:
    with pytest.raises(DecodeError):
        read("PositionInfo", ml.QuireAcks(baseEntryId=1).SerializeToString())


@pytest.mark.parametrize("newer", [False, True])
@pytest.mark.parametrize("moment", MOMENTS)
async def test_whatever_we_stored_is_read_by_the_originals_schema_and_is_true_there(moment: str, newer: bool) -> None:
    """Covers the state while Quire's broker serves, as after a kill, and after it has closed everything."""
    extra = frozenset((NEWER_NUMBER,) if newer else ())
    handed = {log_path(ORDERS), f"{log_path(ORDERS)}/holes"}

    async def check_cursors(left: Left, cursors: dict[str, Cursor]) -> int:
        """Check the cursors; return the number of those whose state is in a ledger."""
        in_ledgers = 0
        for path, cursor in cursors.items():
            found = await cursor_of(left, path, extra if path in handed else frozenset())
            in_ledgers += found.node.cursorsLedgerId >= 0
            assert (path, found.mark_delete) == (path, cursor.mark_delete)
            assert (path, found.ranges) == (path, [tuple(each) for each in cursor.ack_ranges()])
            assert found.properties == cursor.properties
            for position, bits in found.partial.items():
                assert cursor.ack_set(position) == bits
            if path.endswith("/holes"):
                assert found.partial == {Position(2, 1): [0b10101]}
        return in_ledgers

    async with taken_over(moment) as left:
        for path in handed if newer else ():
            node = await left.store.get(path)
            assert node is not None
            await left.store.put(path, node.value + NEWER, node.version)
        cursors: dict[str, Cursor] = {}
        counts: dict[str, int] = {}
        async with left.broker() as factory:
            for name in sorted(logs(moment)):
                log = await factory.open(name)
                if log.state is not State.TERMINATED:
                    await publish(log, *[b"%d" % number for number in range(25)])  # into three ledgers
                for subscription, cursor in log.cursors.items():
                    acknowledge_some(log, cursor)
                    await cursor.wait_persisted()
                    cursors[f"{log_path(name)}/{encode_name(subscription)}"] = cursor
                counts[name] = log.entry_count
            assert len(cursors) == len(cursor_nodes(moment))
            in_ledgers = await check_cursors(left, cursors)
            assert in_ledgers > len(cursors) // 2
        assert await check_cursors(left, cursors) == 0  # all small enough for their nodes
        async with left.client() as client:
            for name in sorted(logs(moment)):
                node = await left.store.get(log_path(name))
                assert node is not None
                info = read("ManagedLedgerInfo", node.value)
                check_numbers(info, extra if log_path(name) in handed else frozenset())
                await check_list(client, info, counts[name])


def acknowledge_some(log: ManagedLedger, cursor: Cursor) -> None:
    """Acknowledge every third entry behind the mark-delete position, one by one."""
    position = cursor.mark_delete
    for distance in range(12):
        position = log.next_position(position)
        if distance % 3 == 2 and position <= log.last_confirmed:
            cursor.ack_individual([position])


async def check_list(client: LedgerClient, info: Any, count: int) -> None:
    """Check that the list agrees with the metadata of each of its ledgers, except the one that is still open."""
    ids = [each.ledgerId for each in info.ledgerInfo]
    assert ids == sorted(set(ids))
    found = 0
    for each in info.ledgerInfo:
        reader = await client.open(each.ledgerId, recover=True)
        entries = await reader.read(0, reader.last_entry_id) if reader.last_entry_id >= 0 else []
        if each.timestamp:
            assert (each.entries, each.size) == (len(entries), sum(map(len, entries)))
        else:
            assert each == info.ledgerInfo[-1]
        found += len(entries)
    assert found == count
