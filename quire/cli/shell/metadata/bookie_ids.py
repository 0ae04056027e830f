"""updateledgers, updateBookieInLedger: another id for a bookie in the metadata of its ledgers.

They are for a bookie whose address, and with it its id, has changed, while its data has not. Writers of open ledgers
that have the old id in memory learn the new one when they next write metadata.
"""

from __future__ import annotations

import math
from contextlib import aclosing
from dataclasses import dataclass, replace

import trio

from autorecovery.auditing.overview import running_bookies
from quire.cli.shell.arguments import Arguments, CommandOption, OptionKind
from quire.cli.shell.command import Command
from quire.cli.shell.context import Shell
from quire.cli.shell.errors import ShellError, UsageError
from quire.cli.shell.metadata.addresses import addresses
from quire.metadata.bookies import check_bookie_id
from quire.metadata.errors import NoNodeError
from quire.metadata.ledgers import Fragment, LedgerManager, LedgerMetadata


async def update_ledgers(shell: Shell, arguments: Arguments) -> int:
    wanted = arguments.required("bookieId")
    if wanted not in ("hostname", "ip"):
        raise UsageError(f"-bookieId is hostname or ip, not {wanted}")
    found = addresses(shell)
    new, old = (found.by_name, found.by_ip) if wanted == "hostname" else (found.by_ip, found.by_name)
    if new == old:
        raise ShellError(f"name and address of this bookie are the same: {new}")
    if shell.config.bookie_id:
        raise ShellError(f"the bookie has an id of its own, bookieId={shell.config.bookie_id}, and no address in it")
    return await _replace(shell, arguments, old, new)


async def update_bookie(shell: Shell, arguments: Arguments) -> int:
    old, new = (check_bookie_id(arguments.required(name)) for name in ("srcBookie", "destBookie"))
    if old == new:
        raise UsageError("-srcBookie and -destBookie are the same")
    async with shell.store() as store:
        if old in await running_bookies(store, shell.root):
            raise ShellError(f"bookie {old} is running: stop it first; nothing was changed")
    return await _replace(shell, arguments, old, new)


@dataclass(slots=True)
class _Counts:
    issued: int = 0
    updated: int = 0
    every_s: float = math.inf
    """Seconds between two lines with the numbers."""
    told_at: float = 0.0

    def tell(self, shell: Shell) -> None:
        """Print the numbers, if it is time."""
        if trio.current_time() - self.told_at >= self.every_s:
            self.told_at = trio.current_time()
            shell.output.note(f"Number of ledgers issued={self.issued}, updated={self.updated}")


async def _replace(shell: Shell, arguments: Arguments, old: str, new: str) -> int:
    rate, limit = arguments.number("updatespersec"), None
    if arguments.has("limit"):
        limit = arguments.number("limit")
    at_once = arguments.number("maxOutstandingReads") if arguments.has("maxOutstandingReads") else 5 * rate
    counts = _Counts(told_at=trio.current_time())
    if arguments.text("verbose") == "true":
        counts.every_s = arguments.number("printprogress")
    async with shell.store() as store:
        manager = await shell.ledgers(store)
        with shell.output.progress("ledgers examined") as done:
            part: list[int] = []
            async with aclosing(manager.ledger_ids()) as found:
                async for ledger_id in found:
                    if limit is not None and counts.issued + len(part) >= limit:
                        break
                    part.append(ledger_id)
                    if len(part) >= at_once:
                        await _update(shell, manager, part, old, new, rate, counts)
                        part = []
                        done(counts.issued)
            await _update(shell, manager, part, old, new, rate, counts)
    text = f"Total number of ledgers issued={counts.issued} updated={counts.updated}"
    shell.output.tell(text, source=old, destination=new, issued=counts.issued, updated=counts.updated)
    return 0


async def _update(
    shell: Shell, manager: LedgerManager, part: list[int], old: str, new: str, rate: int, counts: _Counts
) -> None:
    """Update some ledgers, no faster than `rate` writes in a second. Raises ShellError."""
    for ledger_id in part:
        counts.issued += 1
        counts.tell(shell)
        try:
            changed = await _update_one(shell, manager, ledger_id, old, new)
        except NoNodeError:
            continue  # deleted meanwhile
        if changed:
            counts.updated += 1
            name = shell.ledger_ids.write(ledger_id)
            shell.output.line(f"Updated ledger {name} metadata, replacing {old} with {new}")
            await trio.sleep(1 / rate)


async def _update_one(shell: Shell, manager: LedgerManager, ledger_id: int, old: str, new: str) -> bool:
    changed = False

    def rule(stored: LedgerMetadata) -> LedgerMetadata | None:
        nonlocal changed
        changed = any(old in each.bookies for each in stored.fragments)
        if not changed:
            return None
        both = [each for each in stored.fragments if old in each.bookies and new in each.bookies]
        if both:
            raise ShellError(
                f"ledger {shell.ledger_ids.write(ledger_id)} has copies on {old} and on {new}: they are two bookies. "
                "Nothing of it was changed"
            )
        fragments = tuple(
            Fragment(each.first_entry_id, tuple(new if name == old else name for name in each.bookies))
            for each in stored.fragments
        )
        return replace(stored, fragments=fragments)

    await manager.update(ledger_id, rule)
    return changed


def _options() -> tuple[CommandOption, ...]:
    return (
        CommandOption(
            name="updatespersec",
            short="s",
            kind=OptionKind.NUMBER,
            default=5,
            minimum=1,
            help="Maximum number of ledgers that are updated in a second.",
        ),
        CommandOption(
            name="maxOutstandingReads",
            short="r",
            kind=OptionKind.NUMBER,
            minimum=1,
            help="Ledgers that are listed ahead of the updates; default: 5 times -updatespersec.",
        ),
        CommandOption(
            name="limit", short="l", kind=OptionKind.NUMBER, minimum=1, help="Maximum number of ledgers to examine."
        ),
        CommandOption(
            name="verbose", short="v", kind=OptionKind.TEXT, help="true: print the numbers every -printprogress."
        ),
        CommandOption(
            name="printprogress",
            short="p",
            kind=OptionKind.NUMBER,
            default=10,
            minimum=1,
            help="With -verbose true: seconds between two lines with the numbers.",
        ),
    )


COMMANDS = (
    Command(
        name="updateledgers",
        help="Replace this bookie's id in the metadata of all ledgers: that of its address by that of its host name, "
        "or the other way round. Run updatecookie too.",
        run=update_ledgers,
        options=(
            CommandOption(
                name="bookieId", short="b", kind=OptionKind.TEXT, required=True, help="The new kind: hostname or ip."
            ),
            *_options(),
        ),
    ),
    Command(
        name="updateBookieInLedger",
        help="Replace a bookie's id in the metadata of all ledgers. Refused while the source bookie runs.",
        run=update_bookie,
        options=(
            CommandOption(name="srcBookie", short="sb", kind=OptionKind.TEXT, required=True, help="The old id."),
            CommandOption(name="destBookie", short="db", kind=OptionKind.TEXT, required=True, help="The new id."),
            *_options(),
        ),
    ),
)
