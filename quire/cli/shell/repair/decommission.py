"""decommissionbookie: remove a stopped bookie from the cluster, once all its data are on other bookies, and delete its
cookie.

Source: BookKeeper's DecommissionCommand; autorecovery/removal/decommissioning.py has its conditions.
"""

from __future__ import annotations

from autorecovery.errors import NoAuditorError, RemovalRefusedError
from autorecovery.removal.decommissioning import Decommission
from quire.cli.shell.arguments import Arguments, CommandOption, OptionKind
from quire.cli.shell.command import Command
from quire.cli.shell.context import Shell
from quire.cli.shell.errors import ShellError
from quire.cli.shell.ledger.probes import local_bookie_id
from quire.cli.shell.metadata.cookies import forget_and_tell
from quire.cli.shell.repair.marks import DRY_RUN, marks_of
from quire.metadata.bookies import check_bookie_id


async def decommission_bookie(shell: Shell, arguments: Arguments) -> int:
    bookie_id = arguments.text("bookieid") or local_bookie_id(shell)
    check_bookie_id(bookie_id)
    async with shell.store() as store:
        removal = Decommission(
            store,
            await shell.ledgers(store),
            marks_of(shell, store),
            bookie_id,
            root=shell.root,
            write_id=shell.ledger_ids.write,
        )
        try:
            with shell.output.progress("ledgers examined") as examined:
                left = await removal.check(examined)
            if arguments.has("dry-run"):
                text = (
                    f"Bookie {bookie_id} may be decommissioned: {len(left)} ledgers would be copied, then its cookie "
                    "deleted"
                )
                shell.output.tell(text, bookieId=bookie_id, ledgers=len(left), decommissioned=False)
                return 0
            with shell.output.progress("ledgers copied", len(left)) as copied:
                await removal.wait(left, copied)
        except (NoAuditorError, RemovalRefusedError) as error:
            raise ShellError(str(error)) from error
        await forget_and_tell(shell, store, bookie_id)
    text = f"Bookie {bookie_id} is decommissioned: its ledgers are on others, its cookie is deleted"
    shell.output.tell(text, bookieId=bookie_id, ledgers=len(left), decommissioned=True)
    return 0


COMMANDS = (
    Command(
        name="decommissionbookie",
        help="Wait until all data of a stopped bookie are on others, then delete its cookie.",
        run=decommission_bookie,
        options=(
            CommandOption(
                name="bookieid",
                kind=OptionKind.TEXT,
                help="Id of the bookie; default: the bookie of this configuration.",
            ),
            DRY_RUN,
        ),
    ),
)
