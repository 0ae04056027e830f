"""recover-bookie: copy the ledgers of permanently lost bookies to others, from this process, and verify the copies.

they must not be running
auto recovery is disabled meanwhile, so that it does not move the same copies
`quire shell recover`: closed ledgers are copied, open ones that end on a lost bookie are closed first
no ledger names them any more, and every copy of what was recovered is read
--delete-cookie: forget them
"""

from __future__ import annotations

from collections.abc import Sequence

import trio

from quire.cli.operations.context import OperationContext, checked
from quire.cli.operations.verify_replicas import tell, verify_replicas
from quire.cli.shell.errors import ShellError
from quire.cli.shell.metadata.cookies import forget_and_tell
from quire.cli.shell.repair.marks import marks_of


async def recover_bookie(
    operation: OperationContext, named: Sequence[str], *, rate: int = 0, delete_cookie: bool = False
) -> int:
    """Recover bookies. `rate`: maximum bytes per second; 0: no limit. Raises ShellError, LedgerError, MetadataError."""
    bookie_ids = checked(named)
    running = sorted(set(bookie_ids) & await operation.running())
    if running:
        raise ShellError(f"running: {', '.join(running)}. Only a stopped bookie can be recovered; stop it first")
    concerned = await operation.ledgers_on(*bookie_ids)
    operation.output.note(f"{len(concerned)} ledgers have copies on {', '.join(bookie_ids)}")
    if operation.dry_run:
        return await operation.run("recover", ",".join(bookie_ids), "-dr")
    marks = marks_of(operation.shell, operation.store)
    switched_off = await marks.is_enabled() and await marks.disable()
    try:
        code = await operation.run("recover", ",".join(bookie_ids), "-f", "-rate", str(rate))
    finally:
        if switched_off:
            with trio.move_on_after(operation.timeout_s, shield=True):
                await marks.enable()
    if code:
        return code
    left = await operation.ledgers_on(*bookie_ids)
    if left:
        raise ShellError(f"{len(left)} ledgers still name them, for example {min(left)}: run it again")
    if concerned and (code := tell(operation, await verify_replicas(operation, ledger_ids=list(concerned)))):
        return code
    if delete_cookie:
        for bookie_id in bookie_ids:
            await forget_and_tell(operation.shell, operation.store, bookie_id)
    return 0
