"""convert-to-db-storage, convert-to-interleaved-storage, regenerate-interleaved-storage-index-file."""

from __future__ import annotations

import binascii
from base64 import b64decode

from bookie.errors import BookieError
from bookie.interleaved.from_db import NotConvertibleError, convert_from_db
from bookie.interleaved.regenerate import regenerate
from bookie.interleaved.to_db import convert_to_db
from quire.cli.shell.arguments import Arguments, CommandOption, OptionKind
from quire.cli.shell.command import Command
from quire.cli.shell.context import Shell
from quire.cli.shell.errors import FAILED, RefusedError, ShellError, UsageError
from quire.cli.shell.offline.stopped import ledger_folders, stopped
from quire.wire.bookkeeper.entry import master_key


async def to_db_storage(shell: Shell, arguments: Arguments) -> int:
    output = shell.output
    output.line("=== Converting to DbLedgerStorage ===")
    pairs = ledger_folders(shell)
    ledgers, indexes = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    with stopped(shell), output.progress("ledgers converted") as done:
        try:
            found = convert_to_db(shell.world.disk, shell.world.key_value, ledgers, indexes, done)
        except BookieError as error:
            raise ShellError(
                f"{error}. No index file was deleted: the bookie can start as before. To make a damaged one anew: "
                "regenerate-interleaved-storage-index-file"
            ) from error
    for path in found.unfinished:
        output.note(f"{path} was never finished: what the ledger has is in the journal")
    if found.copied:
        output.note(f"{found.copied} entries ({found.copied_bytes} bytes) were copied to the folders of their ledgers")
    if found.missing:
        output.note(f"{found.missing} entries are in no entry log: the journal may have them")
    output.note(f"{found.ledgers} ledgers, {found.entries} entries")
    output.tell(
        "---- Done Converting ----",
        ledgers=found.ledgers,
        entries=found.entries,
        copiedEntries=found.copied,
        missingEntries=found.missing,
        unfinished=found.unfinished,
    )
    return 0


async def to_interleaved_storage(shell: Shell, arguments: Arguments) -> int:
    output = shell.output
    output.line("=== Converting DbLedgerStorage ===")
    pairs = ledger_folders(shell)
    if len(pairs) > 1:
        raise RefusedError(
            f"the bookie has {len(pairs)} ledger folders, whose entry logs have the same names: the other storages "
            "would mistake them for each other. Give an empty bookie with that storage the bookie's ledgers instead "
            "(decommissionbookie)"
        )
    with stopped(shell), output.progress("ledgers converted") as done:
        try:
            found = convert_from_db(shell.world.disk, shell.world.key_value, pairs[0][1], done)
        except NotConvertibleError as error:
            raise RefusedError(str(error)) from error
        except BookieError as error:
            raise ShellError(f"{error}. The index was not changed: the bookie can start as before") from error
    output.tell(f"---- Done Converting {found.ledgers} ledgers ----", ledgers=found.ledgers, entries=found.entries)
    return 0


async def regenerate_index_file(shell: Shell, arguments: Arguments) -> int:
    output = shell.output
    ledger_ids = _ledger_ids(shell, arguments.required("ledgerIds"))
    key = master_key(_password(arguments))
    dry_run = arguments.has("dryRun")
    pairs = ledger_folders(shell)
    names = ", ".join(map(shell.ledger_ids.write, ledger_ids))
    output.line(f"=== Rebuilding index file for [{names}] ===")
    with stopped(shell), output.progress("entry logs read") as done:
        try:
            found = regenerate(
                shell.world.disk,
                [pair[0] for pair in pairs],
                [pair[1] for pair in pairs],
                ledger_ids,
                key,
                done,
                dry_run=dry_run,
            )
        except BookieError as error:
            raise ShellError(str(error)) from error
    for torn in found.torn:
        output.note(f"{torn}: torn or damaged from there on")
    for ledger_id in ledger_ids:
        entries = found.entries[ledger_id]
        name = shell.ledger_ids.write(ledger_id)
        text = f" {name} - No entries found"
        if entries:
            text = f" {name} - Found {len(entries)} entries, from {min(entries)} to {max(entries)}"
        output.tell(text, ledgerId=ledger_id, entries=len(entries), written=bool(entries) and not dry_run)
    output.line(f"-- Done rebuilding index file for [{names}] --")
    return 0 if all(found.entries.values()) else FAILED


def _ledger_ids(shell: Shell, text: str) -> list[int]:
    try:
        return list(dict.fromkeys(shell.ledger_ids.read(part) for part in text.split(",")))
    except ValueError:
        raise UsageError(f"-ledgerIds: not ledger ids: {text}") from None


def _password(arguments: Arguments) -> bytes:
    text, encoded = arguments.text("password"), arguments.text("b64password")
    if (text is None) == (encoded is None):
        raise UsageError("give one of -password and -b64password: the index file contains the ledger's key")
    if text is not None:
        return text.encode()
    assert encoded is not None
    try:
        return b64decode(encoded, validate=True)
    except binascii.Error:
        raise UsageError(f"-b64password is not base64: {encoded}") from None


COMMANDS = (
    Command(
        name="convert-to-db-storage",
        help="Convert the index files of Sorted- or InterleavedLedgerStorage to the index of DbLedgerStorage, with "
        "which quire bookie starts. The bookie must be stopped.",
        run=to_db_storage,
    ),
    Command(
        name="convert-to-interleaved-storage",
        help="Convert the index of DbLedgerStorage to index files, for a bookie of the original with Sorted- or "
        "InterleavedLedgerStorage. The bookie must be stopped.",
        run=to_interleaved_storage,
    ),
    Command(
        name="regenerate-interleaved-storage-index-file",
        help="Write index files of Sorted- or InterleavedLedgerStorage anew, from the entry logs. The ledgers are "
        "fenced. The bookie must be stopped.",
        run=regenerate_index_file,
        options=(
            CommandOption(
                name="ledgerIds", short="l", kind=OptionKind.TEXT, required=True, help="Ledgers, comma-separated."
            ),
            CommandOption(name="dryRun", help="Read the entry logs, and write nothing."),
            CommandOption(name="password", kind=OptionKind.TEXT, help="Password of the ledgers, as in their metadata."),
            CommandOption(name="b64password", kind=OptionKind.TEXT, help="The same in base64."),
        ),
    ),
)
