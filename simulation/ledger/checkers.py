"""Invariants of ledgers on many bookies, checked directly in the bookies' storage and in the metadata.

    after a confirmation      AllCommittedEntriesReachAckQuorum, NoOutOfOrderEntries, FencedWritersNeverConfirm
    after a metadata write    OnlyValidFragments, NoDivergenceBetweenClientAndMetaData,
                              AllCommittedEntriesReachAckQuorum
    after a bookie's restart  AllAckedEntriesAreReadable, AllCommittedEntriesReachAckQuorum, of all it should have
    after a recovery's fence  FencedWritersNeverConfirm: no write set has an ack quorum that is not fenced
    after a recovery's end    the same of the entry that it found absent: its copies, existing or in flight, are
                              too few
    after a read              NoOutOfOrderEntries, LacIsMonotone, LacIsAtMostLap, NothingAboveLacIsRead

Pure: facts in, ViolationError out. The first four names are those of BookKeeper's TLA+ specification.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from quire.ledger.striping import Striping
from quire.metadata import ledger_codec
from quire.metadata.errors import MetadataError
from quire.metadata.ledgers import LedgerMetadata, LedgerState
from quire.wire.bookkeeper.entry import Buffer
from simulation.common.checkers import ViolationError

STATES = (LedgerState.OPEN, LedgerState.IN_RECOVERY, LedgerState.CLOSED)


class LedgerViolationError(ViolationError):
    """An invariant of a ledger does not hold, perhaps at one entry (-1: of the ledger as a whole)."""

    def __init__(self, name: str, ledger_id: int, entry_id: int, details: str) -> None:
        place = f"ledger {ledger_id}" if entry_id < 0 else f"entry {ledger_id}:{entry_id}"
        super().__init__(name, f"{place}: {details}")
        self.ledger_id = ledger_id
        self.entry_id = entry_id


@dataclass
class LedgerHistory:
    """Observations of the writer and the readers of one ledger."""

    ledger_id: int
    writer: str
    """The writer's host."""
    payloads: list[bytes] = field(default_factory=list)
    """Appended entries by entry id; the last one is the LAP."""
    confirmed: int = -1
    """Last entry confirmed to the writer."""
    visible: int = -1
    """Highest LAC that a reader received, and highest entry that it read as confirmed."""
    fenced_at: int | None = None
    """LAP when the first recovery had fenced the bookies."""
    deleted: bool = False
    recoveries: int = 0
    """Number of recoveries begun."""
    length_missed_at: int | None = None
    """Last entry found by a recovery that got no copy of it in time, and so could not determine the ledger's length."""

    @property
    def lap(self) -> int:
        return len(self.payloads) - 1


class LedgerChecker:
    """Checker of all ledgers of a history. `has` and `fenced` look into a bookie: None if it is down."""

    def __init__(
        self,
        has: Callable[[str, int, int], bool | None],
        fenced: Callable[[str, int], bool | None],
    ) -> None:
        self.histories: dict[int, LedgerHistory] = {}
        self.stored: dict[int, LedgerMetadata] = {}
        """The metadata as stored."""
        self.checks = 0
        """Copies looked for."""
        self._has = has
        self._fenced = fenced

    # --- the writer

    def created(self, ledger_id: int, writer: str) -> LedgerHistory:
        history = self.histories[ledger_id] = LedgerHistory(ledger_id, writer)
        return history

    def confirmed(self, history: LedgerHistory, first: int, last: int) -> None:
        """Check entries `first` to `last`, which were confirmed to the writer."""
        ledger_id = history.ledger_id
        if first != history.confirmed + 1 or not first <= last <= history.lap:
            text = f"{first}..{last} confirmed after {history.confirmed}, the last one appended is {history.lap}"
            raise LedgerViolationError("NoOutOfOrderEntries", ledger_id, last, text)
        if history.fenced_at is not None and last > history.fenced_at:
            text = (
                f"confirmed to a fenced writer, who appended it when its bookies were fenced (LAP {history.fenced_at})"
            )
            raise LedgerViolationError("FencedWritersNeverConfirm", ledger_id, last, text)
        history.confirmed = last
        metadata = self.stored.get(ledger_id)
        if metadata is None or history.deleted:
            return
        self._within(history, metadata)
        self._copies(metadata, ledger_id, first, last)

    # --- the metadata

    def metadata_changed(self, ledger_id: int, value: bytes | None) -> None:
        """Check the metadata of a ledger after a write; None: deleted."""
        before = self.stored.get(ledger_id)
        if value is None:
            self.stored.pop(ledger_id, None)
            return
        try:
            metadata = ledger_codec.decode(value)
        except MetadataError as error:
            raise LedgerViolationError("OnlyValidFragments", ledger_id, -1, str(error)) from error
        self.stored[ledger_id] = metadata
        if before is not None:
            self._follows(ledger_id, before, metadata)
        history = self.histories.get(ledger_id)
        if history is not None:
            self._within(history, metadata)
            self.check_ledger(history)

    def _follows(self, ledger_id: int, before: LedgerMetadata, after: LedgerMetadata) -> None:
        closed = before.state is LedgerState.CLOSED
        if STATES.index(after.state) < STATES.index(before.state) or (
            closed and (after.last_entry_id, after.length) != (before.last_entry_id, before.length)
        ):
            text = f"was {before.state.name} at {before.last_entry_id}, is {after.state.name} at {after.last_entry_id}"
            raise LedgerViolationError("NoDivergenceBetweenClientAndMetaData", ledger_id, -1, text)
        self._fragments_follow(ledger_id, before, after)

    def _fragments_follow(self, ledger_id: int, before: LedgerMetadata, after: LedgerMetadata) -> None:
        """Check fragments without repairs: only the last one changes, and others follow it."""
        if after.fragments[: len(before.fragments) - 1] != before.fragments[:-1]:
            text = f"fragments {before.fragments} became {after.fragments}"
            raise LedgerViolationError("OnlyValidFragments", ledger_id, -1, text)

    def _within(self, history: LedgerHistory, metadata: LedgerMetadata) -> None:
        """Check that confirmed and read entries are within a closed ledger, and that within the appended ones."""
        if metadata.state is not LedgerState.CLOSED:
            return
        last = metadata.last_entry_id
        if last > history.lap or last < max(history.confirmed, history.visible):
            name = "NoDivergenceBetweenClientAndMetaData" if last < history.confirmed else "NothingAboveLacIsRead"
            text = (
                f"closed at {last}; {history.confirmed} was confirmed, {history.visible} read as confirmed,"
                f" {history.lap} appended"
            )
            raise LedgerViolationError(name, history.ledger_id, last + 1, text)
        length = sum(map(len, history.payloads[: last + 1]))
        if metadata.length != length and last != history.length_missed_at:
            text = f"closed with {metadata.length} bytes up to {last}, which has {length}"
            raise LedgerViolationError("NoDivergenceBetweenClientAndMetaData", history.ledger_id, last, text)

    # --- the bookies

    def bookie_back(self, bookie_id: str) -> None:
        """Check a returned bookie: it must have what it acknowledged before."""
        for history in self.histories.values():
            metadata = self.stored.get(history.ledger_id)
            if metadata is not None and any(bookie_id in fragment.bookies for fragment in metadata.fragments):
                self.check_ledger(history)

    def check_ledger(self, history: LedgerHistory) -> None:
        """Check the copies of every entry that is confirmed, or within a closed ledger."""
        metadata = self.stored.get(history.ledger_id)
        if metadata is not None and not history.deleted:
            last = metadata.last_entry_id if metadata.state is LedgerState.CLOSED else history.confirmed
            self._copies(metadata, history.ledger_id, 0, last)

    def _copies(self, metadata: LedgerMetadata, ledger_id: int, first: int, last: int) -> None:
        striping = Striping(metadata.ensemble_size, metadata.write_quorum)
        has = self._has
        fragments = metadata.fragments
        for number, fragment in enumerate(fragments):
            end = fragments[number + 1].first_entry_id - 1 if number + 1 < len(fragments) else last
            for entry_id in range(max(first, fragment.first_entry_id), min(last, end) + 1):
                write_set = striping.write_set(entry_id)
                self.checks += len(write_set)
                found = [has(fragment.bookies[index], ledger_id, entry_id) for index in write_set]
                copies = len(found) - found.count(False)
                if copies < metadata.ack_quorum:
                    name = "AllCommittedEntriesReachAckQuorum" if copies else "AllAckedEntriesAreReadable"
                    words = {True: "has it", False: "has it not", None: "is down"}
                    each = [
                        f"{fragment.bookies[index]} {words[here]}" for index, here in zip(write_set, found, strict=True)
                    ]
                    text = f"{copies} copies, the ack quorum is {metadata.ack_quorum}: {', '.join(each)}"
                    raise LedgerViolationError(name, ledger_id, entry_id, text)

    def fencing_ended(self, ledger_id: int, metadata: LedgerMetadata) -> None:
        """Check a recovery with `metadata` that counts the old writer as fenced."""
        fragment = metadata.fragments[-1]
        for write_set in Striping(metadata.ensemble_size, metadata.write_quorum).write_sets():
            free = [
                fragment.bookies[index]
                for index in write_set
                if self._fenced(fragment.bookies[index], ledger_id) is False
            ]
            if len(free) >= metadata.ack_quorum:
                text = f"its recovery goes on, and {' '.join(free)} are not fenced, an ack quorum"
                raise LedgerViolationError("FencedWritersNeverConfirm", ledger_id, -1, text)
        history = self.histories.get(ledger_id)
        if history is not None and history.fenced_at is None:
            history.fenced_at = history.lap

    def entry_denied(self, ledger_id: int, entry_id: int, bookies: Sequence[str], ack_quorum: int) -> None:
        """Check a recovery that counts an entry as unconfirmed, now and later, from the answers of its write set."""
        history = self.histories.get(ledger_id)
        if history is None or history.recoveries > 1:
            return  # a copy sent by another one may still arrive
        free = [each for each in bookies if self._fenced(each, ledger_id) is False]
        there = [each for each in bookies if each not in free and self._has(each, ledger_id, entry_id)]
        if len(free) + len(there) >= ack_quorum:
            text = (
                f"its recovery ends before it, but {' '.join(there) or 'nobody'} has it, "
                f"{' '.join(free) or 'nobody'} may take it"
            )
            raise LedgerViolationError("FencedWritersNeverConfirm", ledger_id, entry_id, text)

    def length_missed(self, ledger_id: int, entry_id: int) -> None:
        """Note that a recovery ends at this entry without any copy of it, so it may close the ledger with another
        length."""
        history = self.histories.get(ledger_id)
        if history is not None:
            history.length_missed_at = entry_id

    # --- readers

    def lac_seen(self, history: LedgerHistory, before: int, lac: int) -> None:
        """Check a LAC received by a reader with the LAC `before`."""
        if lac < before:
            raise LedgerViolationError("LacIsMonotone", history.ledger_id, lac, f"a reader knew {before} before")
        if lac > history.lap:
            text = f"is a LAC, and {history.lap} the last entry appended"
            raise LedgerViolationError("LacIsAtMostLap", history.ledger_id, lac, text)
        history.visible = max(history.visible, lac)

    def entries_read(self, history: LedgerHistory, first: int, payloads: Sequence[Buffer]) -> None:
        """Check entries from `first` on, up to a reader's LAC."""
        for entry_id, payload in enumerate(payloads, first):
            if entry_id > history.lap or payload != history.payloads[entry_id]:
                text = f"read as {bytes(payload)[:40]!r}, which was not appended there"
                raise LedgerViolationError("NoOutOfOrderEntries", history.ledger_id, entry_id, text)

    def check_final(self) -> None:
        """Check the healed cluster, with every bookie up: every ledger is closed and has its copies."""
        for history in self.histories.values():
            metadata = self.stored.get(history.ledger_id)
            if metadata is None:
                if not history.deleted:
                    text = "its metadata is gone, and nobody deleted it"
                    raise LedgerViolationError("AllAckedEntriesAreReadable", history.ledger_id, -1, text)
                continue
            if metadata.state is not LedgerState.CLOSED:
                raise LedgerViolationError("Liveness", history.ledger_id, -1, f"is {metadata.state.name} in the end")
            self.check_ledger(history)
