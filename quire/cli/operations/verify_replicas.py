"""verify-replicas: read every copy of every ledger.

With `--progress-file` a run that was cut goes on where it was: what is kept is the first ledger that is not done, and
what was found before it. With `--mark` ledgers with bad copies are handed to auto recovery.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import trio

from quire.cli.operations.context import OperationContext
from quire.cli.operations.verification import LedgerReport, ReadTotals, Verifier
from quire.cli.shell.errors import ShellError
from quire.cli.shell.repair.marks import marks_of
from quire.world.tasks import for_each

LEDGERS_AT_ONCE = 8
SAVE_S = 2.0
SHOWN_MAX = 20
"""Maximum bad ledgers listed in the text output."""
VERSION = 1


class Progress:
    """Progress of a run: ledgers begin in ascending order of ids, and end in any order."""

    def __init__(self, first: int = 0, totals: ReadTotals | None = None) -> None:
        self.totals = totals or ReadTotals()
        self._first = first
        self._under_way: dict[int, LedgerReport | None] = {}
        """By ledger, in order: started ones, None while not done."""

    @property
    def next_ledger(self) -> int:
        """Return the ledger before which every ledger is done."""
        return self._first

    def begin(self, ledger_ids: Iterable[int]) -> Iterator[int]:
        """Yield these ledgers, by ascending id; each is started when it is taken."""
        for ledger_id in ledger_ids:
            self._under_way[ledger_id] = None
            yield ledger_id

    def done(self, report: LedgerReport) -> None:
        self._under_way[report.ledger_id] = report
        while self._under_way:
            ledger_id, found = next(iter(self._under_way.items()))
            if found is None:
                return
            del self._under_way[ledger_id]
            self._first = ledger_id + 1
            self.totals.add(found.totals)

    def to_json(self) -> dict[str, Any]:
        return {"version": VERSION, "nextLedger": self._first, "totals": self.totals.to_json()}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Progress:
        if value["version"] != VERSION:
            raise ShellError("the progress file was written by another version: remove it")
        return cls(value["nextLedger"], ReadTotals.from_json(value["totals"]))


async def verify_replicas(
    operation: OperationContext,
    *,
    ledger_ids: Sequence[int] = (),
    progress_file: Path | None = None,
    at_once: int = LEDGERS_AT_ONCE,
    mark: bool = False,
) -> ReadTotals:
    """Verify all ledgers, or these. Raises ShellError; MetadataError."""
    shell, output = operation.shell, operation.output
    progress = load(progress_file)
    if progress.next_ledger:
        output.note(f"continuing with ledger {progress.next_ledger}; {progress.totals.ledgers} were read before")
    if operation.dry_run:
        count = len(await _wanted(operation, ledger_ids, progress.next_ledger))
        output.tell(f"{count} ledgers would be read", ledgers=count, dryRun=True)
        return ReadTotals()
    shown = 0
    saved = trio.current_time()
    async with shell.client(operation.store) as client:
        verifier = Verifier(client, password=shell.config.password.encode(), digest_type=shell.config.digest)
        marks = marks_of(shell, operation.store)
        if mark:
            await marks.prepare()
        copies = progress.totals.copies
        with output.progress("copies read") as told:

            def moved(count: int) -> None:
                nonlocal copies
                copies += count
                told(copies)

            async def one(ledger_id: int) -> None:
                nonlocal shown, saved
                report = await verifier.verify(ledger_id, moved)
                if not report.good:
                    shown += 1
                    if output.as_json:
                        output.value(**report.to_json())
                    elif shown <= SHOWN_MAX:
                        output.line("\n".join(report.lines()))
                    if mark and report.bad_counts:
                        await marks.mark(ledger_id, sorted(report.bad_counts))
                progress.done(report)
                if progress_file is not None and trio.current_time() - saved >= SAVE_S:
                    saved = trio.current_time()
                    save(progress, progress_file)

            try:
                wanted = await _wanted(operation, ledger_ids, progress.next_ledger)
                await for_each(progress.begin(wanted), one, at_once=at_once, name="verification")
            finally:
                if progress_file is not None:
                    save(progress, progress_file)
    if progress_file is not None:
        forget(progress_file)
    if shown > SHOWN_MAX:
        output.line(f"... and {shown - SHOWN_MAX} more")
    return progress.totals


async def _wanted(operation: OperationContext, ledger_ids: Sequence[int], first: int) -> list[int]:
    """Return the ids from `first` on, ascending: these, or all."""
    if ledger_ids:
        return sorted({each for each in ledger_ids if each >= first})
    manager = await operation.shell.ledgers(operation.store)
    return [each async for each in manager.ledger_ids(first)]


def load(path: Path | None) -> Progress:
    """Load the progress of an earlier run; a new one if there is none. Raises ShellError."""
    if path is None or not path.exists():
        return Progress()
    try:
        return Progress.from_json(json.loads(path.read_text()))
    except (ValueError, KeyError, TypeError) as error:
        raise ShellError(f"{path} is not a progress file: {error!r}") from error


def save(progress: Progress, path: Path) -> None:
    fresh = path.with_name(f"{path.name}.new")
    fresh.write_text(json.dumps(progress.to_json()))
    fresh.replace(path)


def forget(path: Path) -> None:
    path.unlink(missing_ok=True)


def tell(operation: OperationContext, totals: ReadTotals) -> int:
    """Print the last line; return the exit code: 0 if every copy is good."""
    good = not totals.bad_ledgers
    on_the_way = totals.faults.get("open", 0)
    open_text = f", {totals.open_ledgers} of them open" if totals.open_ledgers else ""
    open_text += f" ({on_the_way} copies may be on their way)" if on_the_way else ""
    bad_text = "every copy is good"
    if not good:
        named = ", ".join(f"{count} {name}" for name, count in sorted(totals.faults.items()) if name != "open")
        bad_text = f"{totals.bad_copies} copies of {totals.bad_ledgers} ledgers are bad: {named}"
    text = f"{totals.ledgers} ledgers{open_text}, {totals.copies} copies, {totals.bytes / 1e6:.1f} MB read: {bad_text}"
    operation.output.tell(text, **totals.to_json(), good=good)
    return 0 if good else 1
