"""ledger: locations of the entries of a ledger on a bookie."""

from __future__ import annotations

from typing import Any, Final

from bookie.db_ledger_storage.entry_log_format import location_text
from bookie.db_ledger_storage.ledger_index import LedgerRow
from bookie.errors import StorageDamagedError
from quire.cli.shell.arguments import Arguments, CommandOption
from quire.cli.shell.command import Command
from quire.cli.shell.context import Shell
from quire.cli.shell.errors import ShellError, UsageError
from quire.cli.shell.local import files

_ID: Final = 8


async def ledger(shell: Shell, arguments: Arguments) -> int:
    try:
        ledger_id = shell.ledger_ids.read(arguments.operands[0])
    except ValueError:
        raise UsageError(f"not a ledger id: {arguments.operands[0]}") from None
    _ledger(shell, ledger_id, with_state=arguments.has("meta"))
    return 0


def _ledger(shell: Shell, ledger_id: int, *, with_state: bool) -> None:
    folders = shell.config.indexes
    # A bookie with several ledger folders spreads its ledgers over them by their ids.
    folder = folders[ledger_id % len(folders)]
    if with_state and shell.output.as_json:
        shell.output.value(ledgerId=ledger_id, **_state(folder, ledger_id))
    first = ledger_id.to_bytes(_ID, "big")
    with files.index(f"{folder}/locations") as rows:
        for key, value in rows.scan(first + bytes(_ID), (ledger_id + 1).to_bytes(_ID, "big") + bytes(_ID)):
            if len(key) != 2 * _ID or len(value) != _ID:
                raise ShellError(f"the index {folder}/locations has an invalid row: {key.hex()}")
            entry_id, location = int.from_bytes(key[_ID:], "big"), int.from_bytes(value, "big")
            text = f"entry {entry_id}\t:\t{location_text(location)}"
            shell.output.tell(text, entryId=entry_id, logId=location >> 32, position=location & 0xFFFFFFFF)


def _state(folder: str, ledger_id: int) -> dict[str, Any]:
    """Return the bookie's other data about the ledger, for JSON. Raises ShellError."""
    key = ledger_id.to_bytes(_ID, "big")
    with files.index(f"{folder}/ledgers") as rows:
        value = rows.get(key) or rows.get(key + bytes(_ID))
    if value is None:
        return {"known": False}
    try:
        state = LedgerRow.decode(value)
    except StorageDamagedError as error:
        raise ShellError(f"{folder}/ledgers: {error}") from error
    return {
        "known": True,
        "masterKey": state.master_key.hex(),
        "fenced": state.fenced,
        "explicitLac": None if state.explicit_lac is None else int.from_bytes(state.explicit_lac[8:16], "big"),
        "limbo": state.limbo,
    }


COMMANDS = (
    Command(
        name="ledger",
        help="Print the locations of a ledger's entries on this bookie. Entries only in its memory and journal are "
        "not included.",
        run=ledger,
        options=(
            CommandOption(
                name="meta",
                short="m",
                help="With -json: print the bookie's other data about the ledger first, on one line.",
            ),
        ),
        operands=("ledger id",),
    ),
)
