"""cookie_create, cookie_delete, cookie_update, cookie_get, cookie_generate: the cluster's copies of the bookies'
cookies.

A file that is not a cookie is not stored: its bookie would no longer start. (The original stores any file.)
"""

from __future__ import annotations

from autorecovery.removal.decommissioning import forget_cookie
from quire.cli.shell.arguments import Arguments, CommandOption, OptionKind
from quire.cli.shell.command import Command
from quire.cli.shell.context import Shell
from quire.cli.shell.errors import ShellError
from quire.cli.shell.ledger.ledgers import read_file, write_file
from quire.metadata.bookies import Cookie, check_bookie_id, decode_cookie, encode_cookie
from quire.metadata.errors import MetadataError, NodeExistsError, NoNodeError
from quire.metadata.ledgers import read_instance_id
from quire.metadata.store import ANY_VERSION, MetadataStore


async def cookie_create(shell: Shell, arguments: Arguments) -> int:
    bookie_id, data = await _given(shell, arguments)
    async with shell.store() as store:
        await read_instance_id(store, shell.root)  # without a cluster there is no node to create it in
        try:
            await store.create(shell.cookie_path(bookie_id), data, make_parents=True)
        except NodeExistsError as error:
            raise ShellError(f"bookie {bookie_id} has a cookie already: see cookie_update") from error
    shell.output.tell(f"Made the cookie of bookie {bookie_id}", bookieId=bookie_id)
    return 0


async def cookie_update(shell: Shell, arguments: Arguments) -> int:
    bookie_id, data = await _given(shell, arguments)
    async with shell.store() as store:
        try:
            await store.put(shell.cookie_path(bookie_id), data, ANY_VERSION)
        except NoNodeError as error:
            raise _no_cookie(bookie_id) from error
    shell.output.tell(f"Updated the cookie of bookie {bookie_id}", bookieId=bookie_id)
    return 0


async def cookie_delete(shell: Shell, arguments: Arguments) -> int:
    bookie_id = _bookie_id(arguments)
    async with shell.store() as store:
        try:
            await store.delete(shell.cookie_path(bookie_id))
        except NoNodeError as error:
            raise _no_cookie(bookie_id) from error
    shell.output.tell(f"Deleted the cookie of bookie {bookie_id}", bookieId=bookie_id)
    return 0


async def forget_and_tell(shell: Shell, store: MetadataStore, bookie_id: str) -> None:
    """Delete the cookie of a removed bookie, and print whether there was one."""
    there = await forget_cookie(store, bookie_id, root=shell.root)
    shell.output.note(f"deleted the cookie of {bookie_id}" if there else f"there is no cookie of {bookie_id}")


async def cookie_get(shell: Shell, arguments: Arguments) -> int:
    bookie_id = _bookie_id(arguments)
    async with shell.store() as store:
        node = await store.get(shell.cookie_path(bookie_id))
    if node is None:
        raise _no_cookie(bookie_id)
    shell.output.line(f"Cookie for bookie '{bookie_id}' is:\n---\n{node.value.decode('utf-8', 'replace')}\n---")
    cookie = decode_cookie(node.value)
    shell.output.value(
        layoutVersion=cookie.layout_version,
        bookieHost=cookie.bookie_id,
        journalDirs=cookie.journal_directories,
        ledgerDirs=cookie.ledger_directories,
        indexDirs=cookie.index_directories,
        instanceId=cookie.instance_id or None,
    )
    return 0


async def cookie_generate(shell: Shell, arguments: Arguments) -> int:
    bookie_id = _bookie_id(arguments)
    instance_id = arguments.text("instance-id")
    if instance_id is None:
        async with shell.store() as store:
            instance_id = await read_instance_id(store, shell.root)
    indexes = arguments.text("index-dirs")
    cookie = Cookie(
        bookie_id=bookie_id,
        journal_directories=_folders(arguments.required("journal-dirs")),
        ledger_directories=_folders(arguments.required("ledger-dirs")),
        index_directories=_folders(indexes) if indexes else None,
        instance_id=instance_id,
    )
    file = arguments.required("output-file")
    await write_file(shell, file, encode_cookie(cookie))
    shell.output.tell(f"Wrote the cookie of bookie {bookie_id} to {file}", bookieId=bookie_id, file=file)
    return 0


async def _given(shell: Shell, arguments: Arguments) -> tuple[str, bytes]:
    """Return the bookie's id and its new cookie. Raises ShellError."""
    bookie_id = _bookie_id(arguments)
    file = arguments.required("cookie-file")
    data = await read_file(shell, file)
    try:
        cookie = decode_cookie(data)
    except MetadataError as error:
        raise ShellError(f"{file}: {error}; nothing was changed") from error
    if cookie.bookie_id != bookie_id:
        shell.output.note(f"{file} is the cookie of bookie {cookie.bookie_id}: bookie {bookie_id} will refuse to start")
    return bookie_id, data


def _bookie_id(arguments: Arguments) -> str:
    """Return the bookie's id. Raises InvalidPathError if it is invalid."""
    return check_bookie_id(arguments.operands[0])


def _folders(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))


def _no_cookie(bookie_id: str) -> ShellError:
    return ShellError(f"bookie {bookie_id} has no cookie in the cluster")


_FILE = CommandOption(
    name="cookie-file", short="cf", kind=OptionKind.TEXT, required=True, help="File that contains the cookie."
)
_BOOKIE = ("bookie-id",)

COMMANDS = (
    Command(
        name="cookie_create",
        help="Store the cookie of a bookie that has none.",
        run=cookie_create,
        options=(_FILE,),
        operands=_BOOKIE,
    ),
    Command(name="cookie_delete", help="Delete the cookie of a bookie.", run=cookie_delete, operands=_BOOKIE),
    Command(
        name="cookie_update",
        help="Replace the cookie of a bookie.",
        run=cookie_update,
        options=(_FILE,),
        operands=_BOOKIE,
    ),
    Command(name="cookie_get", help="Print the cookie of a bookie.", run=cookie_get, operands=_BOOKIE),
    Command(
        name="cookie_generate",
        help="Write a cookie for a bookie to a file.",
        run=cookie_generate,
        options=(
            CommandOption(
                name="journal-dirs",
                short="j",
                kind=OptionKind.TEXT,
                required=True,
                help="Journal folders of the bookie, comma-separated.",
            ),
            CommandOption(
                name="ledger-dirs",
                short="l",
                kind=OptionKind.TEXT,
                required=True,
                help="Ledger folders of the bookie, comma-separated.",
            ),
            CommandOption(name="output-file", short="o", kind=OptionKind.TEXT, required=True, help="File to write."),
            CommandOption(
                name="index-dirs",
                short="ix",
                kind=OptionKind.TEXT,
                help="Index folders of the bookie, comma-separated.",
            ),
            CommandOption(
                name="instance-id",
                short="i",
                kind=OptionKind.TEXT,
                help="Instance id of the cluster; default: the one of the configured cluster.",
            ),
        ),
        operands=_BOOKIE,
    ),
)
