"""lastmark, readjournal: contents of a bookie's journals, and the position up to which they are no longer needed."""

from __future__ import annotations

from contextlib import suppress
from pathlib import PurePath

from bookie.journal.format import (
    HEADER_SIZE,
    NO_MARK,
    BadHeaderError,
    LogMark,
    decode_header,
    decode_last_mark,
    file_name,
)
from quire.cli.shell.arguments import Arguments, CommandOption, OptionKind
from quire.cli.shell.command import Command
from quire.cli.shell.context import Shell
from quire.cli.shell.errors import FAILED, ShellError, UsageError
from quire.cli.shell.local import files
from quire.cli.shell.local.journal_scan import JournalScan
from quire.cli.shell.local.records import RecordPrinter


async def last_mark(shell: Shell, arguments: Arguments) -> int:
    journals = shell.config.journals
    for index in range(len(journals)):
        name = "lastMark" if len(journals) == 1 else f"lastMark.{index}"
        mark = newest_mark(shell, name)
        text = f"LastLogMark : Journal Id - {mark.file_id}({file_name(mark.file_id)}), Pos - {mark.offset}"
        shell.output.tell(
            text, journal=index, journalId=mark.file_id, file=file_name(mark.file_id), position=mark.offset
        )
    return 0


def newest_mark(shell: Shell, name: str) -> LogMark:
    """Return the greatest mark of all ledger folders; missing or damaged ones do not count."""
    found = NO_MARK
    for folder in shell.config.ledgers:
        with suppress(FileNotFoundError):
            mark = decode_last_mark(shell.world.disk.read(f"{folder}/{name}"))
            found = found if mark is None else max(found, mark)
    return found


async def read_journal(shell: Shell, arguments: Arguments) -> int:
    folder = _journal(shell, arguments.text("dir"))
    journal_id = files.file_id(arguments.operands[0], ".txn")
    printer = RecordPrinter(ledger_ids=shell.ledger_ids, entries=shell.entries, with_data=arguments.has("msg"))
    return _read_journal(shell, folder, journal_id, printer)


def _journal(shell: Shell, given: str | None) -> str:
    """Return the folder of the given journal, including `current`. Raises UsageError."""
    journals = shell.config.journals
    if len(journals) == 1:
        return journals[0]
    if given is None:
        raise UsageError(f"there are {len(journals)} journals: give the folder of one with -dir")
    wanted = str(PurePath(given) / "current")
    for folder in journals:
        if str(PurePath(folder)) in (wanted, str(PurePath(given))):
            return folder
    raise UsageError(f"{given} is not one of the journals: {', '.join(journals)}")


def _read_journal(shell: Shell, folder: str, journal_id: int, printer: RecordPrinter) -> int:
    name = file_name(journal_id)
    with files.opened(shell, f"{folder}/{name}") as file:
        shell.output.line(f"Scan journal {journal_id} ({name})")
        try:
            header = decode_header(file.pread(HEADER_SIZE, 0), journal_id)
        except BadHeaderError as error:
            raise ShellError(f"{folder}/{name} is not a journal: {error}") from error
        if header is None:
            return 0
        scan = JournalScan(file.pread, file.size(), header)
        first = True
        for record in scan:
            if first:
                shell.output.line(f"Journal Version : {header.version}")
                first = False
            size = len(record.body)
            printer.print(shell.output, record.ledger_id, record.entry_id, record.offset, size, record.body)
    if scan.stopped:
        shell.output.note(f"{folder}/{name}: {scan.stopped}; the rest is not readable")
        return FAILED
    return 0


COMMANDS = (
    Command(
        name="lastmark",
        help="Print the position up to which the journals are no longer needed.",
        run=last_mark,
    ),
    Command(
        name="readjournal",
        help="Print the records of a journal file, given by its decimal id or by its name.",
        run=read_journal,
        options=(
            CommandOption(name="msg", short="m", help="Print the contents of the entries too."),
            CommandOption(name="dir", kind=OptionKind.TEXT, help="Folder of the journal, if the bookie has several."),
        ),
        operands=("journal id or file",),
    ),
)
