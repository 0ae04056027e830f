"""The folders of a bookie or of a standalone server: mounts, devices, room, syncs, clock, leftovers. Blocking."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from quire.cli.checkup import backlog, leftovers, machine, verdicts
from quire.cli.checkup.verdicts import CheckResult, Mount


@dataclass(frozen=True, slots=True, kw_only=True)
class Folders:
    """Folders of one server. `root` is the data directory of a standalone server."""

    journals: tuple[Path, ...] = ()
    ledgers: tuple[Path, ...] = ()
    indexes: tuple[Path, ...] = ()
    root: Path | None = None
    usage_full: float | None = None
    usage_warn: float = 1.0
    """Thresholds of the used fraction; None: they are not for this server."""

    @property
    def all(self) -> tuple[Path, ...]:
        """Each folder once: journals, ledgers, indexes."""
        return tuple(dict.fromkeys((*self.journals, *self.ledgers, *self.indexes)))


def examine(folders: Folders) -> Iterator[CheckResult]:
    """Yield the verdicts. A disk with several of the folders is measured once."""
    mounts: dict[Path, Mount] = {}
    seen: set[str] = set()
    for folder in folders.all:
        at = machine.existing(folder)
        found = machine.mount_of(at)
        if found is not None:
            mounts[folder] = found
            if found.point in seen:
                continue
            seen.add(found.point)
            yield verdicts.mount(str(folder), found)
        yield from _disk(folder, at)
    yield from _devices(folders, mounts)
    if folders.usage_full is not None:
        yield from _usage(folders, folders.usage_full)
    yield from backlog.examine(folders.journals, folders.ledgers)
    yield from leftovers.layout(folders.all)
    newest, changed_s = machine.newest_file(folder / "current" for folder in folders.all)
    if newest:
        yield verdicts.clock_of_files(newest, changed_s - time.time())
    roots = [folders.root] if folders.root is not None else []
    temporary = map(machine.temporary_files, dict.fromkeys([*roots, *folders.all]))
    yield verdicts.leftovers(list(chain.from_iterable(temporary)))
    if folders.all:
        yield from leftovers.examine(folders.all, os.environ)


def _disk(folder: Path, at: Path) -> Iterator[CheckResult]:
    try:
        free, total, files, files_total = machine.space(at)
        yield verdicts.free_space(str(folder), free, total)
        if (inodes := verdicts.files_free(str(folder), files, files_total)) is not None:
            yield inodes
        yield verdicts.sync_speed(str(folder), machine.sync_times(at))
    except OSError as error:
        yield verdicts.bad("space", f"{folder} cannot be written: {error}", f"Create {folder}, owned by Quire's user")


def _devices(folders: Folders, mounts: dict[Path, Mount]) -> Iterator[CheckResult]:
    """Yield the verdicts about journals and entry logs on one device, and about entry logs on one device."""
    for journal in folders.journals:
        for ledgers in folders.ledgers:
            if journal in mounts and ledgers in mounts and journal != ledgers:
                yield verdicts.devices(
                    str(journal),
                    str(ledgers),
                    mounts[journal],
                    mounts[ledgers],
                    standalone=folders.root is not None,
                )
    for kind in (folders.journals, folders.ledgers):
        yield from _shared(kind, mounts)


def _shared(kind: Sequence[Path], mounts: dict[Path, Mount]) -> Iterator[CheckResult]:
    by_device: dict[str, list[Path]] = {}
    for folder in kind:
        if folder in mounts:
            by_device.setdefault(mounts[folder].device, []).append(folder)
    for those in by_device.values():
        if len(those) > 1:
            yield verdicts.one_device([str(each) for each in those], mounts[those[0]].point)


def _usage(folders: Folders, full: float) -> Iterator[CheckResult]:
    for folder in dict.fromkeys((*folders.ledgers, *folders.indexes)):
        try:
            free, total, _, _ = machine.space(machine.existing(folder))
        except OSError:
            continue  # reported with its room
        yield verdicts.usage(str(folder), free, total, full=full, warn=folders.usage_warn)
