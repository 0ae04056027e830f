"""readledger: entries of a ledger, from any bookie, or from one."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from typing import Final

from quire.cli.shell.arguments import Arguments, CommandOption, OptionKind
from quire.cli.shell.command import Command
from quire.cli.shell.context import Shell
from quire.cli.shell.errors import FAILED, ShellError, UsageError
from quire.cli.shell.ledger.ledgers import LEDGER, no_such_ledger
from quire.ledger.bookies.answers import Answer
from quire.ledger.bookies.connection import BookieConnection
from quire.ledger.client import LedgerClient
from quire.ledger.errors import BookieError, NoSuchEntryError, NoSuchLedgerError, rc_name
from quire.ledger.reading.reader import LedgerReader
from quire.ledger.striping import Striping
from quire.metadata.ledgers import LedgerMetadata, LedgerState
from quire.wire.bookkeeper import v2
from quire.wire.bookkeeper.entry import Digest, read_header
from quire.wire.bookkeeper.errors import BookkeeperWireError
from quire.wire.bookkeeper.v2 import Rc

READ_BYTES: Final = 1 << 20
READS_AT_ONCE: Final = 128
TIMEOUT_S: Final = 10.0
LAST: Final = -1


async def read_ledger(shell: Shell, arguments: Arguments) -> int:
    ledger_id = arguments.number("ledgerid")
    first, last = arguments.number("firstentryid"), arguments.number("lastentryid")
    if last != LAST and last < first:
        raise UsageError(f"-lastentryid {last} is before -firstentryid {first}")
    printer = _EntryPrinter(shell, ledger_id, with_data=arguments.has("msg"))
    bookie_id = arguments.text("bookie")
    async with shell.store() as store:
        if bookie_id is None or arguments.has("force-recovery"):
            async with shell.client(store) as client:
                reader = await _open(shell, client, ledger_id, recover=arguments.has("force-recovery"))
                if bookie_id is None:
                    return await _print_entries(printer, reader, first, last, capped=arguments.has("force-recovery"))
                last = reader.last_entry_id if last == LAST else min(last, reader.last_entry_id)
        stored = await (await shell.ledgers(store)).read(ledger_id)
        if stored is None:
            raise no_such_ledger(shell, ledger_id)
        async with shell.bookies(store, timeout_s=TIMEOUT_S) as bookies:
            connection = bookies.connection(bookie_id)
            copies = _Copies(shell, connection, ledger_id, stored.value)
            return await copies.print(printer, first, last)


class _EntryPrinter:
    def __init__(self, shell: Shell, ledger_id: int, *, with_data: bool) -> None:
        self.output = shell.output
        self._shell = shell
        self._ledger_id = ledger_id
        self._with_data = with_data
        self.printed = 0

    def print(self, entry_id: int, payload: memoryview) -> None:
        self.printed += 1
        if self.output.as_json:
            data = {"data": b64encode(payload).decode("ascii")} if self._with_data else {}
            self.output.value(ledgerId=self._ledger_id, entryId=entry_id, size=len(payload), **data)
            return
        ledger = self._shell.ledger_ids.write(self._ledger_id)
        self.output.line(f"--------- Lid={ledger}, Eid={entry_id}, EntrySize={len(payload)} ---------")
        if self._with_data:
            self.output.line(self._shell.entries.lines(payload))


async def _open(shell: Shell, client: LedgerClient, ledger_id: int, *, recover: bool) -> LedgerReader:
    """Open the ledger. The password is the one in the metadata, as in every administrator's tool.

    Raises ShellError, LedgerError."""
    try:
        metadata = await client.read_metadata(ledger_id)
        password, digest = _secrets(shell, metadata)
        return await client.open(ledger_id, password=password, recover=recover, digest_type=digest.type)
    except NoSuchLedgerError as error:
        raise no_such_ledger(shell, ledger_id) from error


def _secrets(shell: Shell, metadata: LedgerMetadata) -> tuple[bytes, Digest]:
    if metadata.password_known:
        return metadata.password, Digest(metadata.digest_type, metadata.password)
    password = shell.config.password.encode()
    return password, Digest(shell.config.digest, password)


async def _print_entries(printer: _EntryPrinter, reader: LedgerReader, first: int, last: int, *, capped: bool) -> int:
    """Print entries `first` to `last` (LAST: to the end), as far as there are any.

    For an open ledger this includes unconfirmed entries, as far as bookies have them; unless it was just closed
    (`capped`)."""
    ends = reader.closed or capped
    if ends and (last == LAST or last > reader.last_entry_id):
        if last != LAST:
            printer.output.note(f"the ledger ends with entry {reader.last_entry_id}")
        last = reader.last_entry_id
    entry_id = first
    with printer.output.progress("entries read", max(0, last - first + 1) if ends else None) as done:
        while not ends or entry_id <= last:
            until = entry_id + READS_AT_ONCE - 1 if last == LAST else min(last, entry_id + READS_AT_ONCE - 1)
            if until < entry_id:
                break
            try:
                payloads = await reader.read_unconfirmed(entry_id, until, size_max=READ_BYTES)
            except NoSuchEntryError:
                if entry_id <= reader.last_entry_id:
                    raise  # it was confirmed, so it is lost
                break
            for payload in payloads:
                printer.print(entry_id, payload)
                entry_id += 1
            done(printer.printed)
    if not ends and entry_id - 1 > reader.last_entry_id:
        printer.output.note(
            f"the ledger is open: the entries past {reader.last_entry_id} are not confirmed, and its writer may "
            "still drop them"
        )
    return 0


class _Copies:
    """Entries of a ledger on one bookie."""

    def __init__(self, shell: Shell, connection: BookieConnection, ledger_id: int, metadata: LedgerMetadata) -> None:
        self._shell = shell
        self._connection = connection
        self._ledger_id = ledger_id
        self._metadata = metadata
        self._digest = _secrets(shell, metadata)[1]
        self._striping = Striping(metadata.ensemble_size, metadata.write_quorum)

    async def print(self, printer: _EntryPrinter, first: int, last: int) -> int:
        """Print entries `first` to `last`, LAST for the bookie's last one. Returns FAILED if one is missing."""
        if last == LAST:
            last = await self._last()
        failures = 0
        entry_id = first
        with printer.output.progress("entries requested", max(0, last - first + 1)) as done:
            while entry_id <= last:
                wanted = list(range(entry_id, min(last + 1, entry_id + READS_AT_ONCE)))
                failures += await self._print_some(printer, wanted)
                entry_id += len(wanted)
                done(entry_id - first)
        return FAILED if failures else 0

    async def _last(self) -> int:
        """Return the bookie's last entry, -1 if none. Raises ShellError."""
        (answer,) = self._connection.read(self._ledger_id, [LAST])
        entry = await self._entry(answer)
        if entry == rc_name(Rc.NO_ENTRY) or entry == rc_name(Rc.NO_LEDGER):
            return -1
        if isinstance(entry, str):
            raise ShellError(f"bookie {self._connection.bookie_id}: {entry}")
        return read_header(entry).entry_id

    async def _print_some(self, printer: _EntryPrinter, wanted: Sequence[int]) -> int:
        """Print some entries; return how many are missing."""
        failures = 0
        for entry_id, answer in zip(wanted, self._connection.read(self._ledger_id, wanted), strict=True):
            entry = await self._entry(answer)
            if isinstance(entry, memoryview):
                try:
                    printer.print(entry_id, self._digest.open(self._ledger_id, entry_id, entry))
                    continue
                except BookkeeperWireError as error:
                    entry = str(error)
            if self._should_have(entry_id):
                failures += 1
                printer.output.note(f"entry {entry_id}: {entry}")
        return failures

    async def _entry(self, answer: Answer) -> memoryview | str:
        """Read an entry; return it or the error."""
        try:
            body = await answer.wait()
        except BookieError as error:
            return str(error)
        return body.entry if isinstance(body, v2.ReadResponse) and body.rc == Rc.OK else rc_name(body.rc)

    def _should_have(self, entry_id: int) -> bool:
        metadata = self._metadata
        if metadata.state is LedgerState.CLOSED and entry_id > metadata.last_entry_id:
            return False
        ensemble = metadata.fragment_at(entry_id).bookies
        if self._connection.bookie_id not in ensemble:
            return False
        return self._striping.stores(ensemble.index(self._connection.bookie_id), entry_id)


COMMANDS = (
    Command(
        name="readledger",
        help="Print the entries of a ledger.",
        run=read_ledger,
        options=(
            LEDGER,
            CommandOption(
                name="firstentryid", short="fe", kind=OptionKind.NUMBER, default=0, help="First entry to print."
            ),
            CommandOption(
                name="lastentryid",
                short="le",
                kind=OptionKind.NUMBER,
                default=LAST,
                minimum=LAST,
                help="Last entry to print; -1 for the end of the ledger.",
            ),
            CommandOption(name="msg", short="m", help="Print the contents of the entries too."),
            CommandOption(
                name="force-recovery", short="r", help="Close the ledger first; its writer can then write no more."
            ),
            CommandOption(name="bookie", short="b", kind=OptionKind.TEXT, help="Read only from this bookie."),
        ),
    ),
)
