"""Exclusive use of a bookie's folders: no bookie runs on them, and none starts meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

from bookie.folders import LOCK_FILE
from quire.cli.bookie_in_use import user_of
from quire.cli.shell.context import Shell
from quire.cli.shell.errors import RefusedError, ShellError

_CURRENT: Final = "/current"


def folders(shell: Shell) -> tuple[str, ...]:
    """Return each folder of the configuration once: journals, ledgers, indexes; without `current`."""
    config = shell.config
    found = (*config.journals, *config.ledgers, *config.indexes)
    return tuple(dict.fromkeys(folder.removesuffix(_CURRENT) for folder in found))


def ledger_folders(shell: Shell) -> tuple[tuple[str, str], ...]:
    """Return the folders `current` of entry logs, each with that of its indexes. ShellError if one is missing."""
    pairs = tuple(zip(shell.config.ledgers, shell.config.indexes, strict=True))
    for folder in dict.fromkeys(each for pair in pairs for each in pair):
        if not shell.world.disk.exists(folder):
            raise ShellError(f"there is no folder {folder}")
    return pairs


@contextmanager
def stopped(shell: Shell) -> Iterator[None]:
    """Hold the locks of all folders that exist, until the block ends. Raises RefusedError if a bookie runs on them.

    A bookie of the original takes no such lock: it is known by its open files and its port."""
    disk = shell.world.disk
    existing = [folder for folder in folders(shell) if disk.exists(folder)]
    with ExitStack() as stack:
        for folder in existing:
            try:
                stack.callback(disk.lock(f"{folder}/{LOCK_FILE}").release)
            except BlockingIOError:
                raise RefusedError(f"a bookie runs on {folder}: stop it first; nothing was changed") from None
        if existing and (user := user_of(existing, shell.config.advertised_address, shell.config.port)):
            raise RefusedError(f"{user}: stop it first; nothing was changed")
        try:
            yield
        except BlockingIOError as error:
            raise RefusedError(
                f"{error.filename or 'an index'} is open in another process: stop the bookie first; nothing was changed"
            ) from error
