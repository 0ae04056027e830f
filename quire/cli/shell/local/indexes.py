"""ledger: locations of the entries of a ledger on a bookie."""

from __future__ import annotations

from typing import Any, Final

from bookie.db_ledger_storage.entry_log_format import location_text
from bookie.db_ledger_storage.ledger_index import LedgerRow
from bookie.directories.routes import Routes
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
    own, *others = _folders_of(shell, ledger_id)
    if with_state and shell.output.as_json:
        shell.output.value(ledgerId=ledger_id, **_state(own, ledger_id))
    if others:
        shown: set[int] = set()
        for folder in (own, *others):
            _locations(shell, folder, ledger_id, shown)
    else:
        _locations(shell, own, ledger_id, None)


def _folders_of(shell: Shell, ledger_id: int) -> list[str]:
    """Return the index folders that the bookie reads the ledger from, the one for new entries first.

    Of several folders, that of the ledger's id is only the one for a new ledger (bookie/directories/routes.py). Raises
    ShellError."""
    folders = shell.config.indexes
    if len(folders) == 1:
        return [folders[0]]
    routes = Routes(len(folders), 1)
    routes.settle([{ledger_id} if _knows(folder, ledger_id) else () for folder in folders])
    found = [folders[number] for number in (routes.directory(ledger_id), *routes.others(ledger_id))]
    shell.output.note(f"ledger {shell.ledger_ids.write(ledger_id)} is in {' and '.join(found)}")
    return found


def _knows(folder: str, ledger_id: int) -> bool:
    """Return whether the folder's indexes have the ledger. Without an index of ledgers, its locations count."""
    key = ledger_id.to_bytes(_ID, "big")
    try:
        with files.index(f"{folder}/ledgers") as rows:
            return rows.get(key) is not None or rows.get(key + bytes(_ID)) is not None
    except ShellError:
        with files.index(f"{folder}/locations") as rows:
            return next(iter(rows.scan(*_range(ledger_id))), None) is not None


def _range(ledger_id: int) -> tuple[bytes, bytes]:
    """Return the first key of the ledger's locations, and the one behind the last."""
    return ledger_id.to_bytes(_ID, "big") + bytes(_ID), (ledger_id + 1).to_bytes(_ID, "big") + bytes(_ID)


def _locations(shell: Shell, folder: str, ledger_id: int, shown: set[int] | None) -> None:
    """Print the locations in one folder, but for the entries in `shown`, which gets those that were printed."""
    several = {"index": folder} if len(shell.config.indexes) > 1 else {}
    with files.index(f"{folder}/locations") as rows:
        for key, value in rows.scan(*_range(ledger_id)):
            if len(key) != 2 * _ID or len(value) != _ID:
                raise ShellError(f"the index {folder}/locations has an invalid row: {key.hex()}")
            entry_id, location = int.from_bytes(key[_ID:], "big"), int.from_bytes(value, "big")
            if shown is not None:
                if entry_id in shown:
                    continue
                shown.add(entry_id)
            text = f"entry {entry_id}\t:\t{location_text(location)}"
            shell.output.tell(text, entryId=entry_id, logId=location >> 32, position=location & 0xFFFFFFFF, **several)


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
