"""localconsistencycheck: whether every row of the location index leads to its entry."""

from __future__ import annotations

from contextlib import closing
from typing import Final

from bookie.doctor.entries import EntryCheck
from quire.cli.shell.arguments import Arguments
from quire.cli.shell.command import Command
from quire.cli.shell.context import Shell
from quire.cli.shell.local import files
from quire.cli.shell.offline.stopped import ledger_folders, stopped

INCONSISTENT: Final = 1
_ID: Final = 8
_ROWS_PER_REPORT: Final = 1000


async def local_consistency_check(shell: Shell, arguments: Arguments) -> int:
    output = shell.output
    output.line("=== Performing local consistency check ===")
    errors: list[tuple[int, int, str]] = []
    checked = 0
    with stopped(shell), output.progress("entries checked") as done:
        for ledgers, index in ledger_folders(shell):
            check = EntryCheck(shell.world.disk, ledgers)
            with closing(check), files.index(f"{index}/locations") as rows:
                for key, value in rows.scan(bytes(2 * _ID), b"\x80"):
                    ledger_id, entry_id = int.from_bytes(key[:_ID], "big"), int.from_bytes(key[_ID:], "big")
                    if len(key) != 2 * _ID or len(value) != _ID:
                        errors.append((ledger_id, entry_id, f"its row has {len(key)} and {len(value)} bytes"))
                    else:
                        check.check(ledger_id, entry_id, int.from_bytes(value, "big"))
                    checked += 1
                    if checked % _ROWS_PER_REPORT == 0:
                        done(checked)
                for log_id, damages in check.damages():
                    errors += [(each.ledger_id, each.entry_id, f"{log_id:x}.log: {each.what}") for each in damages]
    if not errors:
        output.tell("=== Check passed ===", passed=True, entries=checked)
        return 0
    output.line("=== Check returned errors: ===")
    for ledger_id, entry_id, what in sorted(errors):
        text = f"Ledger {shell.ledger_ids.write(ledger_id)}, entry {entry_id}: {what}"
        output.tell(text, ledgerId=ledger_id, entryId=entry_id, error=what)
    output.value(passed=False, entries=checked, errors=len(errors))
    return INCONSISTENT


COMMANDS = (
    Command(
        name="localconsistencycheck",
        help="Check that every row of the location index leads to its entry, and that the entry matches its digest. "
        "Exit code 1 if one does not. The bookie must be stopped.",
        run=local_consistency_check,
    ),
)
