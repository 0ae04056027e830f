"""Leftovers of a crash, an upgrade, a compaction or a rebuild in a bookie's folders, and pid files without a process.

Each kind has a verdict of its own: most need nothing but the next start, some need a command, and copies that were kept
on purpose fill the disk. Locks are never left over: the kernel drops them with their process. Blocking.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bookie.layouts.detect import BEFORE_FILE, DirectoryLayout, LayoutError, detect
from bookie.layouts.upgrade import DOOMED, TEMPORARY
from quire.cli.checkup import verdicts
from quire.cli.checkup.verdicts import CheckResult, size_text
from quire.cli.daemon.processes import read_pid, serving_pid
from quire.cli.daemon.settings import SERVERS, SettingsError, settings_of
from quire.world.real_disk import RealDisk

SHOWN_MAX: Final = 3
COUNTED_FILES_MAX: Final = 10_000
"""Files of one kept copy whose sizes are added up."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """Names of one kind of leftovers in `current`, and their judgement."""

    pattern: re.Pattern[str]
    what: str
    remedy: str


_NONE_NEEDED: Final = "None is needed: the next start deletes or finishes them"
_KINDS: Final = (
    _Kind(re.compile(r".*\.log\.compacting|.*\.compacted"), "entry logs of a compaction that was cut", _NONE_NEEDED),
    _Kind(
        re.compile(r"(locations|ledgers)\.REBUILT"),
        "an index whose rebuild was killed",
        "Run the rebuild again (quire shell rebuild-db-ledger-locations-index, or -ledgers-index)",
    ),
    _Kind(
        re.compile(r"locations\.BACKUP-.*|ledgers\.PREV-.*"),
        "old indexes that a rebuild kept",
        "Delete them (rm -r) when the bookie serves and quire shell localconsistencycheck passes",
    ),
    _Kind(
        re.compile(r".*\.backup"),
        "old indexes that a conversion kept",
        "Delete them (rm -r) when the other storage serves; they are needed for no way back",
    ),
)


def examine(folders: Iterable[Path], environment: Mapping[str, str]) -> Iterator[CheckResult]:
    """Yield the verdicts about what is left in a bookie's folders, which contain `current`, and of its pid files."""
    found: dict[_Kind, list[Path]] = {}
    for folder in folders:
        current = folder / "current"
        names = sorted(os.listdir(current)) if current.is_dir() else []
        for name in names:
            kind = next((each for each in _KINDS if each.pattern.fullmatch(name)), None)
            if kind is not None:
                found.setdefault(kind, []).append(current / name)
        yield from _upgrade(folder)
    for kind, paths in found.items():
        yield verdicts.warning("leftovers", f"{kind.what}: {_named(paths)}", kind.remedy)
    yield from pid_files(environment)


def layout(folders: Iterable[Path]) -> Iterator[CheckResult]:
    """Yield bad verdicts about folders in an old layout, or with the index of another storage."""
    from bookie.interleaved.index_files import has_index_files

    disk = RealDisk()
    for folder in folders:
        try:
            found = detect(disk, str(folder))
        except (LayoutError, OSError) as error:
            yield verdicts.bad("layout", str(error), "Bring the folder back from a copy, or rebuild the bookie")
            continue
        if found.needs_upgrade:
            yield verdicts.bad(
                "layout",
                f"{folder} has layout {found.version or found.old_version}, of an old version",
                "quire upgrade --upgrade --conf FILE (docs/operating.md)",
            )
        current = folder / "current"
        if current.is_dir() and has_index_files(disk, str(current)):
            yield verdicts.bad(
                "layout",
                f"{current} has index files of SortedLedgerStorage or InterleavedLedgerStorage",
                "quire shell convert-to-db-storage, before the first start",
            )


def pid_files(environment: Mapping[str, str]) -> Iterator[CheckResult]:
    """Yield a warning about each pid file of `quire daemon` without its process."""
    for server in SERVERS:
        try:
            path = settings_of(server, {**environment, "BOOKIE_CONF": ""}).pid_file
        except SettingsError:
            return  # `quire daemon` names the variable
        try:
            if path.exists() and serving_pid(path) is None:
                yield verdicts.warning(
                    "leftovers",
                    f"{path} is stale: {read_pid(path)} is not the {server}",
                    f"None is needed: the next start replaces it; quire daemon stop {server} deletes it",
                )
        except OSError as error:
            yield verdicts.warning("leftovers", f"{path} cannot be read: {error.strerror}", "Correct its permissions")


def _upgrade(folder: Path) -> Iterator[CheckResult]:
    """Yield the verdicts about steps of `quire upgrade`."""
    for name in (TEMPORARY, DOOMED):
        if (folder / name).exists():
            yield verdicts.bad(
                "leftovers",
                f"{folder / name}: an upgrade or a rollback was killed",
                "Run the same step of quire upgrade again: it finishes",
            )
    try:
        found = detect(RealDisk(), str(folder))
    except (LayoutError, OSError):
        found = DirectoryLayout(0, 0)  # reported as layout
    if found.is_upgraded:
        kept = [folder / name for name in found.old_files] or [folder / "current" / BEFORE_FILE]
        yield verdicts.warning(
            "leftovers",
            f"files before an upgrade: {_named(kept)}",
            "quire upgrade --finalize, when the bookie serves; no rollback is possible after that",
        )


def _named(paths: list[Path]) -> str:
    """Return the first paths, the number of the others, and the size of all."""
    more = f" and {len(paths) - SHOWN_MAX} more" if len(paths) > SHOWN_MAX else ""
    return f"{', '.join(map(str, paths[:SHOWN_MAX]))}{more} ({size_text(sum(map(_size, paths)))})"


def _size(path: Path) -> int:
    try:
        if not path.is_dir():
            return path.lstat().st_size
        size = 0
        for number, each in enumerate(path.rglob("*")):
            if number >= COUNTED_FILES_MAX:
                break
            size += each.lstat().st_size
        return size
    except OSError:
        return 0
