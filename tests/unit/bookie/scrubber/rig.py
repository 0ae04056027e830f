"""Members that scrub, and bits of their logs."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from bookie.scrubber.scrubber import Scrubber
from tests.support.waiting import until
from tests.unit.bookie.build import entry
from tests.unit.bookie.integrity.rig import CONFIG, IntegrityCluster, Member

ENTRIES: Final = 20
FOUND: Final = "an entry is damaged, the ledger is to be healed"
FAST: Final = replace(CONFIG, scrub_rate=1000)


async def written(cluster: IntegrityCluster) -> tuple[list[Member], int]:
    """Write a ledger that all three members have in their entry logs."""
    members = await cluster.begin("a", "b", "c", config=FAST)
    ledger_id = await cluster.ledger(*members)
    for member in members:
        await member.add(ledger_id, ENTRIES)
        await member.bookie.checkpoint()
    return members, ledger_id


def logs(member: Member, folder: str = "/ledgers") -> list[str]:
    return [path for path in member.host.disk.paths() if path.startswith(folder) and path.endswith(".log")]


def flip(member: Member, ledger_id: int, entry_id: int, offset: int = 40) -> None:
    """Flip a bit of an entry in its log. `offset`: from the size field on."""
    sealed = entry(ledger_id, entry_id)
    for path in logs(member):
        at = member.host.disk.read(path).find(sealed)
        if at >= 0:
            member.host.disk.flip(path, at - 4 + offset, 3)
            return
    raise AssertionError("the entry is in no log")


def scrubber(member: Member) -> Scrubber:
    assert member.scrubber is not None
    return member.scrubber


async def scrub(member: Member) -> Scrubber:
    """Ask for a round, and wait for its end."""
    made = scrubber(member)
    rounds = made.counts.rounds
    made.ask()
    await until(lambda: made.counts.rounds > rounds, within=600)
    return made
