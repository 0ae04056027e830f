"""updatecookie: the cookie of a stopped bookie, in its folders and in the cluster.

A new id is written to the folders first, then to the cluster, and the old cookie goes last: killed between two of
these, the same command finishes, because it finds out what is done already.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

from autorecovery.auditing.overview import running_bookies
from bookie.cookie import VERSION_FILE
from quire.cli.shell.arguments import Arguments, CommandOption, OptionKind
from quire.cli.shell.command import Command
from quire.cli.shell.context import Shell
from quire.cli.shell.errors import RefusedError, ShellError, UsageError
from quire.cli.shell.ledger.probes import local_bookie_id
from quire.cli.shell.local.files import full_path
from quire.cli.shell.metadata.addresses import addresses
from quire.cli.shell.offline.stopped import folders, stopped
from quire.metadata import bookies
from quire.metadata.bookies import Cookie, encode_cookie
from quire.metadata.errors import NoNodeError
from quire.metadata.store import MetadataStore, Versioned

_FORCE = "force"


async def update_cookie(shell: Shell, arguments: Arguments) -> int:
    given = [name for name in ("bookieId", "expandstorage", "list", "delete") if arguments.has(name)]
    if len(given) != 1:
        raise UsageError("give one of -bookieId, -expandstorage, -list, -delete")
    match given[0]:
        case "bookieId":
            return await _change_id(shell, arguments.required("bookieId"))
        case "expandstorage":
            return await _expand(shell)
        case "list":
            return await _list(shell)
        case _:
            return await _delete(shell, arguments.text("delete") or "")


# --- another id


async def _change_id(shell: Shell, kind: str) -> int:
    if kind not in ("hostname", "ip"):
        raise UsageError(f"-bookieId is hostname or ip, not {kind}")
    if shell.config.name.use_host_name != (kind == "hostname"):
        wanted = str(kind == "hostname").lower()
        raise ShellError(f"set useHostNameAsBookieID={wanted} first: the bookie starts with the id that it says")
    found = addresses(shell)
    new, old = (found.by_name, found.by_ip) if kind == "hostname" else (found.by_ip, found.by_name)
    if new == old:
        raise ShellError(f"name and address of this bookie are the same: {new}")
    with stopped(shell):
        async with shell.store() as store:
            running = await running_bookies(store, shell.root)
            for each in (old, new):
                if each in running:
                    raise RefusedError(f"bookie {each} is registered: stop it first; nothing was changed")
            before = await bookies.read_cookie(store, old, root=shell.root)
            if before is None:
                raise ShellError(f"bookie {old} has no cookie in the cluster: it may have the id {new} already")
            cookie = replace(before.value, bookie_id=new)
            for folder in _stamped(shell):
                _write(shell, folder, cookie)
            present = await bookies.read_cookie(store, new, root=shell.root)
            if present is None:
                await bookies.write_cookie(store, cookie, None, root=shell.root)
            elif not _same(present.value, cookie):
                raise ShellError(f"bookie {new} has a cookie in the cluster, which is that of other folders")
            await bookies.delete_cookie(store, old, before.version, root=shell.root)
    text = f"Bookie {old} is {new} now. Its ledgers name it by the old id: run updateledgers -bookieId {kind}"
    shell.output.tell(text, source=old, destination=new)
    return 0


def _same(one: Cookie, other: Cookie) -> bool:
    return encode_cookie(one) == encode_cookie(other)


def _stamped(shell: Shell) -> list[str]:
    """Return the folders `current`. Raises ShellError if one has no cookie: it may not be mounted."""
    found = [f"{folder}/current" for folder in folders(shell)]
    for folder in found:
        if not shell.world.disk.exists(f"{folder}/{VERSION_FILE}"):
            raise ShellError(f"there is no cookie {folder}/{VERSION_FILE}: is the disk mounted? Nothing was changed")
    return found


def _write(shell: Shell, folder: str, cookie: Cookie) -> None:
    shell.world.disk.write_atomic(f"{folder}/{VERSION_FILE}", encode_cookie(cookie))
    shell.output.note(f"updated {folder}/{VERSION_FILE}")


# --- more folders


async def _expand(shell: Shell) -> int:
    """Add new, empty ledger and index folders of the configuration to the cookie."""
    disk = shell.world.disk
    bookie_id = local_bookie_id(shell)
    with stopped(shell):
        async with shell.store() as store:
            stored = await bookies.read_cookie(store, bookie_id, root=shell.root)
            if stored is None:
                raise ShellError(f"bookie {bookie_id} has no cookie in the cluster: its first start makes one")
            wanted = _configured(shell, stored.value)
            if _same(stored.value, wanted):
                shell.output.tell("The cookie has all folders of the configuration already", added=[])
                return 0
            added = _added(stored, wanted)
            current = [f"{folder}/current" for folder in folders(shell)]
            old = [folder for folder in current if disk.exists(f"{folder}/{VERSION_FILE}")]
            for folder in current:
                if folder not in old and disk.exists(folder) and disk.names(folder):
                    raise RefusedError(f"{folder} is not empty and has no cookie; nothing was changed")
            if not old:
                raise RefusedError("none of the folders has a cookie: are the disks mounted? Nothing was changed")
            for folder in current:
                disk.make_dirs(folder)
                _write(shell, folder, wanted)
            await bookies.write_cookie(store, wanted, stored.version, root=shell.root)
    shell.output.tell(f"Added {', '.join(added)} to the cookie of bookie {bookie_id}", bookieId=bookie_id, added=added)
    return 0


def _configured(shell: Shell, stored: Cookie) -> Cookie:
    """Return the cookie that the configuration asks for."""
    config = shell.config.bookie
    written = (*config.journal_directories, *config.ledger_directories, *config.index_directories)
    root = "" if all(os.path.isabs(folder) for folder in written) else os.getcwd()

    def of(paths: Sequence[str]) -> tuple[str, ...]:
        full = (os.path.abspath(path.removesuffix("/current")) for path in paths)
        return tuple(path.removeprefix(f"{root}/") if root else path for path in full)

    indexes = of(shell.config.indexes)
    ledgers = of(shell.config.ledgers)
    return replace(
        stored,
        journal_directories=of(shell.config.journals),
        ledger_directories=ledgers,
        index_directories=None if indexes == ledgers else indexes,
    )


def _added(stored: Versioned[Cookie], wanted: Cookie) -> list[str]:
    """Return the new folders. Raises RefusedError if anything but their addition would change."""
    old = stored.value
    if old.journal_directories != wanted.journal_directories:
        raise RefusedError(
            f"journalDirectories are {', '.join(old.journal_directories)} in the cookie: a bookie keeps its journals"
        )
    added: list[str] = []
    for before, after in (
        (old.ledger_directories, wanted.ledger_directories),
        (old.index_directories or (), wanted.index_directories or ()),
    ):
        if after[: len(before)] != before:
            raise RefusedError(
                f"the folders {', '.join(before)} of the cookie must come first in the configuration, in this order: "
                "they hold the ledgers of the bookie"
            )
        added += [folder for folder in after[len(before) :] if folder not in added]
    return added


# --- list and delete


async def _list(shell: Shell) -> int:
    bookie_id = local_bookie_id(shell)
    local = [path for folder in folders(shell) if shell.world.disk.exists(path := f"{folder}/current/{VERSION_FILE}")]
    shell.output.line(
        f"Listing local Cookie Files of Bookie: {bookie_id}" if local else f"No local cookies for Bookie: {bookie_id}"
    )
    for path in map(full_path, local):
        shell.output.tell(path, file=path)
    async with shell.store() as store:
        stored = await store.get(shell.cookie_path(bookie_id))
    node = shell.cookie_path(bookie_id)
    if stored is None:
        shell.output.tell(f"No cookie for {bookie_id} in metadata store", node=None)
    else:
        shell.output.tell(node, node=node)
    return 0


async def _delete(shell: Shell, force: str) -> int:
    if force not in ("", _FORCE):
        raise UsageError(f"-delete takes {_FORCE} or nothing, not {force}")
    bookie_id = local_bookie_id(shell)
    with stopped(shell):
        local = [
            path for folder in folders(shell) if shell.world.disk.exists(path := f"{folder}/current/{VERSION_FILE}")
        ]
        async with shell.store() as store:
            if bookie_id in await running_bookies(store, shell.root):
                raise RefusedError(f"bookie {bookie_id} is registered: stop it first; nothing was changed")
            if not local:
                shell.output.line(f"No local cookies for Bookie: {bookie_id}")
            elif force or shell.ask("Delete the cookies in the folders of this bookie?"):
                for path in local:
                    shell.world.disk.unlink(path)
                    shell.world.disk.sync_dir(path.rpartition("/")[0])
                shell.output.tell(f"Deleted Local Cookies of Bookie: {bookie_id}", bookieId=bookie_id, files=local)
            else:
                shell.output.line(f"Skipping deleting local Cookies of Bookie: {bookie_id}")
            await _delete_stored(shell, store, bookie_id, force)
    return 0


async def _delete_stored(shell: Shell, store: MetadataStore, bookie_id: str, force: str) -> None:
    if await store.get(shell.cookie_path(bookie_id)) is None:
        shell.output.line(f"No cookie for {bookie_id} in metadata store")
    elif force or shell.ask("Delete the cookie of this bookie in the metadata store?"):
        try:
            await bookies.delete_cookie(store, bookie_id, root=shell.root)
        except NoNodeError:
            return
        text = f"Deleted Cookie from metadata store for Bookie: {bookie_id}"
        shell.output.tell(text, bookieId=bookie_id, node=shell.cookie_path(bookie_id))
    else:
        shell.output.line(f"Skipping deleting cookie from metadata store for Bookie: {bookie_id}")


COMMANDS = (
    Command(
        name="updatecookie",
        help="Change, list or delete the cookie of this bookie, in its folders and in the cluster. The bookie must be "
        "stopped.",
        run=update_cookie,
        options=(
            CommandOption(
                name="bookieId",
                short="b",
                kind=OptionKind.TEXT,
                help="Give the bookie the id of its host name (hostname) or of its address (ip); "
                "useHostNameAsBookieID must say the same.",
            ),
            CommandOption(
                name="expandstorage", short="e", help="Add new, empty folders of the configuration to the cookie."
            ),
            CommandOption(name="list", short="l", help="List the bookie's cookies."),
            CommandOption(
                name="delete",
                short="d",
                kind=OptionKind.MAYBE_TEXT,
                help="Delete the bookie's cookies; asks, unless `force` follows.",
            ),
        ),
    ),
)
