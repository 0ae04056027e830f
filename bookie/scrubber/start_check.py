"""Check before a bookie serves (localConsistencyCheckOnStartup): each row of each index leads to its entry.

Source: BookKeeper's BookieImpl.start, which ends the bookie in the same way.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from bookie.bookie import Bookie
from bookie.errors import StorageDamagedError
from bookie.scrubber.rows import ROWS_PER_STEP, DamagedEntry, check_rows
from quire.service.log import get_logger

log = get_logger(__name__)

COPIED: Final = "Start without it and begin a scrub (PUT /api/v1/bookie/scrub), which copies them from other bookies"
LOGGED_MAX: Final = 10
_LEDGERS_PER_STEP: Final = 100


async def check_all(bookie: Bookie, remedy: str = COPIED) -> None:
    """Read every entry that an index names, at full speed. StorageDamagedError if one is not there; OSError.

    `remedy`: what an operator can do, a sentence without its full stop.
    """
    run = bookie.world.offload.run
    damages: list[DamagedEntry] = []
    count = entries = 0
    for storage in bookie.storage.directories:
        position = 0
        while ledgers := await run(
            partial(storage.parts.locations.ledgers_from, position, _LEDGERS_PER_STEP), name="consistency check"
        ):
            for ledger_id in ledgers:
                entry_id = 0
                while entry_id >= 0:
                    look = partial(check_rows, storage.parts, ledger_id, entry_id, ROWS_PER_STEP, None)
                    step = await run(look, name="consistency check")
                    entry_id = step.next_entry
                    entries += step.entries
                    count += len(step.damages)
                    damages += step.damages[: LOGGED_MAX - len(damages)]
            position = ledgers[-1] + 1
    if not count:
        log.info("consistency check passed", entries=entries)
        return
    for damage in damages:
        log.error(
            "an entry is damaged, the bookie does not start with localConsistencyCheckOnStartup=true",
            ledger=damage.ledger_id,
            entry=damage.entry_id,
            entry_log=f"{damage.log_id:x}" if damage.log_id >= 0 else "none",
            reason=damage.reason,
        )
    raise StorageDamagedError(
        f"localConsistencyCheckOnStartup: {count} of {entries} entries are damaged, for example {damages[0].reason}. "
        + remedy
    )
