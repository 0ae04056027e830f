"""forceauditchecks: lets the auditor make its periodic checks again, before their time."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from autorecovery.marks.underreplication import CheckTime
from quire.cli.shell.arguments import Arguments, CommandOption
from quire.cli.shell.command import Command
from quire.cli.shell.context import Shell
from quire.cli.shell.errors import UsageError
from quire.cli.shell.repair.marks import marks_of

AGO_MS: Final = 21 * 86_400_000
"""Age that a check gets: more than the longest interval of the original's defaults."""
_CHECKS: Final = {
    "checkallledgerscheck": (CheckTime.ALL_LEDGERS, "CheckAllLedgersCTime"),
    "placementpolicycheck": (CheckTime.PLACEMENT, "PlacementPolicyCheckCTime"),
    "replicascheck": (CheckTime.REPLICAS, "ReplicasCheckCTime"),
}


async def force_audit_checks(shell: Shell, arguments: Arguments) -> int:
    chosen = [name for name in _CHECKS if arguments.has(name)]
    if not chosen:
        raise UsageError(f"give at least one of {', '.join(f'-{name}' for name in _CHECKS)}; nothing was changed")
    time_ms = shell.world.clock.wall_ms() - AGO_MS
    at = datetime.fromtimestamp(time_ms / 1000, UTC)
    async with shell.store() as store:
        marks = marks_of(shell, store)
        for name in chosen:
            check, title = _CHECKS[name]
            await marks.set_check_time(check, time_ms)
            text = f"Resetting {title} to : {at:%Y-%m-%d %H:%M:%S}.{time_ms % 1000:03d}"
            shell.output.tell(text, check=name, lastRun=time_ms)
    shell.output.note("the auditor makes the checks when it starts: restart the process that whoisauditor names")
    return 0


COMMANDS = (
    Command(
        name="forceauditchecks",
        help="Reset the times of the auditor's last checks, so that it makes them when it starts the next time.",
        run=force_audit_checks,
        options=(
            CommandOption(name="checkallledgerscheck", short="calc", help="Reset the check of all ledgers."),
            CommandOption(name="placementpolicycheck", short="ppc", help="Reset the check of the placement policy."),
            CommandOption(name="replicascheck", short="rc", help="Reset the check of the replicas."),
        ),
    ),
)
