"""listunderreplicated, autorecovery, queryautorecoverystatus, lostbookierecoverydelay, triggeraudit, whoisauditor:
findings and settings of auto recovery.
"""

from __future__ import annotations

from autorecovery.auditing.election import read_auditor
from autorecovery.auditing.overview import working_auditor
from autorecovery.errors import NoAuditorError
from autorecovery.marks.underreplication import Underreplicated, UnderreplicatedLedgers
from quire.cli.shell.arguments import Arguments, CommandOption, OptionKind
from quire.cli.shell.command import Command
from quire.cli.shell.context import Shell
from quire.cli.shell.errors import ShellError
from quire.cli.shell.metadata.bookies import where_text, whereabouts
from quire.metadata.store import MetadataStore

DRY_RUN = CommandOption(name="dry-run", help="Only print what would be done.")
OWNER = "shell"


def marks_of(shell: Shell, store: MetadataStore) -> UnderreplicatedLedgers:
    """Return the marks of the cluster."""
    return UnderreplicatedLedgers(
        store, root=shell.root, rng=shell.world.rng, wall_ms=shell.world.clock.wall_ms, owner=OWNER
    )


async def list_underreplicated(shell: Shell, arguments: Arguments) -> int:
    count = 0
    only_count = arguments.has("onlydisplayledgercount")
    async with shell.store() as store:
        marks = marks_of(shell, store)
        with shell.output.progress("marked ledgers") as done:
            found = marks.list(
                missing=arguments.text("missingreplica") or None,
                excluding=arguments.text("excludingmissingreplica") or None,
            )
            async for each in found:
                count += 1
                if not only_count:
                    worker = await marks.locked_by(each.ledger_id) if _wants_worker(shell, arguments) else None
                    _show(shell, arguments, each, worker)
                done(count)
    if only_count:
        shell.output.tell(f"Under replicated ledger count: {count}", count=count)
    return 0


def _wants_worker(shell: Shell, arguments: Arguments) -> bool:
    return shell.output.as_json or arguments.has("printreplicationworkerid")


def _show(shell: Shell, arguments: Arguments, each: Underreplicated, worker: str | None) -> None:
    lines = [shell.ledger_ids.write(each.ledger_id)]
    if each.ctime_ms is not None:
        lines.append(f"\tCtime : {each.ctime_ms}")
    if arguments.has("printmissingreplica"):
        lines += [f"\tMissingReplica : {replica}" for replica in each.replicas]
    if worker is not None:
        lines.append(f"\tReplicationWorkerId : {worker}")
    shell.output.tell(
        "\n".join(lines),
        ledgerId=each.ledger_id,
        ctime=each.ctime_ms,
        missingReplicas=list(each.replicas),
        replicationWorkerId=worker,
    )


async def auto_recovery(shell: Shell, arguments: Arguments) -> int:
    # (Without an option the original disables it.)
    wanted = arguments.one_of("enable", "disable") == "enable"
    async with shell.store() as store:
        marks = marks_of(shell, store)
        if await marks.is_enabled() == wanted:
            text = f"Autorecovery already {'enabled' if wanted else 'disabled'}. Doing nothing"
            shell.output.tell(text, enabled=wanted, changed=False)
        elif arguments.has("dry-run"):
            shell.output.tell(f"Autorecovery would be {'enabled' if wanted else 'disabled'}", enabled=not wanted)
        else:
            shell.output.line(f"{'Enabling' if wanted else 'Disabling'} autorecovery")
            await (marks.enable() if wanted else marks.disable())
            shell.output.value(enabled=wanted, changed=True)
    return 0


async def query_status(shell: Shell, arguments: Arguments) -> int:
    async with shell.store() as store:
        marks = marks_of(shell, store)
        enabled = await marks.is_enabled()
        shell.output.line(f"Autorecovery is {'enabled' if enabled else 'disabled'}.")
        shell.output.line("CurrentRecoverLedgerInfo:")
        under_way = 0
        async for each in marks.list():
            worker = await marks.locked_by(each.ledger_id)
            if worker is not None:
                under_way += 1
                text = f"\tLedgerId:{shell.ledger_ids.write(each.ledger_id)}\tBookieId:{worker}"
                shell.output.tell(text, ledgerId=each.ledger_id, replicationWorkerId=worker)
        if not under_way:
            shell.output.line("\tNo Ledger is being recovered.")
    shell.output.value(enabled=enabled, recovering=under_way)
    return 0


async def lost_bookie_recovery_delay(shell: Shell, arguments: Arguments) -> int:
    option = arguments.one_of("get", "set")
    async with shell.store() as store:
        marks = marks_of(shell, store)
        found = await marks.read_recovery_delay()
        if option == "get":
            if found is None:
                text = "LostBookieRecoveryDelay is not set in ZK: the auditor uses its configuration"
                shell.output.tell(text, lostBookieRecoveryDelay=None)
            else:
                text = f"LostBookieRecoveryDelay value in ZK: {found.value}"
                shell.output.tell(text, lostBookieRecoveryDelay=found.value)
            return 0
        seconds = arguments.number("set")
        if arguments.has("dry-run"):
            before = "not set" if found is None else f"{found.value} s"
            text = f"LostBookieRecoveryDelay is {before}, would be {seconds} s"
            shell.output.tell(text, lostBookieRecoveryDelay=None if found is None else found.value)
            return 0
        await marks.set_recovery_delay(seconds)
        text = f"Successfully set LostBookieRecoveryDelay value in ZK: {seconds}"
        shell.output.tell(text, lostBookieRecoveryDelay=seconds)
    return 0


async def trigger_audit(shell: Shell, arguments: Arguments) -> int:
    async with shell.store() as store:
        marks = marks_of(shell, store)
        auditor = await auditor_at_work(shell, store, marks)
        if arguments.has("dry-run"):
            shell.output.tell(f"The auditor {auditor} would look for lost bookies now", auditor=auditor)
            return 0
        await marks.audit_now()
        shell.output.tell(f"Requested a search for lost bookies from the auditor {auditor}", auditor=auditor)
    return 0


async def auditor_at_work(shell: Shell, store: MetadataStore, marks: UnderreplicatedLedgers) -> str:
    """Return the auditor's id. Raises ShellError if auto recovery is disabled, or there is none."""
    try:
        return await working_auditor(store, marks, shell.root)
    except NoAuditorError as error:
        raise ShellError(str(error)) from error


async def who_is_auditor(shell: Shell, arguments: Arguments) -> int:
    async with shell.store() as store:
        auditor = await read_auditor(store, shell.root)
        if auditor is None:
            raise ShellError("No auditor elected")
        where = await whereabouts(shell, store, auditor)
    shell.output.tell(f"Auditor: {where_text(where)}", **where)
    return 0


COMMANDS = (
    Command(
        name="listunderreplicated",
        help="List the ledgers that are known to lack copies.",
        run=list_underreplicated,
        options=(
            CommandOption(
                name="missingreplica",
                short="mr",
                kind=OptionKind.TEXT,
                help="List only ledgers that lack the copies of this bookie.",
            ),
            CommandOption(
                name="excludingmissingreplica",
                short="emr",
                kind=OptionKind.TEXT,
                help="List only ledgers that do not lack the copies of this bookie.",
            ),
            CommandOption(
                name="printmissingreplica", short="pmr", help="Print the bookies whose copies are missing too."
            ),
            CommandOption(
                name="printreplicationworkerid", short="prw", help="Print the worker that is copying the ledger too."
            ),
            CommandOption(name="onlydisplayledgercount", short="c", help="Print only the number of ledgers."),
        ),
    ),
    Command(
        name="autorecovery",
        help="Enable or disable auto recovery in the whole cluster.",
        run=auto_recovery,
        options=(
            CommandOption(name="enable", short="e", help="Enable auto recovery."),
            CommandOption(name="disable", short="d", help="Disable auto recovery."),
            DRY_RUN,
        ),
    ),
    Command(
        name="queryautorecoverystatus",
        help="Print whether auto recovery is enabled, and the ledgers that workers are copying.",
        run=query_status,
        options=(CommandOption(name="verbose", short="v", help="No effect: ledgermetadata prints the sizes."),),
    ),
    Command(
        name="lostbookierecoverydelay",
        help="Print or set how long, in seconds, the auditor waits for a lost bookie to come back.",
        run=lost_bookie_recovery_delay,
        options=(
            CommandOption(name="get", short="g", help="Print the delay."),
            CommandOption(name="set", short="s", kind=OptionKind.NUMBER, help="Set the delay, in seconds."),
            DRY_RUN,
        ),
    ),
    Command(
        name="triggeraudit",
        help="Make the auditor look for lost bookies now.",
        run=trigger_audit,
        options=(DRY_RUN,),
    ),
    Command(name="whoisauditor", help="Print the auditor.", run=who_is_auditor),
)
