"""A bookie with two journals and three ledger directories."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from bookie.bookie import Bookie
from bookie.journal.format import LogMark, decode_last_mark
from quire.world.doors import World
from tests.unit.bookie.build import CONFIG, Client

JOURNALS: Final = ("/data/journal0", "/data/journal1")
LEDGERS: Final = ("/data/ledgers0", "/data/ledgers1", "/data/ledgers2")
SPREAD: Final = replace(CONFIG, journal_directories=JOURNALS, ledger_directories=LEDGERS)
ALL: Final = range(6)
"""Ledgers of which each pair of journal and directory has one."""


async def fill(client: Client, entries: int = 3, first: int = 0) -> None:
    for ledger_id in ALL:
        await client.add(ledger_id, first, entries)


async def holds(client: Client, entries: int = 3) -> None:
    for ledger_id in ALL:
        await client.holds(ledger_id, range(entries))


def marks(world: World, directory: int) -> list[LogMark | None]:
    """Return the marks that a ledger directory has, by journal."""
    current = f"{LEDGERS[directory]}/current"
    return [decode_last_mark(world.disk.read(f"{current}/lastMark.{number}")) for number in range(2)]


def break_flush(bookie: Bookie, directory: int, error: Exception) -> Callable[[], None]:
    """Make the flushes of a directory fail; return what repairs it."""
    logs = bookie.storage.directories[directory]._logs
    append = logs.append

    def fail(runs: object) -> object:
        raise error

    def repair() -> None:
        logs.append = append  # type: ignore[method-assign]

    logs.append = fail  # type: ignore[assignment,method-assign]
    return repair
