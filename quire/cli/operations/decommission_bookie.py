"""decommission-bookie: remove a bookie permanently from the cluster, while auto recovery copies its data.

every other bookie is there, no ledger lacks copies, and there are bookies enough without it
it is stopped: by --stop, or by you
`quire shell decommissionbookie`: waits until its ledgers are on others, deletes its cookie
every copy of those ledgers is read
"""

from __future__ import annotations

from quire.cli.operations.context import OperationContext, checked
from quire.cli.operations.verify_replicas import tell, verify_replicas
from quire.cli.shell.errors import ShellError
from quire.metadata.ledgers import LedgerMetadata


async def decommission_bookie(operation: OperationContext, named: str, *, stop: str | None, verify: bool = True) -> int:
    """Decommission a bookie. Raises ShellError, LedgerError, MetadataError."""
    (bookie_id,) = checked([named])
    output = operation.output
    running = await operation.running()
    if bookie_id not in {*running, *await operation.known()}:
        raise ShellError(f"unknown bookie {bookie_id}: it has no cookie and is not running")
    concerned = await operation.ledgers_on(bookie_id)
    enough(concerned, running - {bookie_id}, bookie_id)
    output.note(f"{len(concerned)} ledgers have copies on {bookie_id}; {len(running - {bookie_id})} other bookies run")
    if operation.dry_run:
        if bookie_id in running:
            await operation.do("stop", stop, bookie_id)
        output.tell(
            f"{len(concerned)} ledgers would be copied, and the cookie of {bookie_id} deleted",
            bookieId=bookie_id,
            ledgers=len(concerned),
            dryRun=True,
        )
        return 0
    if bookie_id in running:
        await operation.until_replicated()
        await operation.stop(bookie_id, stop)
    return await copied_elsewhere(operation, bookie_id, concerned, verify=verify)


async def copied_elsewhere(
    operation: OperationContext, bookie_id: str, concerned: dict[int, LedgerMetadata], *, verify: bool
) -> int:
    """Wait until auto recovery has copied the data of a stopped bookie to others; its cookie is deleted then."""
    code = await operation.run("decommissionbookie", "-bookieid", bookie_id)
    if code:
        return code
    if verify and concerned:
        return tell(operation, await verify_replicas(operation, ledger_ids=list(concerned)))
    return 0


def enough(concerned: dict[int, LedgerMetadata], others: set[str], bookie_id: str) -> None:
    """Raise ShellError if no other bookie could take the copies of some ledger: its ensemble has all remaining
    bookies."""
    for ledger_id, metadata in concerned.items():
        if metadata.ensemble_size > len(others):
            raise ShellError(
                f"ledger {ledger_id} is spread over {metadata.ensemble_size} bookies, and without {bookie_id} "
                "there are "
                f"{len(others)}: add a bookie first"
            )
