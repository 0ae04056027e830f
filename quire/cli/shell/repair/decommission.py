"""decommissionbookie: remove a stopped bookie from the cluster, once all its data are on other bookies.

    it must not be running; auto recovery must be enabled, with an auditor
    no other bookie may be lost that still should have entries: what it had may have its last copy here
    the auditor is asked to look now; then workers copy
    wait until no ledger should have entries on it, and no mark names it
    delete its cookie

Source: BookKeeperAdmin.decommissionBookie, DecommissionCommand; that no other copies may be missing is ours.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import trio

from autorecovery.auditing.overview import known_bookies
from quire.cli.shell.arguments import Arguments, CommandOption, OptionKind
from quire.cli.shell.command import Command
from quire.cli.shell.context import Shell
from quire.cli.shell.errors import ShellError
from quire.cli.shell.ledger.ledger_text import has_entries_on
from quire.cli.shell.ledger.ledgers import each_ledger
from quire.cli.shell.ledger.probes import local_bookie_id
from quire.cli.shell.metadata.cluster import running_bookies
from quire.cli.shell.metadata.cookies import forget_cookie
from quire.cli.shell.repair.marks import DRY_RUN, marks_of, working_auditor
from quire.metadata.bookies import check_bookie_id
from quire.metadata.ledgers import LedgerManager, LedgerMetadata
from quire.metadata.store import MetadataStore

POLL_S: Final = 1.0
"""Time between two looks at the remaining ledgers."""
NAMED_MAX: Final = 5


async def decommission_bookie(shell: Shell, arguments: Arguments) -> int:
    bookie_id = arguments.text("bookieid") or local_bookie_id(shell)
    check_bookie_id(bookie_id)
    async with shell.store() as store:
        left = await _check(shell, store, bookie_id)
        if arguments.has("dry-run"):
            text = (
                f"Bookie {bookie_id} may be decommissioned: {len(left)} ledgers would be copied, then its cookie "
                "deleted"
            )
            shell.output.tell(text, bookieId=bookie_id, ledgers=len(left), decommissioned=False)
            return 0
        marks = marks_of(shell, store)
        await marks.audit_now()
        await _until_gone(shell, store, bookie_id, left)
        if bookie_id in await running_bookies(store, shell.root):
            raise ShellError(f"bookie {bookie_id} was started meanwhile: its cookie is kept")
        await forget_cookie(shell, store, bookie_id)
    text = f"Bookie {bookie_id} is decommissioned: its ledgers are on others, its cookie is deleted"
    shell.output.tell(text, bookieId=bookie_id, ledgers=len(left), decommissioned=True)
    return 0


async def _check(shell: Shell, store: MetadataStore, bookie_id: str) -> list[int]:
    """Return the ledgers that should have entries on it. Raises ShellError if it may not be decommissioned now."""
    running = await running_bookies(store, shell.root)
    if bookie_id in running:
        raise ShellError(f"bookie {bookie_id} is running: stop it first")
    known = await known_bookies(store, shell.root)
    marks = marks_of(shell, store)
    await working_auditor(shell, store, marks)
    left: list[int] = []
    lost: dict[str, int] = {}

    def look(ledger_id: int, metadata: LedgerMetadata | str | None) -> None:
        if isinstance(metadata, str):
            raise ShellError(f"ledger {shell.ledger_ids.write(ledger_id)}: {metadata}")
        if metadata is None:
            return
        members = {each for fragment in metadata.fragments for each in fragment.bookies}
        for each in members.difference(running):
            if not has_entries_on(metadata, each):
                continue
            if each == bookie_id:
                left.append(ledger_id)
            else:
                lost[each] = lost.get(each, 0) + 1

    await each_ledger(shell, await shell.ledgers(store), look)
    if bookie_id not in known and not left:
        raise ShellError(f"unknown bookie {bookie_id}: it has no cookie, and no ledger names it")
    if lost:
        named = ", ".join([f"{each} ({count} ledgers)" for each, count in sorted(lost.items())[:NAMED_MAX]])
        raise ShellError(
            f"copies of other bookies are missing, so this one may have the last copy: {named}. "
            "Start them, or wait until auto recovery has copied their ledgers"
        )
    others = [each.ledger_id async for each in marks.list() if any(name != bookie_id for name in each.replicas)]
    if others:
        raise ShellError(
            f"{len(others)} ledgers are marked as lacking other copies, among them {_some(shell, others)}: wait "
            "until auto "
            "recovery has copied them (quire shell listunderreplicated)"
        )
    return left


async def _until_gone(shell: Shell, store: MetadataStore, bookie_id: str, left: list[int]) -> None:
    """Wait until none of the ledgers, and no mark, names the bookie."""
    manager = await shell.ledgers(store)
    marks = marks_of(shell, store)
    waiting = list(left)
    with shell.output.progress("ledgers copied", len(left)) as done:
        while True:
            waiting = [each for each in waiting if await _is_on(manager, each, bookie_id)]
            done(len(left) - len(waiting))
            if not waiting:
                break
            await trio.sleep(POLL_S)
    while True:
        marked = [each.ledger_id async for each in marks.list(missing=bookie_id)]
        if not marked:
            return
        await trio.sleep(POLL_S)


async def _is_on(manager: LedgerManager, ledger_id: int, bookie_id: str) -> bool:
    stored = await manager.read(ledger_id)
    return stored is not None and has_entries_on(stored.value, bookie_id)


def _some(shell: Shell, ledger_ids: Iterable[int]) -> str:
    return ", ".join([shell.ledger_ids.write(each) for each in list(ledger_ids)[:NAMED_MAX]])


COMMANDS = (
    Command(
        name="decommissionbookie",
        help="Wait until all data of a stopped bookie are on others, then delete its cookie.",
        run=decommission_bookie,
        options=(
            CommandOption(
                name="bookieid",
                kind=OptionKind.TEXT,
                help="Id of the bookie; default: the bookie of this configuration.",
            ),
            DRY_RUN,
        ),
    ),
)
