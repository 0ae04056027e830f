"""Bugs to plant, one at a time, each of which the histories must find: proof that the checkers work."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import trio

from autorecovery.auditing import auditor
from autorecovery.auditing.missed_copies import MissedCopies
from autorecovery.copying.replicator import Copied, Replicator
from autorecovery.fragments import BadFragment
from bookie import garbage_rounds
from bookie import recovery as bookie_recovery
from bookie.bookie import Bookie
from bookie.checkpoints import Checkpoints
from bookie.db_ledger_storage.garbage_collector import Collected
from bookie.db_ledger_storage.ledger_index import LedgerIndex
from bookie.db_ledger_storage.ledger_removal import LedgerRemoval
from bookie.fencing import FenceTable
from bookie.garbage import collect_garbage
from bookie.journal.format import NO_MARK, LogMark
from bookie.journal.group_writer import GroupWriter
from bookie.journal.seal import ReplayPlan, Sealed
from bookie.journal.writer import Journal
from broker.dispatch.consumer import Consumer
from broker.dispatch.holding import HoldingSubscription
from broker.dispatch.many_consumers import ManyConsumers
from broker.dispatch.policies.key_shared import KeyShared
from broker.dispatch.policies.shared import Shared
from broker.dispatch.subscription import Subscription
from broker.ownership.bundles import Bundles
from broker.ownership.lease import Lease
from broker.ownership.placement import Placement
from broker.topics.compaction import leftovers
from broker.topics.entry_screen import EntryScreen, Screened
from cursors.cursor import Cursor
from cursors.cursor_store import CursorStore, Persisted
from cursors.doors import Writer
from cursors.services import CursorServices
from managed_ledger import opening
from managed_ledger.entry_run import EntryRun
from managed_ledger.ledger_list import LedgerList
from managed_ledger.services import Services
from managed_ledger.writing.appends import Appends
from managed_ledger.writing.pending import PendingAppend
from managed_ledger.writing.state import State
from quire.ledger.bookies.pool import AddChannel
from quire.ledger.context import LedgerContext
from quire.ledger.position import Position
from quire.ledger.reading.last_confirmed import LastConfirmed, read_last_confirmed
from quire.ledger.recovery import recovery
from quire.ledger.recovery.rules import FenceCoverage
from quire.ledger.writing.ack_tracker import AckTracker
from quire.ledger.writing.appender import Appender
from quire.metadata.ledgers import LedgerMetadata
from quire.metadata.store import Delete
from quire.wire.bookkeeper import v2
from quire.wire.bookkeeper.entry import Digest
from quire.wire.pulsar.names import TopicName
from quire.world.doors import Buffer, File
from simulation.common.bugs_of_compaction import BUGS_OF_COMPACTION
from simulation.common.bugs_of_directories import BUGS_OF_DIRECTORIES
from simulation.common.bugs_of_life import BUGS_OF_LIFE
from simulation.common.bugs_of_limbo import BUGS_OF_LIMBO
from simulation.common.bugs_of_offload import BUGS_OF_OFFLOAD
from simulation.common.patching import Patch, patched
from simulation.machines import key_value


def _ack_before_fsync() -> list[Patch]:
    """The journal answers, though nothing was synced."""

    def write(self: GroupWriter, file: File, parts: Sequence[Buffer]) -> None:
        self._write(file, parts)
        self.seal = None  # it would find the loss at the next start

    return [(GroupWriter, "_write_synced", write)]


def _fence_after_answer() -> list[Patch]:
    """The fencing read is answered at once; its FENCE record is written later."""
    fence: Callable[[Bookie, int, bytes | None, Callable[[v2.Rc], None]], None] = Bookie.fence

    def early(self: Bookie, ledger_id: int, key: bytes | None, done: Callable[[v2.Rc], None]) -> None:
        fence(self, ledger_id, key, lambda rc: None)
        done(v2.Rc.OK)

    def needs_wait(self: FenceTable, ledger_id: int, fenced: bool) -> bool:
        return not fenced

    return [(Bookie, "fence", early), (FenceTable, "needs_wait", needs_wait)]


def _last_mark_before_index_sync() -> list[Patch]:
    """A checkpoint writes lastMark before it flushes the data that lastMark covers."""

    async def make(self: Checkpoints) -> None:
        for number, journal in enumerate(self._journals):
            mark = journal.mark()
            if mark > self.last_marks[number]:
                await self.write_last_mark(number, mark)
        for storage in self._storages:
            await storage.flush()
        for number, journal in enumerate(self._journals):
            await journal.checkpoint_complete(self.last_marks[number])

    return [(Checkpoints, "make", make)]


def _ack_answered_before_append() -> list[Patch]:
    """An acknowledgement is answered at once; the cursor is stored a moment later."""

    def persisted(self: Cursor, callback: Persisted) -> None:
        callback(None)

    return [(Cursor, "persisted", persisted)]


def _delivery_above_lac() -> list[Patch]:
    """Entries are delivered when they are sent to the bookies, not when they are confirmed."""
    send: Callable[[Appends, PendingAppend], bool] = Appends._send

    def early(self: Appends, run: PendingAppend) -> bool:
        payloads: Sequence[Buffer] = [bytes(payload) for payload in run.payloads or ()]
        sent = send(self, run)
        writer = self.writer
        if sent and writer is not None and self.state is State.OPEN:
            self._listener.cache.add(
                writer.ledger_id, run.first, list(payloads), max(1, self.readers), trio.current_time()
            )
            self._index.last_confirmed = Position(writer.ledger_id, writer.last_pushed)
            self._listener.on_appended()
        return sent

    return [(Appends, "_send", early)]


def _recovery_reads_do_not_fence() -> list[Patch]:
    """Recovery fences only while it asks for the last add confirmed, not with each entry that it reads."""
    return [(recovery, "RECOVERY_READ", v2.HIGH_PRIORITY)]


def _lac_bound_removed() -> list[Patch]:
    """Recovery begins at the highest LAC of the last ensemble's bookies, though all before that ensemble is
    confirmed."""

    async def unbound(
        context: LedgerContext,
        ledger_id: int,
        metadata: LedgerMetadata,
        digest: Digest,
        password: bytes,
        *,
        fence: bool,
    ) -> LastConfirmed:
        last = replace(metadata.fragments[-1], first_entry_id=0)
        return await read_last_confirmed(
            context, ledger_id, replace(metadata, fragments=(last,)), digest, password, fence=fence
        )

    return [(recovery, "read_last_confirmed", unbound)]


def _coverage_loosened() -> list[Patch]:
    """Recovery continues although one bookie too many of each write set may be unfenced."""

    def covered(self: FenceCoverage) -> bool:
        return all(
            sum([not self._known[index] for index in write_set]) <= self._ack_quorum for write_set in self._write_sets
        )

    return [(FenceCoverage, "covered", property(covered))]


def _acks_of_replaced_kept() -> list[Patch]:
    """Acknowledgements of a replaced bookie count."""

    def replaced(self: AckTracker, index: int) -> None:
        self._failed &= ~(1 << index)

    return [(AckTracker, "replaced", replaced)]


def _fence_forgotten() -> list[Patch]:
    """A fence is dropped with its ledger after deletion and garbage collection."""

    def is_fenced(self: LedgerIndex, ledger_id: int) -> bool:
        state = self.get(ledger_id)
        return state is not None and state.fenced

    def key_and_fence(self: LedgerIndex, ledger_id: int) -> tuple[bytes | None, bool]:
        state = self.get(ledger_id)
        return (None, False) if state is None else (state.master_key or None, state.fenced)

    return [(LedgerIndex, "is_fenced", is_fenced), (LedgerIndex, "key_and_fence", key_and_fence)]


def _fence_ignored() -> list[Patch]:
    """An owner counts the answer that a ledger is fenced as an acknowledgement."""
    answered: Callable[[Appender, AddChannel, int, int, int], None] = Appender.adds_answered

    def ignoring(self: Appender, channel: AddChannel, rc: int, first: int, last: int) -> None:
        answered(self, channel, v2.Rc.OK if rc == v2.Rc.FENCED else rc, first, last)

    return [(Appender, "adds_answered", ignoring)]


def _member_replaced_early() -> list[Patch]:
    """A worker puts the new member into the metadata before it copies."""

    async def move(
        self: Replicator, metadata: LedgerMetadata, bad: BadFragment, newcomers: Mapping[int, str], done: Copied
    ) -> None:
        fragment = bad.fragment
        members = {index: (fragment.bookies[index], new) for index, new in newcomers.items()}
        if members:
            await self._client.replace_members(fragment.ledger_id, fragment.first, fragment.last, members)
            await self._copy(metadata, bad, newcomers, fragment.entries_of_any(newcomers), done)

    return [(Replicator, "_move", move)]


def _lost_bookie_ignored() -> list[Patch]:
    """The auditor expects lost bookies to come back."""

    def nobody(indexed: Collection[str], present: Collection[str], held: Collection[str]) -> list[str]:
        return []

    return [(auditor, "lost_of", nobody)]


def _missed_copies_ignored() -> list[Patch]:
    """The auditor counts returned bookies as complete, and ignores the notes of writers."""

    async def idle(self: MissedCopies) -> None:
        await trio.sleep_forever()

    return [(MissedCopies, "run", idle)]


def _list_closed_short() -> list[Patch]:
    """A takeover records the end of the last ledger one entry too early."""
    recover: Callable[..., Awaitable[LedgerList]] = opening._recover_last

    async def short(services: Services, name: str, value: LedgerList) -> LedgerList:
        found = await recover(services, name, value)
        if not found.ledgers or found.ledgers[-1].entries < 2:
            return found
        last = replace(found.ledgers[-1], entries=found.ledgers[-1].entries - 1)
        return replace(found, ledgers=(*found.ledgers[:-1], last))

    return [(opening, "_recover_last", short)]


def _intent_forgotten() -> list[Patch]:
    """A ledger that leaves a list, or was made ahead of it, is not recorded for deletion."""

    def unchanged(self: LedgerList, ledger_ids: Collection[int]) -> LedgerList:
        return self

    return [(LedgerList, "also_deleting", unchanged)]


def _orphan_on_unsubscribe() -> list[Patch]:
    """A cursor is deleted without waiting for its ledger under creation."""

    async def end(self: CursorStore) -> tuple[list[int], Delete]:
        await trio.lowlevel.checkpoint()
        return self.ledger_ids(), Delete(path=self.node._path)

    return [(CursorStore, "end", end)]


def _compacted_ledger_deleted_early() -> list[Patch]:
    """The old compacted ledger is deleted, though the position that names the new one is not durable yet."""

    async def wait_persisted(self: Cursor) -> None:
        await trio.lowlevel.checkpoint()

    return [(Cursor, "wait_persisted", wait_persisted)]


def _orphan_of_compaction() -> list[Patch]:
    """A compacted ledger is made without the node that names it."""

    async def new_ledger(services: CursorServices, name: TopicName, old: int, last: Position) -> Writer:
        quorums = services.next_quorums
        return await services.ledgers.create(
            ensemble_size=quorums.ensemble_size, write_quorum=quorums.write_quorum, ack_quorum=quorums.ack_quorum
        )

    return [(leftovers, "new_ledger", new_ledger)]


def _key_not_journalled_again() -> list[Patch]:
    """The journal counts the key of a ledger as written, though the ledger was collected since."""

    def forget_nothing(self: Journal, ledgers: Sequence[int]) -> None:
        return

    return [(Journal, "forget_keys", forget_nothing)]


def _former_life_replayed() -> list[Patch]:
    """Garbage collection makes no checkpoint, and a ledger id accepts adds before one has passed the journal's entries
    of its former life."""

    async def no_checkpoint() -> None:
        return

    async def collect(*arguments: Any, settle: object, **options: Any) -> Collected:
        return await collect_garbage(*arguments, settle=no_checkpoint, **options)

    def removed(self: LedgerRemoval, ledgers: Sequence[int]) -> None:
        rows_deleted(self, ledgers)
        self.release(ledgers)

    rows_deleted: Callable[[LedgerRemoval, Sequence[int]], None] = LedgerRemoval.rows_deleted
    return [(LedgerRemoval, "rows_deleted", removed), (garbage_rounds, "collect_garbage", collect)]


def _wal_tail_tolerated() -> list[Patch]:
    """A map with a damaged log is opened up to the damage, RocksDB's default."""
    return [(key_value, "meet_damage", key_value.tolerate_damage)]


def _mark_trusted() -> list[Patch]:
    """Replay uses lastMark and the apparent end of the journal, and ignores the seal."""

    def trusting(last_mark: LogMark | None, sealed: Sealed | None, ids: Sequence[int], **_: str) -> ReplayPlan:
        mark = last_mark or NO_MARK
        return ReplayPlan(mark, mark.file_id)

    return [(bookie_recovery, "plan_replay", trusting)]


def _former_bundles_left() -> list[Patch]:
    """A restarted broker retakes bundles of its former session only on request."""

    async def left(self: Placement, lease: Lease, bundles: Bundles) -> None:
        await trio.lowlevel.checkpoint()

    return [(Placement, "take_again", left)]


def _delay_forgotten_by_restart() -> list[Patch]:
    """Entries stored before a topic was loaded are delivered at once, whatever their delivery time."""
    screen: Callable[[EntryScreen, EntryRun], Screened | None] = EntryScreen.screen

    def blind(self: EntryScreen, run: EntryRun) -> Screened | None:
        features = self.features
        found = screen(self, run)
        self.features = features
        return found

    return [(EntryScreen, "screen", blind)]


def _wake_forgotten() -> list[Patch]:
    """Permits are counted, and the dispatcher is not called for them."""

    def deaf(self: ManyConsumers, consumer: Consumer[Subscription], permits: int) -> None:
        self._policy.flow(consumer, permits, self.topic.context.options.permits_max)

    return [(ManyConsumers, "flow", deaf)]


def _permit_leaked() -> list[Patch]:
    """A Shared consumer loses a permit with each run of entries that it is given."""
    assign: Callable[..., list[tuple[Any, int, int]]] = Shared.assign

    def leaking(self: Shared[Any], counts: Sequence[int]) -> list[tuple[Any, int, int]]:
        assigned = assign(self, counts)
        for consumer, _, _ in assigned:
            self._slots[consumer].permits -= 1
        return assigned

    return [(Shared, "assign", leaking)]


def _unacked_leaked() -> list[Patch]:
    """An acknowledged entry stays in the count of unacknowledged messages of its subscription."""
    release: Callable[[HoldingSubscription, Consumer[Subscription], Sequence[Position]], None]
    release = HoldingSubscription._release_all

    def leaking(self: HoldingSubscription, consumer: Consumer[Subscription], positions: Sequence[Position]) -> None:
        before = self._unacked
        release(self, consumer, positions)
        self._unacked = before

    return [(HoldingSubscription, "_release_all", leaking)]


def _key_not_released() -> list[Patch]:
    """A key stays with a consumer that has acknowledged all entries of it."""

    def keep(self: KeyShared[Any], consumer: object, hashes: Iterable[int]) -> None:
        return

    return [(KeyShared, "released", keep)]


BUGS: dict[str, Callable[[], list[Patch]]] = {
    "ack-before-fsync": _ack_before_fsync,
    "fence-after-answer": _fence_after_answer,
    "lastMark-before-index-sync": _last_mark_before_index_sync,
    "ack-answered-before-append": _ack_answered_before_append,
    "delivery-above-LAC": _delivery_above_lac,
    "recovery-reads-do-not-fence": _recovery_reads_do_not_fence,
    "LAC-bound-removed": _lac_bound_removed,
    "coverage-loosened": _coverage_loosened,
    "acks-of-replaced-kept": _acks_of_replaced_kept,
    "fence-forgotten": _fence_forgotten,
    "fence-ignored": _fence_ignored,
    "member-replaced-early": _member_replaced_early,
    "lost-bookie-ignored": _lost_bookie_ignored,
    "missed-copies-ignored": _missed_copies_ignored,
    "list-closed-short": _list_closed_short,
    "former-bundles-left": _former_bundles_left,
    "intent-forgotten": _intent_forgotten,
    "orphan-on-unsubscribe": _orphan_on_unsubscribe,
    "compacted-ledger-deleted-early": _compacted_ledger_deleted_early,
    "orphan-of-compaction": _orphan_of_compaction,
    "key-not-journalled-again": _key_not_journalled_again,
    "former-life-replayed": _former_life_replayed,
    "WAL-tail-tolerated": _wal_tail_tolerated,
    "mark-trusted": _mark_trusted,
    "delay-forgotten-by-restart": _delay_forgotten_by_restart,
    "wake-forgotten": _wake_forgotten,
    "permit-leaked": _permit_leaked,
    "unacked-leaked": _unacked_leaked,
    "key-not-released": _key_not_released,
    **BUGS_OF_DIRECTORIES,
    **BUGS_OF_COMPACTION,
    **BUGS_OF_LIMBO,
    **BUGS_OF_OFFLOAD,
    **BUGS_OF_LIFE,
}
"""Bugs by name; the docstring describes each."""


@contextmanager
def plant(name: str) -> Iterator[None]:
    """Plant the bug `name` of BUGS in the servers of this process, while entered."""
    with patched(BUGS[name]()):
        yield
