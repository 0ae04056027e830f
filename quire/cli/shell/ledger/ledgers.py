"""listledgers, ledgermetadata, deleteledger: metadata of ledgers."""

from __future__ import annotations

from pathlib import Path

from autorecovery.removal.ledger_scan import Show, has_entries_on, read_each
from quire.cli.shell.arguments import Arguments, CommandOption, OptionKind
from quire.cli.shell.command import Command
from quire.cli.shell.context import Shell
from quire.cli.shell.errors import FAILED, BothDumpAndRestoreError, ShellError
from quire.cli.shell.ledger.ledger_text import metadata_text, metadata_value
from quire.metadata import ledger_codec
from quire.metadata.errors import MalformedMetadataError, NodeExistsError, UnsupportedLayoutError
from quire.metadata.ledgers import LedgerManager, LedgerMetadata
from quire.metadata.store import ANY_VERSION, MetadataStore

LEDGER = CommandOption(name="ledgerid", short="l", kind=OptionKind.LEDGER, required=True, help="Id of the ledger.")


async def list_ledgers(shell: Shell, arguments: Arguments) -> int:
    bookie_id = arguments.text("bookieid")
    if not arguments.has("meta") and bookie_id is None:
        async with shell.store() as store:
            async for ledger_id in (await shell.ledgers(store)).ledger_ids():
                _tell_id(shell, ledger_id)
        return 0
    unreadable = 0
    async with shell.store() as store:
        manager = await shell.ledgers(store)

        def show(ledger_id: int, found: LedgerMetadata | str | None) -> None:
            nonlocal unreadable
            if isinstance(found, str):
                unreadable += 1
                shell.output.note(f"ledger {shell.ledger_ids.write(ledger_id)}: {found}")
            elif found is not None and (bookie_id is None or has_entries_on(found, bookie_id)):
                _tell_id(shell, ledger_id, found if arguments.has("meta") else None)

        await each_ledger(shell, manager, show)
    if unreadable:
        shell.output.note(f"{unreadable} ledgers have unreadable metadata")
    return FAILED if unreadable else 0


async def each_ledger(shell: Shell, manager: LedgerManager, show: Show) -> None:
    """Call `show` with each ledger's id and its metadata, in order of the ids, with progress on standard error."""
    with shell.output.progress("ledgers examined") as done:
        await read_each(manager, show, done)


async def ledger_metadata(shell: Shell, arguments: Arguments) -> int:
    dump, restore = arguments.text("dumptofile"), arguments.text("restorefromfile")
    if dump is not None and restore is not None:
        raise BothDumpAndRestoreError("give only one of -dumptofile and -restorefromfile")
    ledger_id = arguments.number("ledgerid")
    async with shell.store() as store:
        manager = await shell.ledgers(store)
        if restore is not None:
            await _restore(shell, store, manager.path(ledger_id), ledger_id, restore, update=arguments.has("update"))
            return 0
        node = await store.get(manager.path(ledger_id))
    if node is None:
        raise no_such_ledger(shell, ledger_id)
    if dump is not None:
        await write_file(shell, dump, node.value)
        shell.output.tell(f"Wrote {dump}", ledgerId=ledger_id, file=dump, bytes=len(node.value))
        return 0
    _tell_id(shell, ledger_id, ledger_codec.decode(node.value))
    return 0


async def _restore(shell: Shell, store: MetadataStore, path: str, ledger_id: int, file: str, *, update: bool) -> None:
    value = await read_file(shell, file)
    try:
        ledger_codec.decode(value)
    except (MalformedMetadataError, UnsupportedLayoutError) as error:
        raise ShellError(f"{file}: {error}; nothing was changed") from error
    try:
        await store.create(path, value, make_parents=True)
    except NodeExistsError as error:
        if not update:
            text = f"ledger {shell.ledger_ids.write(ledger_id)} exists: -update overwrites its metadata"
            raise ShellError(text) from error
        await store.put(path, value, ANY_VERSION)
        shell.output.tell(f"Updated the metadata of ledger {ledger_id}", ledgerId=ledger_id, updated=True)
        return
    shell.output.tell(f"Restored the metadata of ledger {ledger_id}", ledgerId=ledger_id, updated=False)


async def delete_ledger(shell: Shell, arguments: Arguments) -> int:
    ledger_id = arguments.number("ledgerid")
    name = shell.ledger_ids.write(ledger_id)
    if not arguments.has("force") and not shell.ask(f"Delete ledger {name}?"):
        shell.output.tell("Not confirmed; nothing was deleted", ledgerId=ledger_id, deleted=False)
        return 0
    async with shell.store() as store:
        manager = await shell.ledgers(store)
        if await store.get(manager.path(ledger_id)) is None:
            shell.output.tell(f"There is no ledger {name}", ledgerId=ledger_id, deleted=False)
            return 0
        await manager.delete(ledger_id)
    shell.output.tell(f"Deleted ledger {name}", ledgerId=ledger_id, deleted=True)
    return 0


def no_such_ledger(shell: Shell, ledger_id: int) -> ShellError:
    return ShellError(f"there is no ledger {shell.ledger_ids.write(ledger_id)}")


async def read_file(shell: Shell, path: str) -> bytes:
    """Read a file. Raises ShellError."""
    try:
        return await shell.world.offload.run(Path(path).read_bytes, name="file")
    except OSError as error:
        raise ShellError(f"{path} cannot be read: {error.strerror}") from error


async def write_file(shell: Shell, path: str, data: bytes) -> None:
    """Write a file. Raises ShellError."""
    try:
        await shell.world.offload.run(lambda: Path(path).write_bytes(data), name="file")
    except OSError as error:
        raise ShellError(f"{path} cannot be written: {error.strerror}") from error


def _tell_id(shell: Shell, ledger_id: int, metadata: LedgerMetadata | None = None) -> None:
    text = f"ledgerID: {shell.ledger_ids.write(ledger_id)}"
    if metadata is None:
        shell.output.tell(text, ledgerId=ledger_id)
    else:
        shell.output.tell(f"{text}\n{metadata_text(metadata)}", ledgerId=ledger_id, metadata=metadata_value(metadata))


COMMANDS = (
    Command(
        name="listledgers",
        help="List all ledgers of the cluster.",
        run=list_ledgers,
        options=(
            CommandOption(name="meta", short="m", help="Print their metadata too."),
            CommandOption(
                name="bookieid", kind=OptionKind.TEXT, help="List only ledgers that have entries on this bookie."
            ),
        ),
    ),
    Command(
        name="ledgermetadata",
        help="Print the metadata of a ledger, write it to a file, or restore it from one.",
        run=ledger_metadata,
        options=(
            LEDGER,
            CommandOption(name="dumptofile", kind=OptionKind.TEXT, help="Write the stored metadata to this file."),
            CommandOption(name="restorefromfile", kind=OptionKind.TEXT, help="Store the metadata in this file."),
            CommandOption(name="update", help="With -restorefromfile: overwrite the metadata of an existing ledger."),
        ),
    ),
    Command(
        name="deleteledger",
        help="Delete a ledger. Bookies free its space later.",
        run=delete_ledger,
        options=(LEDGER, CommandOption(name="force", short="f", help="Do not ask.")),
    ),
)
