"""rebuild-db-ledger-locations-index, rebuild-db-ledgers-index, check-db-ledgers-index: DbLedgerStorage's indexes."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from functools import partial

from bookie.db_ledger_storage.ledger_index import LedgerRow
from bookie.errors import BookieError, StorageDamagedError
from bookie.rebuild.ledgers import rebuild_ledgers
from bookie.rebuild.locations import rebuild_locations
from bookie.rebuild.trees import stamp
from quire.cli.shell.arguments import Arguments, CommandOption
from quire.cli.shell.command import Command
from quire.cli.shell.context import Shell
from quire.cli.shell.errors import FAILED, ShellError
from quire.cli.shell.local import files
from quire.cli.shell.offline.stopped import ledger_folders, stopped

_FIRST, _PAST = bytes(8), b"\x80"


async def rebuild_locations_index(shell: Shell, arguments: Arguments) -> int:
    output = shell.output
    output.line("=== Rebuilding DBStorage locations index ===")
    pairs = ledger_folders(shell)
    at = stamp(shell.world.clock.wall_ms())
    with stopped(shell):
        for ledgers, index in pairs:
            with output.progress("entry logs read") as done:
                try:
                    found = rebuild_locations(
                        shell.world.disk,
                        shell.world.key_value,
                        ledgers,
                        index,
                        at,
                        partial(_read_log, done),
                        skip_damaged=arguments.has("skipdamaged"),
                    )
                except FileNotFoundError as error:
                    raise ShellError(f"{index}/ledgers is missing: rebuild-db-ledgers-index makes it") from error
                except BookieError as error:
                    raise ShellError(f"{error}. Nothing was changed in {index}") from error
            for torn in found.torn:
                output.note(f"{torn}: torn or damaged from there on")
            if found.backup:
                output.note(f"the old index is in {found.backup}")
            output.tell(
                f"{index}: {found.logs} entry logs, {found.entries} entries of {found.ledgers} ledgers; "
                f"{found.left_out} entries of deleted ledgers left out",
                index=index,
                entryLogs=found.logs,
                entries=found.entries,
                ledgers=found.ledgers,
                leftOut=found.left_out,
                backup=found.backup or None,
            )
    output.line("-- Done rebuilding DBStorage locations index --")
    return 0


async def rebuild_ledgers_index(shell: Shell, arguments: Arguments) -> int:
    output = shell.output
    output.line("=== Rebuilding DBStorage ledgers index ===")
    pairs = ledger_folders(shell)
    at = stamp(shell.world.clock.wall_ms())

    def told(ledger_id: int, where: str) -> None:
        if arguments.has("verbose"):
            text = f"Found ledger {shell.ledger_ids.write(ledger_id)} in {where}"
            output.tell(text, ledgerId=ledger_id, foundIn=where)

    with stopped(shell), output.progress("entry logs read") as done:
        results = rebuild_ledgers(
            shell.world.disk,
            shell.world.key_value,
            shell.config.journals,
            pairs,
            at,
            found=told,
            progress=partial(_read_log, done),
        )
    for (_, index), found in zip(pairs, results, strict=True):
        for note in found.notes:
            output.note(note)
        if found.backup:
            output.note(f"the old index is in {found.backup}")
        output.tell(
            f"{index}: {found.ledgers} ledgers, all fenced, {found.with_key} with their master key",
            index=index,
            ledgers=found.ledgers,
            withMasterKey=found.with_key,
            backup=found.backup or None,
        )
    output.line("-- Done rebuilding DBStorage ledgers index --")
    return 0


def _read_log(done: Callable[[int], None], log: str, count: int, total: int) -> None:
    done(count)


async def check_ledgers_index(shell: Shell, arguments: Arguments) -> int:
    output = shell.output
    output.line("=== Checking DBStorage ledgers index by running a read scan ===")
    damaged = 0
    for _, index in ledger_folders(shell):
        count = 0
        with files.index(f"{index}/ledgers") as rows, output.progress("ledgers scanned") as done:
            for key, value in rows.scan(_FIRST, _PAST):
                count += 1
                ledger_id = int.from_bytes(key[:8], "big")
                try:
                    if len(key) not in (8, 16):
                        raise StorageDamagedError(f"its key has {len(key)} bytes")
                    row = LedgerRow.decode(value)
                except StorageDamagedError as error:
                    damaged += 1
                    output.note(f"{index}/ledgers: ledger {shell.ledger_ids.write(ledger_id)}: {error}")
                    continue
                if arguments.has("verbose"):
                    _show(shell, count, ledger_id, row)
                done(count)
        output.tell(f"Scanned {count} ledgers", index=index, ledgers=count)
    if damaged:
        output.line("-- Aborted checking DBStorage ledgers index --")
        output.note(f"{damaged} rows are damaged: rebuild-db-ledgers-index makes the index anew")
        return FAILED
    output.line("-- Done checking DBStorage ledgers index --")
    return 0


def _show(shell: Shell, number: int, ledger_id: int, row: LedgerRow) -> None:
    key = b64encode(row.master_key).decode("ascii")
    lac = None if row.explicit_lac is None else int.from_bytes(row.explicit_lac[8:16], "big")
    text = (
        f"Scanned: {number}, ledger: {shell.ledger_ids.write(ledger_id)}, exists: true, isFenced: "
        f"{str(row.fenced).lower()}, masterKey: {key}, explicitLAC: {'-' if lac is None else lac}"
    )
    shell.output.tell(
        text, ledgerId=ledger_id, fenced=row.fenced, masterKey=row.master_key.hex(), explicitLac=lac, limbo=row.limbo
    )


_VERBOSE = CommandOption(name="verbose", short="v", help="Print each ledger.")

COMMANDS = (
    Command(
        name="rebuild-db-ledger-locations-index",
        help="Rebuild the index of entry locations from the entry logs. The old one is kept under another name. The "
        "bookie must be stopped.",
        run=rebuild_locations_index,
        options=(
            CommandOption(
                name="skipdamaged",
                help="Read an entry log that is damaged up to the damage. The entries behind it have no location then.",
            ),
        ),
    ),
    Command(
        name="rebuild-db-ledgers-index",
        help="Rebuild the index of ledgers from journals and entry logs. All ledgers are fenced. The old one is kept "
        "under another name. The bookie must be stopped.",
        run=rebuild_ledgers_index,
        options=(_VERBOSE,),
    ),
    Command(
        name="check-db-ledgers-index",
        help="Check the index of ledgers by reading all of it. The bookie may run.",
        run=check_ledgers_index,
        options=(_VERBOSE,),
    ),
)
