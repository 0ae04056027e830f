"""recover: copy the data of some bookies to others.

A ledger that cannot be recovered does not keep the others from it, unlike in the original; the exit code is 255 then,
unless it was said that such ledgers are to be skipped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autorecovery.copying.bookie_recovery import BookieRecovery, LedgerPlan
from autorecovery.copying.replicator import Copied, Replicator
from autorecovery.copying.throttle import Throttle
from autorecovery.ledger_checker import LedgerChecker
from autorecovery.removal.recovering import RecoveryOutcome, concerned_ledgers, recover_ledgers, remedy
from quire.cli.shell.arguments import Arguments, CommandOption, OptionKind
from quire.cli.shell.command import Command
from quire.cli.shell.context import Shell
from quire.cli.shell.errors import FAILED, ShellError
from quire.cli.shell.metadata.cookies import forget_and_tell
from quire.ledger.client import LedgerClient
from quire.ledger.errors import LedgerError
from quire.metadata.bookies import check_bookie_id
from quire.metadata.errors import MetadataError
from quire.metadata.ledgers import LedgerMetadata, LedgerState
from quire.metadata.store import MetadataStore


async def recover(shell: Shell, arguments: Arguments) -> int:
    named = list(dict.fromkeys(arguments.operands[0].split(",")))
    for bookie_id in named:
        check_bookie_id(bookie_id)
    dry_run = arguments.has("dryrun") or arguments.has("dry-run")
    looks_only = arguments.has("query") or dry_run
    # The original asks even before a dry run.
    if (
        not looks_only
        and not arguments.has("force")
        and not shell.ask(f"Bookies: {', '.join(named)}. Are you sure to recover them?")
    ):
        raise ShellError("not confirmed; nothing was changed")
    async with shell.store() as store, shell.client(store) as client:
        rate = Throttle(arguments.number("replicationrate"))
        password, digest_type = shell.config.password.encode(), shell.config.digest
        checker = LedgerChecker(client, rng=shell.world.rng, password=password, digest_type=digest_type)
        replicator = Replicator(client, checker, throttle=rate)
        recovery = BookieRecovery(client, checker, replicator, named, password=password, digest_type=digest_type)
        concerned, unreadable = await _concerned(shell, store, client, recovery, arguments)
        if arguments.has("query"):
            return _show(shell, concerned, named)
        plans = [recovery.plan(ledger_id, metadata) for ledger_id, metadata in concerned.items()]
        if arguments.has("skipOpenLedgers"):
            for plan in plans:
                if plan.state is not LedgerState.CLOSED:
                    shell.output.note(f"ledger {shell.ledger_ids.write(plan.ledger_id)} is open: skipped")
            plans = [plan for plan in plans if plan.state is LedgerState.CLOSED]
        if dry_run:
            for plan in plans:
                shell.output.tell(_plan_text(shell, plan), **_plan_value(plan))
            return FAILED if unreadable else 0
        failed = await _recover_all(shell, recovery, plans)
        if unreadable or failed:
            if arguments.has("deleteCookie"):
                shell.output.note("the cookies are kept, as not all ledgers were recovered")
            skipped = arguments.has("skipUnrecoverableLedgers") and not unreadable
            return 0 if skipped and not arguments.has("deleteCookie") else FAILED
        if arguments.has("deleteCookie"):
            for bookie_id in named:
                await forget_and_tell(shell, store, bookie_id)
    return 0


async def _concerned(
    shell: Shell, store: MetadataStore, client: LedgerClient, recovery: BookieRecovery, arguments: Arguments
) -> tuple[dict[int, LedgerMetadata], int]:
    """Return the ledgers that name the bookies, and the number of those with unreadable metadata."""
    if arguments.has("ledger"):
        ledger_id = arguments.number("ledger")
        metadata = await client.read_metadata(ledger_id)
        return ({ledger_id: metadata} if recovery.concerns(metadata) else {}), 0
    unreadable = 0

    def tell(ledger_id: int, error: str) -> None:
        nonlocal unreadable
        unreadable += 1
        shell.output.note(f"ledger {shell.ledger_ids.write(ledger_id)}: {error}")

    with shell.output.progress("ledgers examined") as examined:
        found = await concerned_ledgers(await shell.ledgers(store), recovery, tell, examined)
    return found, unreadable


async def _recover_all(shell: Shell, recovery: BookieRecovery, plans: Sequence[LedgerPlan]) -> int:
    """Recover all ledgers; return how many could not be recovered.

    Each of these is printed, with the reason and the remedy, and does not prevent the others. MetadataError ends it."""
    outcome = RecoveryOutcome(len(plans))

    def sum_up() -> None:
        shell.output.note(outcome.summary())
        for what, count in outcome.left.most_common():
            shell.output.note(f"  {count}: {what}")

    with shell.output.progress("ledgers recovered", len(plans)) as done:

        def recovered(plan: LedgerPlan, copied: Copied) -> None:
            name = shell.ledger_ids.write(plan.ledger_id)
            shell.output.tell(
                f"Recovered ledger {name}{' [fenced]' if plan.fence else ''}: {copied.entries} entries",
                ledgerId=plan.ledger_id,
                fenced=plan.fence,
                entries=copied.entries,
                bytes=copied.bytes,
            )
            done(outcome.recovered)

        def failed(plan: LedgerPlan, error: LedgerError) -> None:
            name = shell.ledger_ids.write(plan.ledger_id)
            shell.output.note(f"ledger {name} cannot be recovered: {error}: {remedy(error)}")

        try:
            await recover_ledgers(recovery, plans, outcome, recovered=recovered, failed=failed)
        except MetadataError:
            sum_up()
            raise
    if outcome.left:
        sum_up()
    return outcome.left.total()


def _show(shell: Shell, ledgers: dict[int, LedgerMetadata], named: Sequence[str]) -> int:
    """Print in the original's form: the bookies in question are marked."""
    shell.output.note("NOTE: Bookies in inspection list are marked with '*'.")
    for ledger_id, metadata in ledgers.items():
        shell.output.line(f"ledger {shell.ledger_ids.write(ledger_id)} : {metadata.state.name}")
        counts: dict[str, int] = {}
        for fragment in metadata.fragments:
            members = "".join([f"{each}{'*' if each in named else ' '} " for each in fragment.bookies])
            shell.output.line(f"{fragment.first_entry_id}:\t{members}")
            counts[str(fragment.first_entry_id)] = sum([each in named for each in fragment.bookies])
        shell.output.line(f"summary: [{''.join([f'{first}={count}, ' for first, count in counts.items()])}]")
        shell.output.line()
        ensembles = {str(each.first_entry_id): list(each.bookies) for each in metadata.fragments}
        shell.output.value(ledgerId=ledger_id, state=metadata.state.name, ensembles=ensembles, toReplace=counts)
    shell.output.note("Done")
    return 0


def _plan_text(shell: Shell, plan: LedgerPlan) -> str:
    fence = " [fence required]" if plan.fence else ""
    lines = [f"ledger {shell.ledger_ids.write(plan.ledger_id)} : {plan.state.name}{fence}"]
    for bad in plan.fragments:
        last = bad.fragment.last if bad.fragment.closed else "?"
        lines.append(f"  Fragment [{bad.fragment.first} - {last}] : others for {', '.join(bad.bookies)}")
    return "\n".join(lines)


def _plan_value(plan: LedgerPlan) -> dict[str, Any]:
    return {
        "ledgerId": plan.ledger_id,
        "state": plan.state.name,
        "fence": plan.fence,
        "fragments": [
            {
                "firstEntryId": bad.fragment.first,
                "lastEntryId": bad.fragment.last if bad.fragment.closed else None,
                "replace": list(bad.bookies),
            }
            for bad in plan.fragments
        ],
    }


COMMANDS = (
    Command(
        name="recover",
        help="Copy the data of bookies to others. Open ledgers that end on them are closed.",
        run=recover,
        operands=("bookies, comma-separated",),
        options=(
            CommandOption(name="query", short="q", help="Only print the ledgers that name these bookies."),
            CommandOption(name="dryrun", short="dr", help="Only print what would be done."),
            CommandOption(name="dry-run", help="The same as -dryrun."),
            CommandOption(name="force", short="f", help="Do not ask."),
            CommandOption(name="ledger", short="l", kind=OptionKind.LEDGER, help="Recover only this ledger."),
            CommandOption(name="skipOpenLedgers", short="sk", help="Skip ledgers that are not closed."),
            CommandOption(
                name="deleteCookie",
                short="d",
                help="Delete the cookies of the bookies after all their data were copied.",
            ),
            CommandOption(
                name="skipUnrecoverableLedgers",
                short="sku",
                help="Exit with 0 even if some ledgers cannot be recovered.",
            ),
            CommandOption(
                name="replicationrate",
                short="rate",
                kind=OptionKind.NUMBER,
                default=0,
                help="Maximum bytes per second to copy; 0 for no limit.",
            ),
        ),
    ),
)
