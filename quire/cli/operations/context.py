"""Common parts of the operations: the cluster's interfaces (those of `quire shell`), waiting, and the operator's
commands."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import trio

from autorecovery.auditing.overview import known_bookies, running_bookies
from autorecovery.removal.ledger_scan import has_entries_on
from quire.cli.shell.arguments import parse
from quire.cli.shell.context import Shell
from quire.cli.shell.errors import FAILED, ShellError
from quire.cli.shell.ledger.ledgers import each_ledger
from quire.cli.shell.main import COMMANDS
from quire.cli.shell.output import Output
from quire.cli.shell.repair.marks import marks_of
from quire.ledger.errors import BookieUnavailableError
from quire.metadata.bookies import check_bookie_id
from quire.metadata.ledgers import LedgerMetadata
from quire.metadata.store import MetadataStore
from quire.wire.bookkeeper import v3

POLL_S = 0.5
ANSWER_S = 2.0
SESSION_END_S = 45.0
"""Time after which the registration of a dead bookie has ended: ZooKeeper's longest session, 20 ticks of 2 s, and a
margin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationContext:
    """One run of one command, on a cluster."""

    shell: Shell
    store: MetadataStore
    dry_run: bool
    timeout_s: float
    """Deadline of each wait except for copying."""

    @property
    def output(self) -> Output:
        return self.shell.output

    # --- bookies

    async def running(self) -> set[str]:
        return set(await running_bookies(self.store, self.shell.root))

    async def known(self) -> list[str]:
        """Return the bookies with a cookie, sorted."""
        return await known_bookies(self.store, self.shell.root)

    # --- the operator's commands

    async def stop(self, bookie_id: str, template: str | None) -> None:
        """Have a bookie stopped, and wait until it is not registered. Raises ShellError on failure or timeout.

        A failed command is no failure if the registration ends soon: the bookie was dead, and only its session was
        left."""
        failure: ShellError | None = None
        try:
            await self.do("stop", template, bookie_id)
        except ShellError as error:
            failure = error
            self.output.note(f"{error}; waiting for the registration of bookie {bookie_id} to end")
        try:
            await self._until(
                lambda: self._is_gone(bookie_id),
                f"bookie {bookie_id} is still registered: stop it",
                self.timeout_s if failure is None else min(self.timeout_s, SESSION_END_S),
            )
        except ShellError as error:
            raise (failure or error) from None

    async def start(self, bookie_id: str, template: str | None) -> None:
        """Have a bookie started, and wait until it is registered and answers. Raises ShellError on failure or
        timeout."""
        await self.do("start", template, bookie_id)
        async with self.shell.bookies(self.store, timeout_s=ANSWER_S) as client:

            async def serves() -> bool:
                if await self._is_gone(bookie_id):
                    return False
                try:
                    body = await client.connection(bookie_id).bookie_info(v3.FREE_DISK_SPACE).wait()
                except BookieUnavailableError:
                    return False
                return isinstance(body, v3.BookieInfo)

            await self._until(serves, f"bookie {bookie_id} is not serving: start it")

    async def do(self, what: str, template: str | None, bookie_id: str) -> None:
        """Run the operator's command for a bookie, or print the task to wait for. Raises ShellError if the command
        fails."""
        if template is None:
            self.output.note(f"{'you would be asked to' if self.dry_run else 'now'} {what} bookie {bookie_id}")
            return
        command = filled(template, bookie_id)
        if self.dry_run:
            self.output.note(f"would run: {command}")
            return
        self.output.note(f"running: {command}")
        done = await trio.run_process(
            ["sh", "-c", command], check=False, capture_stdout=True, capture_stderr=True, stdin=b""
        )
        if done.returncode:
            said = (done.stdout + done.stderr).decode(errors="replace").strip()
            raise ShellError(f"`{command}` ended with {done.returncode}: {said}")

    async def _is_gone(self, bookie_id: str) -> bool:
        return bookie_id not in await self.running()

    # --- copies

    async def until_replicated(self, what: str = "ledgers marked as lacking copies") -> None:
        """Wait until no ledger is marked as lacking copies. Raises ShellError if their number does not fall for too
        long."""
        marks = marks_of(self.shell, self.store)
        fewest: int | None = None
        since = trio.current_time()
        with self.output.progress(what) as told:
            while True:
                count = len([each.ledger_id async for each in marks.list()])
                if count == 0:
                    return
                told(count)
                if fewest is None or count < fewest:
                    fewest, since = count, trio.current_time()
                if trio.current_time() - since > self.timeout_s:
                    raise ShellError(
                        f"{count} ledgers lack copies, unchanged for {self.timeout_s:g} s: see "
                        "`quire shell listunderreplicated -pmr`, and whether auto recovery runs"
                    )
                await trio.sleep(POLL_S)

    async def ledgers_on(self, *bookie_ids: str) -> dict[int, LedgerMetadata]:
        """Return the ledgers of which one of these should have entries. Raises ShellError for unreadable metadata."""
        found: dict[int, LedgerMetadata] = {}

        def look(ledger_id: int, metadata: LedgerMetadata | str | None) -> None:
            if isinstance(metadata, str):
                raise ShellError(f"ledger {ledger_id}: {metadata}")
            if metadata is not None and any(has_entries_on(metadata, each) for each in bookie_ids):
                found[ledger_id] = metadata

        await each_ledger(self.shell, await self.shell.ledgers(self.store), look)
        return found

    # --- commands of the shell

    async def run(self, name: str, *words: str) -> int:
        """Run a command of `quire shell`; return its exit code, 1 after a failure. Raises the command's errors."""
        command = COMMANDS[name]
        code = await command.run(self.shell, parse(command.options, words, operands=command.operands))
        return 1 if code == FAILED else code

    async def _until(
        self, condition: Callable[[], Awaitable[bool]], otherwise: str, timeout_s: float | None = None
    ) -> None:
        """Wait for a condition. `timeout_s`: None for that of the operation."""
        timeout_s = self.timeout_s if timeout_s is None else timeout_s
        deadline = trio.current_time() + timeout_s
        while not await condition():
            if trio.current_time() > deadline:
                raise ShellError(f"{otherwise} (waited {timeout_s:g} s)")
            await trio.sleep(POLL_S)


def filled(template: str, bookie_id: str) -> str:
    """Return a command for one bookie: {id}, {host} and {port} are replaced.

    >>> filled("ssh {host} systemctl stop bookie@{port}", "10.0.0.7:3181")
    'ssh 10.0.0.7 systemctl stop bookie@3181'
    """
    host, _, port = bookie_id.rpartition(":")
    for name, value in (("id", bookie_id), ("host", host or bookie_id), ("port", port)):
        template = template.replace(f"{{{name}}}", value)
    return template


def checked(bookie_ids: Sequence[str]) -> list[str]:
    """Return each id once. Raises InvalidPathError for an invalid bookie id."""
    return list(dict.fromkeys(map(check_bookie_id, bookie_ids)))
