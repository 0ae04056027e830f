"""replace-disk: a bookie gets empty folders, and keeps its name.

A bookie that was emptied denies entries that were acknowledged. That is of no harm to a closed ledger, of which every
reader then asks the next copy; but a recovery could close an open one too early. So it comes
back under its name only when no ledger that is open has it as a member, and with a new cookie. There are two ways:

    away     its data are copied to others first, by auto recovery, as in decommission-bookie; it returns empty. Needs a
             bookie more than the ledgers' ensembles have.
    refill   it returns empty, and auto recovery copies its data back to it, or to others. While that lasts
             there is one copy less. For clusters without a spare bookie.

    wait until no ledger lacks copies; refill: let auto recovery rest
    stop it, wait until it is gone
    away: wait until auto recovery has copied its ledgers
    refill: close the open ledgers whose last entries are on it, mark its ledgers
    delete its cookie, empty its folders (--wipe, or you), start it
    refill: let auto recovery work, wait until it has done them all
    read every copy of those ledgers
"""

from __future__ import annotations

from collections.abc import Mapping

import trio

from autorecovery.fragments import must_be_closed
from autorecovery.marks.underreplication import UnderreplicatedLedgers
from quire.cli.operations.context import OperationContext, checked
from quire.cli.operations.decommission_bookie import copied_elsewhere, enough
from quire.cli.operations.verify_replicas import tell, verify_replicas
from quire.cli.shell.errors import ShellError
from quire.cli.shell.metadata.cookies import forget_and_tell
from quire.cli.shell.repair.marks import auditor_at_work, marks_of
from quire.ledger.client import LedgerClient
from quire.ledger.errors import NoSuchLedgerError
from quire.metadata.ledgers import LedgerMetadata
from quire.world.tasks import for_each

LEDGERS_AT_ONCE = 8


async def replace_disk(
    operation: OperationContext, named: str, *, stop: str | None, wipe: str | None, start: str | None, refill: bool
) -> int:
    """Replace the disk of a bookie. Raises ShellError, LedgerError, MetadataError."""
    (bookie_id,) = checked([named])
    output = operation.output
    known, running = await operation.known(), await operation.running()
    if bookie_id not in known:
        raise ShellError(f"bookie {bookie_id} has no cookie in this cluster: only start it")
    away = sorted(set(known) - running - {bookie_id})
    if away:
        raise ShellError(f"other bookies are not running: {', '.join(away)}. This one may have the last copy")
    marks = marks_of(operation.shell, operation.store)
    await auditor_at_work(operation.shell, operation.store, marks)
    concerned = await operation.ledgers_on(bookie_id)
    if not refill:
        enough(concerned, running - {bookie_id}, f"{bookie_id} (or use --refill)")
    if operation.dry_run:
        for what, template in (("stop", stop), ("empty the folders of", wipe), ("start", start)):
            await operation.do(what, template, bookie_id)
        how = "would get again what they had on it" if refill else "would be copied to others"
        output.tell(f"{len(concerned)} ledgers {how}", bookieId=bookie_id, ledgers=len(concerned), dryRun=True)
        return 0
    if bookie_id in running:
        await operation.until_replicated()
    if refill:
        try:
            # Otherwise auto recovery would begin to copy data that return in a moment.
            await marks.disable()
            concerned = await _stopped(operation, bookie_id, stop)
            await _mark(operation, marks, bookie_id, concerned)
            await forget_and_tell(operation.shell, operation.store, bookie_id)
            await _start_empty(operation, bookie_id, wipe, start)
        finally:
            with trio.move_on_after(operation.timeout_s, shield=True):
                await marks.enable()
        await operation.until_replicated("ledgers to be filled")
    else:
        concerned = await _stopped(operation, bookie_id, stop)
        code = await copied_elsewhere(operation, bookie_id, concerned, verify=False)
        if code:
            return code
        await _start_empty(operation, bookie_id, wipe, start)
    return tell(operation, await verify_replicas(operation, ledger_ids=list(concerned))) if concerned else 0


async def _stopped(operation: OperationContext, bookie_id: str, stop: str | None) -> dict[int, LedgerMetadata]:
    """Have it stopped; return the ledgers of which it should have entries."""
    if bookie_id in await operation.running():
        await operation.stop(bookie_id, stop)
    return await operation.ledgers_on(bookie_id)


async def _start_empty(operation: OperationContext, bookie_id: str, wipe: str | None, start: str | None) -> None:
    await operation.do("empty the folders of", wipe, bookie_id)
    await operation.start(bookie_id, start)


async def _mark(
    operation: OperationContext, marks: UnderreplicatedLedgers, bookie_id: str, concerned: Mapping[int, LedgerMetadata]
) -> None:
    """Mark its ledgers as lacking its copies. None of them is open with it as a member any more."""
    async with operation.shell.client(operation.store) as client:
        await _close_open_ones(operation, client, bookie_id, concerned)
    await marks.prepare()
    with operation.output.progress("ledgers marked", len(concerned)) as told:
        for number, ledger_id in enumerate(concerned):
            await marks.mark(ledger_id, [bookie_id])
            told(number + 1)


async def _close_open_ones(
    operation: OperationContext, client: LedgerClient, bookie_id: str, concerned: Mapping[int, LedgerMetadata]
) -> None:
    """Close ledgers, as at a recovery, that could be closed wrongly with an emptied member. Their writers continue in
    new ledgers."""
    there = await operation.running()
    config = operation.shell.config

    async def one(ledger_id: int) -> None:
        try:
            metadata = await client.read_metadata(ledger_id)
            if not must_be_closed(metadata, -1, there):
                return
            password = metadata.password_or(config.password.encode())
            reader = await client.open(ledger_id, password=password, digest_type=config.digest, recover=True)
            reader.close()
            operation.output.note(f"ledger {ledger_id} was open, with {bookie_id} among its last bookies: closed")
        except NoSuchLedgerError:
            return

    await for_each(list(concerned), one, at_once=LEDGERS_AT_ONCE, name="closing")
