"""listfilesondisc, activeledgers: the files of a bookie, and the ledgers in one of them that still exist."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import trio

from bookie.db_ledger_storage.entry_log_format import log_id_of, log_name
from bookie.interleaved.index_files import find_index_files
from quire.cli.shell.arguments import Arguments, CommandOption, OptionKind
from quire.cli.shell.command import Command
from quire.cli.shell.context import Shell
from quire.cli.shell.errors import ShellError
from quire.cli.shell.local import files
from quire.cli.shell.local.entry_logs import ledger_sizes
from quire.world.tasks import for_each

READS_AT_ONCE: Final = 64
_JOURNAL: Final = ".txn"


async def list_files(shell: Shell, arguments: Arguments) -> int:
    every = not any(map(arguments.has, ("journal", "entrylog", "index")))
    if every or arguments.has("journal"):
        _list(shell, "Journal Files", "journal", _named(shell, shell.config.journals, _journal_id))
    if every or arguments.has("entrylog"):
        _list(shell, "EntryLog/Ledger Files", "entrylog", _named(shell, shell.config.ledgers, log_id_of))
    if every or arguments.has("index"):
        folders = list(dict.fromkeys(shell.config.indexes))
        found = sorted(find_index_files(shell.world.disk, folders))
        _list(shell, "Index Files", "index", [each.path for each in found])
    return 0


def _list(shell: Shell, title: str, kind: str, paths: Sequence[str]) -> None:
    shell.output.line(f"--------- Printing the list of {title} ---------")
    for path in map(files.full_path, paths):
        shell.output.tell(path, kind=kind, file=path)
    shell.output.line()


def _named(shell: Shell, folders: Sequence[str], id_of: Callable[[str], int]) -> list[str]:
    """Return the files of the folders whose names have an id, in order of the ids."""
    found: list[tuple[int, str]] = []
    for folder in folders:
        try:
            names = shell.world.disk.names(folder)
        except FileNotFoundError:
            raise ShellError(f"there is no folder {folder}") from None
        found += [(file_id, f"{folder}/{name}") for name in names if (file_id := id_of(name)) >= 0]
    return [path for _, path in sorted(found)]


def _journal_id(name: str) -> int:
    stem = name.removesuffix(_JOURNAL)
    return int(stem, 16) if stem != name and stem and not stem.strip("0123456789abcdef") else -1


async def active_ledgers(shell: Shell, arguments: Arguments) -> int:
    log_id = files.file_id(str(arguments.number("logId")), ".log")
    found_ledgers: set[int] = set()
    for path in files.find(shell, shell.config.ledgers, log_name(log_id)):
        with files.opened(shell, path) as file:
            found_ledgers.update(ledger_sizes(file, path)[0])
    ledgers = sorted(found_ledgers)
    if not ledgers:
        shell.output.line(f"Ledgers on log file {log_id} is empty")
    timeout_s = arguments.number("timeout") / 1000 if arguments.has("timeout") else float("inf")
    active: dict[int, bool] = {}
    with trio.move_on_after(timeout_s) as limit:
        async with shell.store() as store:
            manager = await shell.ledgers(store)

            async def look(ledger_id: int) -> None:
                active[ledger_id] = await store.get(manager.path(ledger_id)) is not None

            with shell.output.progress("ledgers looked up", len(ledgers)) as done:
                for start in range(0, len(ledgers), READS_AT_ONCE):
                    part = ledgers[start : start + READS_AT_ONCE]
                    await for_each(part, look, at_once=READS_AT_ONCE, name="active ledgers")
                    done(start + len(part))
    if limit.cancelled_caught:
        raise ShellError(f"the metadata did not answer within {arguments.number('timeout')} ms (-timeout)")
    found = [ledger_id for ledger_id in ledgers if active[ledger_id]]
    shell.output.line(
        f"Active ledgers on entry log {log_id} as follow:" if found else f"No active ledgers on log file {log_id}"
    )
    for ledger_id in found:
        shell.output.tell(f"{shell.ledger_ids.write(ledger_id)} ", ledgerId=ledger_id)
    return 0


COMMANDS = (
    Command(
        name="listfilesondisc",
        help="List the journal files, entry logs and index files of this bookie; without an option all of them.",
        run=list_files,
        options=(
            CommandOption(name="journal", short="txn", help="List the journal files."),
            CommandOption(name="entrylog", short="log", help="List the entry logs."),
            CommandOption(
                name="index", short="idx", help="List the index files, which only the original's older storages have."
            ),
        ),
    ),
    Command(
        name="activeledgers",
        help="List the ledgers of an entry log that were not deleted.",
        run=active_ledgers,
        options=(
            CommandOption(
                name="logId", short="l", kind=OptionKind.NUMBER, required=True, help="Decimal id of the entry log."
            ),
            CommandOption(
                name="timeout",
                short="t",
                kind=OptionKind.NUMBER,
                minimum=1,
                help="Milliseconds to wait for the metadata; without it there is no limit.",
            ),
        ),
    ),
)
