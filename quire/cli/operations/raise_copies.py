"""raise-copies: give closed ledgers more copies, each on further bookies.

The entries are copied first; then one write of the metadata names the new members with the new quorums. A reader that
knows the old metadata continues to read from the old members. A cut run is repeated: what was copied is written again.
A node `underreplication/quireraised/L<id>` is there from before that write until the copies have been read: a run that
ends in between has changed the metadata, and the next run reads the copies of those ledgers, too.
Open ledgers keep their quorums, because their writer has them: it is told how many there are. A ledger whose entries
are striped (its ensemble is larger than its write quorum) is left as it is.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from autorecovery.copying.replicator import Replicator
from autorecovery.fragments import BadFragment, LedgerFragment, LostReason
from autorecovery.ledger_checker import LedgerChecker
from quire.cli.operations.context import OperationContext
from quire.cli.operations.verify_replicas import tell, verify_replicas
from quire.cli.shell.errors import ShellError
from quire.cli.shell.ledger.ledgers import each_ledger
from quire.ledger.client import LedgerClient
from quire.ledger.errors import LedgerError, NoSuchLedgerError
from quire.metadata import paths
from quire.metadata.errors import NodeExistsError, NoNodeError
from quire.metadata.ledgers import LedgerMetadata, LedgerState
from quire.world.tasks import for_each

LEDGERS_AT_ONCE: Final = 8
UNREAD: Final = "underreplication/quireraised"
"""Folder with a node for each ledger whose new copies were not read yet."""


async def raise_copies(operation: OperationContext, copies: int, ack_quorum: int) -> int:
    """Raise the copies of all closed ledgers that have fewer; return the exit code. Raises ShellError,
    MetadataError."""
    shell, output = operation.shell, operation.output
    if copies < 2:
        raise ShellError("--copies: at least 2")
    if not 1 <= ack_quorum <= copies:
        raise ShellError(f"--ack-quorum: 1 to {copies}")
    running = await operation.running()
    if len(running) < copies:
        raise ShellError(f"{copies} copies need {copies} bookies, and {len(running)} are running: start more")
    wanted: dict[int, LedgerMetadata] = {}
    left_open = striped = 0

    def look(ledger_id: int, metadata: LedgerMetadata | str | None) -> None:
        nonlocal left_open, striped
        if isinstance(metadata, str):
            raise ShellError(f"ledger {ledger_id}: {metadata}")
        if metadata is None or metadata.write_quorum >= copies:
            return
        if metadata.state is not LedgerState.CLOSED:
            left_open += 1
        elif metadata.ensemble_size != metadata.write_quorum:
            striped += 1
        else:
            wanted[ledger_id] = metadata

    await each_ledger(shell, await shell.ledgers(operation.store), look)
    if operation.dry_run:
        output.tell(
            f"{len(wanted)} ledgers would get {copies} copies", ledgers=len(wanted), open=left_open, dryRun=True
        )
        return 0
    marks = _Marks(operation)
    before = await marks.ledger_ids()
    failed: list[int] = []
    raised: list[int] = []
    async with shell.client(operation.store) as client:
        password, digest_type = shell.config.password.encode(), shell.config.digest
        checker = LedgerChecker(client, rng=shell.world.rng, password=password, digest_type=digest_type)
        replicator = Replicator(client, checker)

        async def one(ledger_id: int) -> None:
            try:
                await _raise_one(client, replicator, ledger_id, wanted[ledger_id], copies, ack_quorum, marks)
            except NoSuchLedgerError:
                return  # deleted in the meantime
            except LedgerError as error:
                failed.append(ledger_id)
                output.note(f"ledger {ledger_id}: {error}; run raise-copies again")
                return
            raised.append(ledger_id)
            told(len(raised))

        with output.progress("ledgers copied", len(wanted)) as told:
            await for_each(wanted, one, at_once=LEDGERS_AT_ONCE, name="copies")
    if left_open:
        output.note(
            f"{left_open} open ledgers have fewer than {copies} copies: unload their topics (quire admin namespaces "
            "unload), and run raise-copies again"
        )
    if striped:
        output.note(f"{striped} striped ledgers were left as they are")
    code = 0
    if before:
        output.note(f"{len(before)} ledgers of a run that was cut are verified, too")
    if unread := sorted({*raised, *before}):
        code = tell(operation, await verify_replicas(operation, ledger_ids=unread))
        if not code:
            await marks.remove(unread)
    rest = f"; {len(failed)} have not: run raise-copies again" if failed else ""
    output.tell(
        f"{len(raised)} ledgers have {copies} copies now{rest}",
        raised=len(raised),
        failed=len(failed),
        open=left_open,
        striped=striped,
    )
    return code or int(bool(failed or left_open or striped))


async def _raise_one(
    client: LedgerClient,
    replicator: Replicator,
    ledger_id: int,
    metadata: LedgerMetadata,
    copies: int,
    ack_quorum: int,
    marks: _Marks,
) -> None:
    """Copy one ledger. Raises LedgerError, MetadataError."""
    ensembles: dict[int, tuple[str, ...]] = {}
    firsts = [each.first_entry_id for each in metadata.fragments]
    for fragment, following in zip(metadata.fragments, [*firsts[1:], metadata.last_entry_id + 1], strict=True):
        members = fragment.bookies
        while len(members) < copies:
            members = (*members, newcomer(client, metadata, members))
        ensembles[fragment.first_entry_id] = members
        whole = LedgerFragment(
            ledger_id=ledger_id,
            first=fragment.first_entry_id,
            last=following - 1,
            bookies=members,
            write_quorum=copies,
            closed=True,
        )
        if whole.empty:
            continue
        entry_ids = range(whole.first, whole.last + 1)
        new = range(len(fragment.bookies), copies)
        bad = BadFragment(
            fragment=whole,
            faults=dict.fromkeys(new, LostReason.INCOMPLETE),
            lacking=dict.fromkeys(new, entry_ids),
        )
        await replicator.fill(metadata, bad)
    await marks.add(ledger_id)
    await client.add_members(ledger_id, metadata, ensembles, ack_quorum=ack_quorum)


class _Marks:
    """Nodes of ledgers whose new copies were not read yet. Raises MetadataError."""

    def __init__(self, operation: OperationContext) -> None:
        self._store = operation.store
        self._folder = paths.join(operation.shell.root, UNREAD)

    async def ledger_ids(self) -> list[int]:
        try:
            names = await self._store.children(self._folder)
        except NoNodeError:
            return []
        return [int(name[1:]) for name in names if name[:1] == "L" and name[1:].isdecimal()]

    async def add(self, ledger_id: int) -> None:
        try:
            await self._store.create(self._path(ledger_id), make_parents=True)
        except NodeExistsError:
            pass  # of a run that was cut

    async def remove(self, ledger_ids: Iterable[int]) -> None:
        for ledger_id in ledger_ids:
            try:
                await self._store.delete(self._path(ledger_id))
            except NoNodeError:
                continue  # (of another run beside this one)

    def _path(self, ledger_id: int) -> str:
        return f"{self._folder}/L{ledger_id}"


def newcomer(client: LedgerClient, metadata: LedgerMetadata, members: tuple[str, ...]) -> str:
    """Choose a bookie that is not among the members. Raises NotEnoughBookiesError."""
    chosen = client.placement.replace_bookie(
        len(members),
        len(members),
        min(metadata.ack_quorum, len(members)),
        members,
        {0: members[0]},
        exclude=set(members),
        custom_metadata=metadata.custom_metadata,
    )
    return chosen[0]
