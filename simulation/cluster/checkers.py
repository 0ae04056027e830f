"""Invariants of a whole cluster, beside those of single ledgers and of clients.

    after a confirmation       FencedOwnersNeverConfirm: nothing that a broker appended after another had stored the
                               topic's list
    after a repair             RepairedFragmentsAreWhole: a replacement of a member has every entry of it
    after a write of a list    ListsAgreeWithLedgers: it agrees with the metadata of closed ledgers
    at the end                 LedgersNeverLeak, EveryLedgerHasItsCopies, ReplicasAreEqual, OneOwnerPerBundle

Pure: facts in, ViolationError out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from managed_ledger.ledger_list import LedgerList
from quire.ledger.striping import Striping
from quire.metadata.ledgers import Fragment, LedgerMetadata, LedgerState
from quire.wire.bookkeeper.entry import Buffer
from simulation.common.checkers import require
from simulation.ledger.checkers import LedgerChecker, LedgerHistory, LedgerViolationError

Process: TypeAlias = tuple[str, int]
"""(host, incarnation)"""


@dataclass(frozen=True, slots=True)
class Copy:
    """Required place of one copy of an entry."""

    ledger_id: int
    entry_id: int
    bookie_id: str


class ClusterChecker(LedgerChecker):
    """Checker of all ledgers of a cluster: of topics, and of cursors."""

    def __init__(
        self,
        has: Callable[[str, int, int], bool | None],
        fenced: Callable[[str, int], bool | None],
    ) -> None:
        super().__init__(has, fenced)
        self.lists: dict[str, LedgerList] = {}
        """Stored lists of ledgers, by topic."""
        self.owners: dict[str, Process] = {}
        """The process that stored each list last."""
        self.writers: dict[int, Process] = {}
        self.disowned: dict[int, int] = {}
        """By ledger: the LAP at the time when another process had the topic."""
        self.repaired = 0
        """Replaced members of fragments that get no more entries."""

    # --- ledgers

    def opened(self, ledger_id: int, writer: Process) -> LedgerHistory:
        """Note a new writer."""
        self.writers[ledger_id] = writer
        return self.created(ledger_id, writer[0])

    def appended(self, history: LedgerHistory, first: int, payloads: Sequence[Buffer]) -> None:
        """Note that the writer has sent entries from `first` on."""
        if first != history.lap + 1:
            text = f"appended after {history.lap}"
            raise LedgerViolationError("NoOutOfOrderEntries", history.ledger_id, first, text)
        history.payloads += [bytes(payload) for payload in payloads]

    def confirmed(self, history: LedgerHistory, first: int, last: int) -> None:
        lap = self.disowned.get(history.ledger_id)
        if lap is not None and last > lap:
            text = (
                f"confirmed to {self.writers[history.ledger_id]}, who appended it after another had the topic (LAP "
                f"{lap})"
            )
            raise LedgerViolationError("FencedOwnersNeverConfirm", history.ledger_id, last, text)
        super().confirmed(history, first, last)

    def metadata_changed(self, ledger_id: int, value: bytes | None) -> None:
        history = self.histories.get(ledger_id)
        if value is None and history is not None:
            history.deleted = True
        super().metadata_changed(ledger_id, value)

    def _fragments_follow(self, ledger_id: int, before: LedgerMetadata, after: LedgerMetadata) -> None:
        """Check that fragments keep their start, and that members of finished ones are replaced by bookies with all
        their entries."""
        closed = before.state is LedgerState.CLOSED
        fixed = before.fragments if closed else before.fragments[:-1]
        starts = [each.first_entry_id for each in fixed]
        if [each.first_entry_id for each in after.fragments[: len(fixed)]] != starts or (
            closed and len(after.fragments) != len(fixed)
        ):
            text = f"fragments {before.fragments} became {after.fragments}"
            raise LedgerViolationError("OnlyValidFragments", ledger_id, -1, text)
        for number, old in enumerate(fixed):
            new = after.fragments[number]
            if new.bookies != old.bookies:
                last = (
                    before.fragments[number + 1].first_entry_id - 1
                    if number + 1 < len(before.fragments)
                    else before.last_entry_id
                )
                self._is_whole(ledger_id, after, old, new, last)

    def _is_whole(self, ledger_id: int, metadata: LedgerMetadata, old: Fragment, new: Fragment, last: int) -> None:
        striping = Striping(metadata.ensemble_size, metadata.write_quorum)
        for index, bookie_id in enumerate(new.bookies):
            if bookie_id == old.bookies[index]:
                continue
            self.repaired += 1
            for entry_id in range(new.first_entry_id, last + 1):
                if index in striping.write_set(entry_id) and self._has(bookie_id, ledger_id, entry_id) is False:
                    text = f"{bookie_id} took the place of {old.bookies[index]} and has it not"
                    raise LedgerViolationError("RepairedFragmentsAreWhole", ledger_id, entry_id, text)

    # --- lists

    def list_changed(self, topic: str, value: LedgerList | None, writer: Process) -> None:
        """Check a topic's list that was stored, or deleted."""
        if value is None:
            self.lists.pop(topic, None)
            return
        self.lists[topic] = value
        for info in value.ledgers[:-1]:
            self._agrees(topic, info.ledger_id, info.entries)
        if value.ledgers and value.ledgers[-1].entries:
            self._agrees(topic, value.ledgers[-1].ledger_id, value.ledgers[-1].entries)
        if self.owners.get(topic) != writer:
            self.owners[topic] = writer
            for info in value.ledgers:
                history = self.histories.get(info.ledger_id)
                if history is not None and self.writers[info.ledger_id] != writer:
                    self.disowned.setdefault(info.ledger_id, history.lap)

    def _agrees(self, topic: str, ledger_id: int, entries: int) -> None:
        metadata = self.stored.get(ledger_id)
        if metadata is None:
            text = f"is in the list of {topic}, and has no metadata"
            raise LedgerViolationError("ListsAgreeWithLedgers", ledger_id, -1, text)
        if metadata.state is not LedgerState.CLOSED or metadata.last_entry_id != entries - 1:
            text = (
                f"the list of {topic} says that it has {entries} entries;"
                f" it is {metadata.state.name} at {metadata.last_entry_id}"
            )
            raise LedgerViolationError("ListsAgreeWithLedgers", ledger_id, -1, text)

    # --- the end

    def check_leaks(self, cursor_ledgers: Collection[int]) -> None:
        """Check that every ledger is named, and that every ledger of a list exists.

        Named means: in a list, in its ledgers to be deleted, or in a cursor's node."""
        named = set(cursor_ledgers)
        for topic, value in self.lists.items():
            for info in value.ledgers:
                require(
                    info.ledger_id in self.stored, "ListsAgreeWithLedgers", f"{topic}: ledger {info.ledger_id} is gone"
                )
            named.update([info.ledger_id for info in value.ledgers], value.deleting)
        for ledger_id in sorted(self.stored):
            if ledger_id not in named:
                text = f"made by {self.writers.get(ledger_id)}, and nobody names it"
                raise LedgerViolationError("LedgersNeverLeak", ledger_id, -1, text)

    def closed_copies(self) -> Iterator[Copy]:
        """Yield every copy that closed ledgers must have."""
        for ledger_id, metadata in sorted(self.stored.items()):
            if metadata.state is not LedgerState.CLOSED:
                continue
            striping = Striping(metadata.ensemble_size, metadata.write_quorum)
            for entry_id in range(metadata.last_entry_id + 1):
                bookies = metadata.fragment_at(entry_id).bookies
                for index in striping.write_set(entry_id):
                    yield Copy(ledger_id, entry_id, bookies[index])

    def missing(self) -> Copy | None:
        """Return a missing copy of a closed ledger, if there is one; every bookie must be up, or lost."""
        return next(
            (each for each in self.closed_copies() if not self._has(each.bookie_id, each.ledger_id, each.entry_id)),
            None,
        )

    def check_copies(self, read: Callable[[Copy], bytes | str]) -> int:
        """Check that each copy equals what was appended; return their number.

        `read` returns its payload, or the reason why there is none."""
        count = 0
        for copy in self.closed_copies():
            count += 1
            found = read(copy)
            history = self.histories.get(copy.ledger_id)
            if isinstance(found, str) or (history is not None and found != history.payloads[copy.entry_id]):
                text = found if isinstance(found, str) else f"{found[:40]!r}, which was not appended there"
                raise LedgerViolationError(
                    "ReplicasAreEqual", copy.ledger_id, copy.entry_id, f"on {copy.bookie_id}: {text}"
                )
        return count


def check_owners(owned: Mapping[str, Sequence[str]], nodes: Mapping[str, str]) -> None:
    """Check that bundles have one owner.

    `owned`: by broker, the bundles it believes to own; `nodes`: by bundle, the broker in its node."""
    holders: dict[str, str] = {}
    for broker, bundles in owned.items():
        for bundle in bundles:
            other = holders.setdefault(bundle, broker)
            require(other == broker, "OneOwnerPerBundle", f"{bundle} is owned by {other} and by {broker}")
            require(
                nodes.get(bundle) == broker,
                "OneOwnerPerBundle",
                f"{bundle}: {broker} owns it, its node names {nodes.get(bundle)}",
            )
    for bundle, broker in nodes.items():
        require(bundle in holders, "OneOwnerPerBundle", f"{bundle}: its node names {broker}, who does not own it")
