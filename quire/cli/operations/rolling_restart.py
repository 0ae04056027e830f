"""rolling-restart: restart bookies one by one, each only when all others serve and no ledger lacks copies.

Meanwhile the auditor's delay for a lost bookie (`lostBookieRecoveryDelay`) is raised, because otherwise every restart
would copy everything that the bookie will have a moment later. Afterwards the former value is restored.
"""

from __future__ import annotations

from collections.abc import Sequence

import trio

from quire.cli.operations.context import OperationContext, checked
from quire.cli.shell.errors import ShellError
from quire.cli.shell.repair.marks import marks_of


async def rolling_restart(
    operation: OperationContext, named: Sequence[str], *, stop: str | None, start: str | None
) -> int:
    """Restart these bookies, or all that have a cookie. Raises ShellError, MetadataError."""
    output = operation.output
    known = await operation.known()
    bookie_ids = checked(named) or known
    strangers = sorted(set(bookie_ids) - set(known))
    if strangers:
        raise ShellError(f"not bookies of this cluster: {', '.join(strangers)}")
    if len(bookie_ids) != 1 and (stop is None or start is None):
        raise ShellError("give --stop and --start: commands for each bookie, with {id}, {host}, {port}")
    await _all_there(operation, known)
    if operation.dry_run:
        for bookie_id in bookie_ids:
            output.tell(f"bookie {bookie_id} would be restarted", bookieId=bookie_id, dryRun=True)
            await operation.do("stop", stop, bookie_id)
            await operation.do("start", start, bookie_id)
        return 0
    marks = marks_of(operation.shell, operation.store)
    before = await marks.read_recovery_delay()
    if before is not None:  # otherwise there never was an auditor, and the first one is to use its configuration
        await marks.set_recovery_delay(max(int(operation.timeout_s) + 1, before.value))
    try:
        with output.progress("bookies restarted", len(bookie_ids)) as told:
            for number, bookie_id in enumerate(bookie_ids):
                await operation.until_replicated()
                await _all_there(operation, known)
                begun = trio.current_time()
                await operation.stop(bookie_id, stop)
                await operation.start(bookie_id, start)
                taken_s = trio.current_time() - begun
                output.tell(
                    f"bookie {bookie_id} was away for {taken_s:.1f} s", bookieId=bookie_id, seconds=round(taken_s, 3)
                )
                told(number + 1)
        await operation.until_replicated()
    finally:
        if before is not None:
            with trio.move_on_after(operation.timeout_s, shield=True):
                await marks.set_recovery_delay(before.value)
    return 0


async def _all_there(operation: OperationContext, known: Sequence[str]) -> None:
    """Raise ShellError if a bookie is away already, since a restart would make it two."""
    away = sorted(set(known) - await operation.running())
    if away:
        raise ShellError(f"not running already: {', '.join(away)}. Start them, or decommission them, first")
