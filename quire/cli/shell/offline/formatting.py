"""bookieformat, initbookie: the folders of a bookie that begins anew.

bookieformat deletes entries that the bookie has acknowledged. Of a bookie with a cookie in the cluster other copies may
be needed: replace-disk checks that.
"""

from __future__ import annotations

from autorecovery.auditing.overview import running_bookies
from bookie.folders import LOCK_FILE
from bookie.rebuild.trees import empty_folder
from quire.cli.shell.arguments import Arguments, CommandOption
from quire.cli.shell.command import Command
from quire.cli.shell.context import Shell
from quire.cli.shell.errors import RefusedError
from quire.cli.shell.ledger.probes import local_bookie_id
from quire.cli.shell.offline.stopped import folders, stopped
from quire.metadata import bookies
from quire.metadata.errors import NoNodeError


async def bookie_format(shell: Shell, arguments: Arguments) -> int:
    disk = shell.world.disk
    delete_cookie = arguments.has("deleteCookie")
    # The cookie of the folders names the bookie, so it is read before they are emptied.
    bookie_id = local_bookie_id(shell) if delete_cookie else ""
    with stopped(shell):
        filled = [folder for folder in folders(shell) if _has_data(shell, folder)]
        if filled:
            if arguments.has("nonInteractive"):
                if not arguments.has("force"):
                    raise RefusedError(f"{', '.join(filled)} hold data: -nonInteractive formats them only with -force")
            elif not shell.ask(f"Delete all that is in {', '.join(filled)}?"):
                raise RefusedError("not confirmed; nothing was changed")
        # The journal goes last: a bookie that is started after a kill refuses folders that are empty in part.
        for folder in reversed(folders(shell)):
            if disk.exists(folder):
                empty_folder(disk, folder, keep=(LOCK_FILE,))
            else:
                disk.make_dirs(folder)
            shell.output.note(f"emptied {folder}")
        if delete_cookie:
            async with shell.store() as store:
                try:
                    await bookies.delete_cookie(store, bookie_id, root=shell.root)
                    shell.output.note(f"deleted the cookie of {bookie_id}")
                except NoNodeError:
                    shell.output.note(f"there is no cookie of {bookie_id}")
    shell.output.tell(
        "Bookie format completed successfully",
        folders=list(folders(shell)),
        bookieId=bookie_id or None,
        formatted=True,
    )
    return 0


async def init_bookie(shell: Shell, arguments: Arguments) -> int:
    """Check that a new bookie can start: the original writes nothing here either, its first start does."""
    kinds = (
        ("JournalDir", shell.config.journals),
        ("LedgerDir", shell.config.ledgers),
        ("IndexDir", shell.config.indexes),
    )
    for kind, paths in kinds:
        for path in paths:
            folder = path.removesuffix("/current")
            if _has_data(shell, folder):
                raise RefusedError(f"{kind} {folder} is not empty: format the bookie first (bookieformat)")
    bookie_id = local_bookie_id(shell)
    async with shell.store() as store:
        if bookie_id in await running_bookies(store, shell.root):
            raise RefusedError(f"bookie {bookie_id} is registered: stop it first")
        if await store.get(shell.cookie_path(bookie_id)) is not None:
            raise RefusedError(
                f"bookie {bookie_id} has a cookie in the cluster: its ledgers may need it. Use replace-disk; or "
                "bookieformat -deleteCookie, if all its ledgers have other copies"
            )
    shell.output.tell(f"Bookie {bookie_id} can start as a new one", bookieId=bookie_id, canStart=True)
    return 0


def _has_data(shell: Shell, folder: str) -> bool:
    disk = shell.world.disk
    return disk.exists(folder) and any(name != LOCK_FILE for name in disk.names(folder))


COMMANDS = (
    Command(
        name="bookieformat",
        help="Delete all data of this bookie: journals, entry logs and indexes. Refused while it runs.",
        run=bookie_format,
        options=(
            CommandOption(name="nonInteractive", short="n", help="Do not ask; deletes existing data only with -force."),
            CommandOption(name="force", short="f", help="With -nonInteractive: delete existing data."),
            CommandOption(name="deleteCookie", short="d", help="Delete the bookie's cookie in the cluster too."),
        ),
    ),
    Command(
        name="initbookie",
        help="Check that a new bookie can start: its folders are empty, and the cluster does not know it.",
        run=init_bookie,
    ),
)
