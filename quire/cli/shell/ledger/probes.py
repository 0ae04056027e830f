"""simpletest, bookiesanity: checks that the cluster, or this bookie, works."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import trio

from quire.cli.shell.arguments import Arguments, CommandOption, OptionKind
from quire.cli.shell.command import Command
from quire.cli.shell.context import Shell
from quire.cli.shell.errors import ShellError
from quire.ledger.client import LedgerClient
from quire.ledger.context import LedgerConfig
from quire.ledger.errors import LedgerError
from quire.ledger.writing.writer import LedgerWriter
from quire.metadata.bookies import decode_cookie
from quire.metadata.errors import MetadataError
from quire.wire.bookkeeper.entry import DigestType

BATCH: Final = 100
"""Entries appended per call."""
WINDOW: Final = 1000
"""Maximum unconfirmed entries."""
READ_BYTES: Final = 1 << 20
PAYLOAD: Final = bytes(65 + (7 * index) % 26 for index in range(100))
CLEAN_UP_S: Final = 10.0


async def simple_test(shell: Shell, arguments: Arguments) -> int:
    count = arguments.number("numEntries")
    payloads = [PAYLOAD] * count
    async with shell.store() as store, shell.client(store) as client:
        writer = await client.create(
            ensemble_size=arguments.number("ensemble"),
            write_quorum=arguments.number("writeQuorum"),
            ack_quorum=arguments.number("ackQuorum"),
            digest_type=DigestType.CRC32C,
            custom_metadata=[("Bookie", b"simpletest")],
        )
        try:
            shell.output.line(f"Ledger ID: {writer.ledger_id}")
            await _write(shell, writer, payloads)
            last = writer.last_pushed
            shell.output.line(f"{count} entries written to ledger {writer.ledger_id}. Last entry Id {last}")
            await _check(client, writer.ledger_id, payloads, unconfirmed=True)
            await writer.close()
            await _check(client, writer.ledger_id, payloads)
        finally:
            await _delete(shell, client, writer)
    shell.output.value(ledgerId=writer.ledger_id, entries=count, lastEntryId=last, passed=True)
    return 0


async def bookie_sanity(shell: Shell, arguments: Arguments) -> int:
    count, timeout_s = arguments.number("entries"), float(arguments.number("timeout"))
    bookie_id = local_bookie_id(shell)
    config = LedgerConfig(add_timeout_s=timeout_s, add_quorum_timeout_s=timeout_s, read_timeout_s=timeout_s)
    payloads = [b"entry-%d" % index for index in range(count)]
    async with shell.store() as store, shell.client(store, config, only=bookie_id) as client:
        writer = await client.create(digest_type=DigestType.HMAC)
        try:
            await _write(shell, writer, payloads)
            await writer.close()
            await _check(client, writer.ledger_id, payloads)
            shell.output.line(f"Read {count} entries from ledger {writer.ledger_id}")
        finally:
            await _delete(shell, client, writer)
    text = "Bookie sanity test succeeded"
    shell.output.tell(text, bookieId=bookie_id, ledgerId=writer.ledger_id, entries=count, passed=True)
    return 0


def local_bookie_id(shell: Shell) -> str:
    """Return the id of this configuration's bookie: as configured, else from the cookie in its folders.

    Raises ShellError."""
    config = shell.config
    if config.bookie_id:
        return config.bookie_id
    if config.advertised_address and config.port:
        return f"{config.advertised_address}:{config.port}"
    for folder in (*config.journals, *config.ledgers):
        with suppress(OSError, MetadataError):
            return decode_cookie(shell.world.disk.read(f"{folder}/VERSION")).bookie_id
    raise ShellError("the bookie is not identified: set bookieId or advertisedAddress, or run this beside its folders")


async def _write(shell: Shell, writer: LedgerWriter, payloads: Sequence[bytes]) -> None:
    """Append the entries, and wait until they are confirmed. Raises LedgerError, ShellError."""
    with shell.output.progress("entries written", len(payloads)) as done:
        for first in range(0, len(payloads), BATCH):
            writer.append(payloads[first : first + BATCH])
            if writer.last_pushed >= WINDOW:
                await writer.wait_confirmed(writer.last_pushed - WINDOW)
            done(writer.last_confirmed + 1)
        await writer.wait_confirmed(len(payloads) - 1)
    if writer.last_pushed != len(payloads) - 1:
        raise ShellError(f"the last entry is {writer.last_pushed}, not {len(payloads) - 1}")


async def _check(client: LedgerClient, ledger_id: int, payloads: Sequence[bytes], *, unconfirmed: bool = False) -> None:
    """Read the ledger and compare all entries; they must be confirmed unless that is waived.

    Raises LedgerError, ShellError."""
    reader = await client.open(ledger_id, recover=False)
    last = len(payloads) - 1
    if not unconfirmed and reader.last_entry_id != last:
        raise ShellError(f"the ledger ends with entry {reader.last_entry_id}, not {last}")
    entry_id = 0
    while entry_id <= last:
        read = reader.read_unconfirmed if unconfirmed else reader.read
        for payload in await read(entry_id, last, size_max=READ_BYTES):
            if payload != payloads[entry_id]:
                raise ShellError(f"entry {entry_id} of ledger {ledger_id} is not what was written")
            entry_id += 1
    reader.close()


async def _delete(shell: Shell, client: LedgerClient, writer: LedgerWriter) -> None:
    """Delete the ledger, whatever happened; print a note if that fails."""
    with trio.move_on_after(CLEAN_UP_S, shield=True):
        try:
            await client.delete(writer.ledger_id)
            return
        except (LedgerError, MetadataError) as error:
            shell.output.note(f"ledger {writer.ledger_id} is left over: {error}")
            return
    shell.output.note(f"ledger {writer.ledger_id} is left over: the metadata service did not answer")


def _number(name: str, short: str, default: int, help_text: str) -> CommandOption:
    return CommandOption(name=name, short=short, kind=OptionKind.NUMBER, default=default, minimum=1, help=help_text)


COMMANDS = (
    Command(
        name="simpletest",
        help="Write a ledger, read it back and delete it.",
        run=simple_test,
        options=(
            _number("ensemble", "e", 3, "Number of bookies of the ledger."),
            _number("writeQuorum", "w", 2, "Number of copies of each entry."),
            _number("ackQuorum", "a", 2, "Number of copies that must be on disk to confirm an entry."),
            _number("numEntries", "n", 1000, "Number of entries to write."),
        ),
    ),
    Command(
        name="bookiesanity",
        help="Write a ledger to the local bookie alone, read it back and delete it.",
        run=bookie_sanity,
        options=(
            _number("entries", "e", 10, "Number of entries to write."),
            _number("timeout", "t", 1, "Maximum seconds of a write or read."),
        ),
    ),
)
