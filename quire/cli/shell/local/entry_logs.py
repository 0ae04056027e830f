"""readlog, readlogmetadata: contents of a bookie's entry logs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from bookie.db_ledger_storage.entry_log_format import (
    HEADER_LENGTH,
    SIZE_LENGTH,
    Header,
    Scan,
    ScannedEntry,
    decode_header,
    decode_ledgers_map,
    log_name,
)
from bookie.errors import StorageDamagedError
from quire.cli.shell.arguments import Arguments, CommandOption, OptionKind
from quire.cli.shell.command import Command
from quire.cli.shell.context import Shell
from quire.cli.shell.errors import FAILED, ShellError, UsageError
from quire.cli.shell.local import files
from quire.cli.shell.local.records import RecordPrinter
from quire.wire.bookkeeper.entry import METADATA_LENGTH
from quire.world.doors import File

NONE = -1


async def read_log(shell: Shell, arguments: Arguments) -> int:
    log_id = files.file_id(arguments.operands[0], ".log")
    start, end = arguments.number("startpos"), arguments.number("endpos")
    ledger_id = arguments.number("ledgerid") if arguments.has("ledgerid") else NONE
    entry_id = arguments.number("entryid")
    if start != NONE and end != NONE and end < start:
        raise UsageError(f"-endpos {end} is before -startpos {start}")
    what = f"entry log {log_id} ({log_name(log_id)})"
    wanted: Callable[[ScannedEntry], bool]
    if start != NONE:
        title, missing = f"Scan {what} for PositionRange: {start} - {end}", f"{what} has no entry in {start} - {end}"

        def wanted(entry: ScannedEntry) -> bool:
            return entry.offset + SIZE_LENGTH + entry.size > start and (end == NONE or entry.offset <= end)

    elif ledger_id != NONE:
        of_entry = "" if entry_id == NONE else f" for EntryId {entry_id}"
        ledger = shell.ledger_ids.write(ledger_id)
        title = f"Scan {what} for LedgerId {ledger} {of_entry}"
        missing = f"{what} has nothing of ledger {ledger}{of_entry}"

        def wanted(entry: ScannedEntry) -> bool:
            return entry.ledger_id == ledger_id and entry_id in (NONE, entry.entry_id)

    else:
        title, missing = f"Scan {what}", ""

        def wanted(entry: ScannedEntry) -> bool:
            return True

    paths = files.find(shell, shell.config.ledgers, log_name(log_id), arguments.operands[0])
    with_data = arguments.has("msg")
    return max([_print_log(shell, path, wanted, title, missing, with_data=with_data) for path in paths])


def _print_log(
    shell: Shell, path: str, wanted: Callable[[ScannedEntry], bool], title: str, missing: str, *, with_data: bool
) -> int:
    printer = RecordPrinter(ledger_ids=shell.ledger_ids, entries=shell.entries, with_data=with_data)
    found = False
    with files.opened(shell, path) as file:
        shell.output.line(title)
        _header(file, path)
        at, size = HEADER_LENGTH, -1
        while at >= 0 and size != file.size():  # a bookie that runs may have written more in the meantime
            size = file.size()
            scan = Scan(file.pread, size, start=at)
            for entry in scan:
                if not wanted(entry):
                    continue
                found = True
                # Only the header is printed without the data, because the size of the rest is known.
                body = file.pread(entry.size if with_data else METADATA_LENGTH, entry.offset + SIZE_LENGTH)
                printer.print(shell.output, entry.ledger_id, entry.entry_id, entry.offset, entry.size, body)
            at = scan.torn_at
    if missing and not found:
        shell.output.line(missing)
    if at >= 0:
        shell.output.note(
            f"{path}: torn or damaged at offset {at}, or being written by a running bookie; the rest is not readable"
        )
        return FAILED
    return 0


async def read_log_metadata(shell: Shell, arguments: Arguments) -> int:
    log_id = files.file_id(arguments.operands[0], ".log", base=16)
    for path in files.find(shell, shell.config.ledgers, log_name(log_id), arguments.operands[0]):
        _print_metadata(shell, log_id, path)
    return 0


def _print_metadata(shell: Shell, log_id: int, path: str) -> None:
    with files.opened(shell, path) as file:
        shell.output.line(f"Print entryLogMetadata of entrylog {log_id} ({log_name(log_id)})")
        sizes, has_map = ledger_sizes(file, path)
    total = sum(sizes.values())
    if not has_map:
        shell.output.note(f"{path} has no ledgers map: it was read as a whole")
    # Only a bookie's garbage collection knows the part still in use; the original prints a total here too.
    text = f"entryLogId: {log_id}, remaining size: {total}, total size: {total}, usage: {1.0 if total else 0.0}"
    shell.output.tell(text, logId=log_id, totalSize=total, ledgersMap=has_map)
    for ledger_id, size in sizes.items():
        text = f"--------- Lid={shell.ledger_ids.write(ledger_id)}, TotalSizeOfEntriesOfLedger={size}  ---------"
        shell.output.tell(text, ledgerId=ledger_id, size=size)


def ledger_sizes(file: File, path: str) -> tuple[dict[int, int], bool]:
    """Return the bytes per ledger in an entry log, size fields included, and whether its ledgers map had them.

    Without that map the whole log is read. Raises ShellError if it is not an entry log."""
    header = _header(file, path)
    size = file.size()
    if header.has_map and HEADER_LENGTH <= header.map_offset < size:
        with suppress(StorageDamagedError):
            return decode_ledgers_map(file.pread(size - header.map_offset, header.map_offset), header.ledgers), True
    sizes: dict[int, int] = {}
    for entry in Scan(file.pread, size):
        sizes[entry.ledger_id] = sizes.get(entry.ledger_id, 0) + SIZE_LENGTH + entry.size
    return sizes, False


def _header(file: File, path: str) -> Header:
    try:
        return decode_header(file.pread(HEADER_LENGTH, 0))
    except StorageDamagedError as error:
        raise ShellError(f"{path}: {error}") from error


def _position(name: str, short: str, help_text: str) -> CommandOption:
    return CommandOption(name=name, short=short, kind=OptionKind.NUMBER, default=NONE, minimum=NONE, help=help_text)


COMMANDS = (
    Command(
        name="readlog",
        help="Print the entries of an entry log, given by its decimal id or by its name.",
        run=read_log,
        options=(
            CommandOption(name="msg", short="m", help="Print the contents of the entries too."),
            CommandOption(
                name="ledgerid", short="l", kind=OptionKind.LEDGER, help="Print only entries of this ledger."
            ),
            _position("entryid", "e", "With -ledgerid: print only this entry; -1 for all."),
            _position("startpos", "sp", "Print only entries that extend beyond this offset; -1 for all."),
            _position(
                "endpos", "ep", "With -startpos: print only entries that begin at or before this offset; -1 for all."
            ),
        ),
        operands=("log id or file",),
    ),
    Command(
        name="readlogmetadata",
        help="Print the ledgers in an entry log, given by its hexadecimal id or by its name.",
        run=read_log_metadata,
        operands=("log id or file",),
    ),
)
