"""The journals of a bookie that a start would replay, in `quire doctor`. Blocking."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from bookie.journal.format import NO_MARK, LogMark, decode_last_mark
from quire.cli.checkup.verdicts import CheckResult, ok, warning

REPLAYED_WARNING_BYTES: Final = 8 << 30
"""Four full journal files of journalMaxSizeMB's default, which take minutes to replay."""
_SUFFIX: Final = ".txn"


def examine(journals: Sequence[Path], ledgers: Sequence[Path]) -> Iterator[CheckResult]:
    """Yield a verdict for each journal folder that has files."""
    for index, folder in enumerate(journals):
        mark = _mark("lastMark" if len(journals) == 1 else f"lastMark.{index}", ledgers)
        with suppress(OSError):
            sizes = _sizes(folder / "current")
            if sizes:
                yield _judge(folder, sum(_needed(file_id, size, mark) for file_id, size in sizes.items()))


def _judge(folder: Path, needed: int) -> CheckResult:
    what = f"{folder}: a start replays {needed >> 20} MiB of journal"
    if needed < REPLAYED_WARNING_BYTES:
        return ok("journal", what)
    return warning(
        "journal",
        what,
        "A ledger folder does not store its entries, or the files cannot be deleted: see the log for `journal grows` "
        "and `ledger directory`, replace the disk, restart the bookie before the journal's disk is full",
    )


def _mark(name: str, ledgers: Sequence[Path]) -> LogMark:
    """Return the greatest mark of the ledger folders, as a start does."""
    found = NO_MARK
    for folder in ledgers:
        with suppress(OSError):
            mark = decode_last_mark((folder / "current" / name).read_bytes())
            found = found if mark is None else max(found, mark)
    return found


def _sizes(folder: Path) -> dict[int, int]:
    """Return the bytes on disk of each journal file by its id."""
    found: dict[int, int] = {}
    for path in folder.glob(f"*{_SUFFIX}"):
        with suppress(ValueError, FileNotFoundError):
            status = path.stat()
            found[int(path.stem, 16)] = min(status.st_size, 512 * status.st_blocks)
    return found


def _needed(file_id: int, size: int, mark: LogMark) -> int:
    if file_id < mark.file_id:
        return 0
    return max(0, size - mark.offset) if file_id == mark.file_id else size
