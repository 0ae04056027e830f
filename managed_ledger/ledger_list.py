"""The ledgers a log is made of, in order, and the codec of the stored value. Pure.

Value of /managed-ledgers/<tenant>/<namespace>/persistent/<topic>: Pulsar's ManagedLedgerInfo. Ours alone are a list of
ledgers that are not of the list and to be deleted (field 16001), a number that an open has drawn (16002), and the
ledgers whose objects of tiered storage are to be deleted (16003); Pulsar's reader skips them. A ledger that was made
ahead is named among those to be deleted until it enters the list. Fields that we do not know are kept as they are.

What holds: OnlyOneLedgerOpenAtATime (only the last ledger may be open); ids grow; a ledger leaves the list only into
`deleting`, and leaves that only after it was deleted, or into the list, so that nothing leaks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from google.protobuf.message import DecodeError

from cursors.compression import CompressedValueError, plain
from cursors.unknown_fields import unknown_fields
from managed_ledger.errors import ManagedLedgerDamagedError
from quire.ledger.position import Position
from quire.wire.pulsar import MLDataFormats_pb2 as pb


@dataclass(slots=True, kw_only=True)
class LedgerInfo:
    """One ledger of the log. Not changed once it is made, and not frozen, which takes three times as long to make: a
    broker makes two of each log that it opens."""

    ledger_id: int
    entries: int = 0
    """0 while it is open."""
    size: int = 0
    """Bytes of payload; 0 while it is open."""
    closed_ms: int = 0
    """When it was closed, in ms since 1970; 0: it was not, or is not known to be."""
    offload: bytes = b""
    """Serialised OffloadContext, kept as it is."""
    properties: tuple[tuple[str, str], ...] = ()
    unknown: bytes = b""
    """Fields of a newer schema, serialised."""

    @property
    def last_entry_id(self) -> int:
        return self.entries - 1

    @property
    def is_offloaded(self) -> bool:
        """Return whether the original has copied it to tiered storage. Source: Pulsar's
        ManagedLedgerImpl.getManagedLedgerInternalStats."""
        try:
            return pb.OffloadContext.FromString(self.offload).complete
        except DecodeError:
            return False


@dataclass(slots=True, kw_only=True)
class LedgerList:
    """The value of a log's node. Changed by the methods, which return new values; not frozen, as `LedgerInfo`."""

    ledgers: tuple[LedgerInfo, ...] = ()
    terminated: Position | None = None
    properties: tuple[tuple[str, str], ...] = ()
    deleting: tuple[int, ...] = ()
    opening: int = 0
    """Drawn by the open that stored the list without a new ledger in it: no other owner's list is equal to this one."""
    trimmed: tuple[LedgerInfo, ...] = ()
    """Ledgers that are not of the list, whose objects of tiered storage are to be deleted."""
    unknown: bytes = b""
    """Fields of a newer schema, serialised."""

    def __post_init__(self) -> None:
        if len(self.ledgers) < 2:
            return
        ids = [info.ledger_id for info in self.ledgers]
        if any(after <= before for before, after in pairwise(ids)):
            raise ManagedLedgerDamagedError(f"the ids of a ledger list are not ascending: {ids}")

    def names_as(self, other: LedgerList) -> bool:
        """Return whether the other list names the same ledgers, for the same purpose."""
        if self.deleting != other.deleting:
            return False
        return [info.ledger_id for info in self.ledgers] == [info.ledger_id for info in other.ledgers]

    def opened(self, ledger_id: int) -> LedgerList:
        """With a new, open ledger at the end; if it was made ahead, it is not to be deleted any more."""
        return self._of((*self.ledgers, LedgerInfo(ledger_id=ledger_id)), self.deleting, self.opening).deleted(
            [ledger_id]
        )

    def taken_over(self, opening: int) -> LedgerList:
        """As the list of an owner that has drawn this number."""
        return self._of(self.ledgers, self.deleting, opening)

    def closed(self, ledger_id: int, *, entries: int, size: int, now_ms: int) -> LedgerList:
        """The last ledger was closed with this; without entries it leaves the list. One that is marked as closed
        already keeps its time, so that a restart does not prolong its retention."""
        last = self.ledgers[-1]
        assert last.ledger_id == ledger_id, f"{ledger_id} is not the last ledger, {last.ledger_id} is"
        if entries == 0:
            return self.without([ledger_id])
        if last.closed_ms and last.entries == entries and last.size == size:
            return self
        info = LedgerInfo(
            ledger_id=ledger_id,
            entries=entries,
            size=size,
            closed_ms=last.closed_ms or now_ms,
            offload=last.offload,
            properties=last.properties,
            unknown=last.unknown,
        )
        return self._of((*self.ledgers[:-1], info), self.deleting, self.opening)

    def terminated_at(self, end: Position) -> LedgerList:
        """As the list of a log that takes no entries behind `end`."""
        return replace(self, terminated=end)

    def without(self, ledger_ids: Collection[int]) -> LedgerList:
        """Without these ledgers, which are now to be deleted."""
        if not ledger_ids:
            return self
        kept = tuple(info for info in self.ledgers if info.ledger_id not in ledger_ids)
        return self._of(kept, self.deleting, self.opening).also_deleting(ledger_ids)

    def also_deleting(self, ledger_ids: Collection[int]) -> LedgerList:
        return self._of(self.ledgers, tuple(sorted({*self.deleting, *ledger_ids})), self.opening)

    def deleted(self, ledger_ids: Collection[int]) -> LedgerList:
        """These were deleted."""
        if not self.deleting:
            return self
        return self._of(self.ledgers, tuple(one for one in self.deleting if one not in ledger_ids), self.opening)

    def objects_deleted(self, ledger_ids: Collection[int]) -> LedgerList:
        """The objects of these trimmed ledgers were deleted."""
        return replace(self, trimmed=tuple(info for info in self.trimmed if info.ledger_id not in ledger_ids))

    def with_properties(self, change: Callable[[dict[str, str]], dict[str, str]]) -> LedgerList:
        """With what `change` makes of the properties of the log; itself if that changes none."""
        found = dict(self.properties)
        changed = change(dict(found))
        return self if changed == found else replace(self, properties=tuple(changed.items()))

    def _of(self, ledgers: tuple[LedgerInfo, ...], deleting: tuple[int, ...], opening: int) -> LedgerList:
        """With these; the rest as it is. `dataclasses.replace` takes four times as long."""
        return LedgerList(
            ledgers=ledgers,
            terminated=self.terminated,
            properties=self.properties,
            deleting=deleting,
            opening=opening,
            trimmed=self.trimmed,
            unknown=self.unknown,
        )


def encode(value: LedgerList) -> bytes:
    info = pb.ManagedLedgerInfo(quireDeletingLedgerIds=value.deleting)
    if value.opening:
        info.quireOpening = value.opening
    info.MergeFromString(value.unknown)
    for ledger in value.ledgers:
        _encode_ledger(info.ledgerInfo.add(), ledger)
    for ledger in value.trimmed:
        _encode_ledger(info.quireTrimmedLedgers.add(), ledger)
    if value.terminated is not None:
        info.terminatedPosition.ledgerId, info.terminatedPosition.entryId = value.terminated
    for key, text in value.properties:
        info.properties.add(key=key, value=text)
    return info.SerializeToString()


def _encode_ledger(added: pb.ManagedLedgerInfo.LedgerInfo, ledger: LedgerInfo) -> None:
    added.ledgerId, added.timestamp = ledger.ledger_id, ledger.closed_ms
    if ledger.entries:
        added.entries, added.size = ledger.entries, ledger.size
    if ledger.offload:
        added.offloadContext.MergeFromString(ledger.offload)
    for key, text in ledger.properties:
        added.properties.add(key=key, value=text)
    if ledger.unknown:
        added.MergeFromString(ledger.unknown)


def new_list(properties: Sequence[tuple[str, str]] = ()) -> bytes:
    """Return the value of a new log."""
    return encode(LedgerList(properties=tuple(properties))) if properties else b""


def decode(value: bytes) -> LedgerList:
    """Decode a list; an empty one for no bytes, the value of a new log. Raises ManagedLedgerDamagedError."""
    try:
        info = pb.ManagedLedgerInfo.FromString(plain(value))
    except (DecodeError, CompressedValueError) as error:
        raise ManagedLedgerDamagedError(f"not a ledger list: {error}") from error
    if not info.IsInitialized():
        raise ManagedLedgerDamagedError("not a ledger list: a required field is missing")
    end = info.terminatedPosition if info.HasField("terminatedPosition") else None
    return LedgerList(
        ledgers=tuple([_decode_ledger(ledger) for ledger in info.ledgerInfo]),
        terminated=None if end is None else Position(end.ledgerId, end.entryId),
        properties=tuple([(pair.key, pair.value) for pair in info.properties]),
        deleting=tuple(info.quireDeletingLedgerIds),
        opening=info.quireOpening,
        trimmed=tuple([_decode_ledger(ledger) for ledger in info.quireTrimmedLedgers]),
        unknown=unknown_fields(info),
    )


def _decode_ledger(ledger: pb.ManagedLedgerInfo.LedgerInfo) -> LedgerInfo:
    return LedgerInfo(
        ledger_id=ledger.ledgerId,
        entries=ledger.entries,
        size=ledger.size,
        closed_ms=ledger.timestamp,
        offload=ledger.offloadContext.SerializeToString() if ledger.HasField("offloadContext") else b"",
        properties=tuple([(pair.key, pair.value) for pair in ledger.properties]),
        unknown=unknown_fields(ledger),
    )
