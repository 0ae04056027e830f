"""replace-disk: a bookie gets empty folders, and keeps its name.

A bookie that was emptied denies entries that were acknowledged. That is of no harm to a closed ledger, of which every reader
then asks the next copy; but whoever closes an open one could be led to believe that it ends earlier. So it comes back under its
name only when no ledger that is open has it as a member, and with a new cookie. There are two ways:

    away     what it had is copied to others first, by auto recovery, as in decommission-bookie; it comes back with nothing.
             Needs a bookie more than the ledgers' ensembles have.
    refill   it comes back empty, and auto recovery gives it again what it had, or gives that to others. While that lasts
             there is one copy less. For clusters without a spare bookie.

    stop it, wait until it is gone, see that the others have what it had
    refill: close the open ledgers whose last entries are on it
    away: wait until auto recovery has copied its ledgers
    delete its cookie, empty its folders (--wipe, or you), start it
    refill: mark its ledgers, wait until auto recovery has done them all
    read every copy of those ledgers
"""

from __future__ import annotations

from collections.abc import Mapping

import trio

from autorecovery.at_once import for_each
from autorecovery.fragments import must_be_closed
from quire.cli.operations.context import Operation, checked
from quire.cli.operations.decommission_bookie import copied_elsewhere, enough
from quire.cli.operations.verify_replicas import tell, verify_replicas
from quire.cli.shell.errors import ShellError
from quire.cli.shell.marks import marks_of, working_auditor
from quire.ledger.client import LedgerClient
from quire.ledger.errors import NoSuchLedgerError
from quire.metadata import bookies
from quire.metadata.errors import NoNodeError
from quire.metadata.ledgers import LedgerMetadata

LEDGERS_AT_ONCE = 8


async def replace_disk(
    operation: Operation, named: str, *, stop: str | None, wipe: str | None, start: str | None, refill: bool
) -> int:
    """ShellError, LedgerError, MetadataError."""
    (bookie_id,) = checked([named])
    output = operation.output
    known, running = await operation.known(), await operation.running()
    if bookie_id not in known:
        raise ShellError(f"bookie {bookie_id} has no cookie in this cluster: start it, that is all")
    away = sorted(set(known) - running - {bookie_id})
    if away:
        raise ShellError(f"other bookies are not running: {', '.join(away)}. What this one has may be the last copy")
    await working_auditor(operation.shell, operation.store, marks_of(operation.shell, operation.store))
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
            # Else auto recovery would begin to copy what comes back in a moment.
            await _rest(operation)
        await operation.do("stop", stop, bookie_id)
        await operation.until_gone(bookie_id)
    concerned = await operation.ledgers_on(bookie_id)
    if not refill:
        code = await copied_elsewhere(operation, bookie_id, concerned, verify=False)
        if code:
            return code
        await operation.do("empty the folders of", wipe, bookie_id)
        await operation.do("start", start, bookie_id)
        await operation.until_serving(bookie_id)
    else:
        try:
            await _refill(operation, bookie_id, concerned, wipe, start)
        finally:
            with trio.move_on_after(operation.timeout_s, shield=True):
                await marks_of(operation.shell, operation.store).enable()
        await operation.until_replicated("ledgers to be filled")
    return tell(operation, await verify_replicas(operation, ledger_ids=list(concerned))) if concerned else 0


async def _rest(operation: Operation) -> None:
    await marks_of(operation.shell, operation.store).disable()


async def _refill(
    operation: Operation, bookie_id: str, concerned: Mapping[int, LedgerMetadata], wipe: str | None, start: str | None
) -> None:
    """Bring it back empty, with its ledgers marked."""
    await _rest(operation)
    async with operation.shell.client(operation.store) as client:
        await _close_open_ones(operation, client, bookie_id, concerned)
    marks = marks_of(operation.shell, operation.store)
    await marks.prepare()
    with operation.output.progress("ledgers marked", len(concerned)) as told:
        for number, ledger_id in enumerate(concerned):
            await marks.mark(ledger_id, [bookie_id])
            told(number + 1)
    try:
        await bookies.delete_cookie(operation.store, bookie_id, root=operation.shell.root)
    except NoNodeError:
        operation.output.note(f"the cookie of {bookie_id} is deleted already")
    await operation.do("empty the folders of", wipe, bookie_id)
    await operation.do("start", start, bookie_id)
    await operation.until_serving(bookie_id)


async def _close_open_ones(
    operation: Operation, client: LedgerClient, bookie_id: str, concerned: Mapping[int, LedgerMetadata]
) -> None:
    """Close, as at a recovery, what could be closed wrongly with an emptied member. Its writers go on in new ledgers."""
    there = await operation.running()
    password, digest = operation.shell.config.password.encode(), operation.shell.config.digest

    async def one(ledger_id: int) -> None:
        try:
            metadata = await client.read_metadata(ledger_id)
            if not must_be_closed(metadata, -1, there):
                return
            if metadata.password_known:
                reader = await client.open(
                    ledger_id, password=metadata.password, digest_type=metadata.digest_type, recover=True
                )
            else:
                reader = await client.open(ledger_id, password=password, digest_type=digest, recover=True)
            reader.close()
            operation.output.note(f"ledger {ledger_id} was open, with {bookie_id} among its last bookies: closed")
        except NoSuchLedgerError:
            return

    await for_each(list(concerned), one, at_once=LEDGERS_AT_ONCE, name="closing")
