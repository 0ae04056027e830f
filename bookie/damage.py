"""What is damaged in the folders of a bookie that does not run: for `quire doctor`. Nothing is changed. Blocking.

The same looks as a start takes, all of them and not only up to the first that refuses it. Entry logs are not read: an entry proves
itself by its ids and its digest when it is read.
"""

from __future__ import annotations

from collections.abc import Callable

from bookie.config import BookieConfig
from bookie.db_ledger_storage.forgotten_fences import FILE_NAME, ForgottenFences
from bookie.errors import BookieError, JournalDamagedError
from bookie.recovery import Start, check_journal
from quire.world.damage import Finding
from quire.world.doors import Disk
from quire.world.map_witness import check_map

_SKIP = (
    "Restore it from a copy; or, if other bookies have its ledgers, start once with skipReplayJournalInvalidRecord=true and have them "
    "checked by auto recovery"
)
_COPY = "Restore the folder from a copy; of a bookie of a cluster, its ledgers can be copied from the others"


def check_bookie(disk: Disk, config: BookieConfig, wall_ms: Callable[[], int]) -> list[Finding]:
    """Everything that is found, in the order in which a start would meet it. OSError."""
    findings: list[Finding] = []
    start: Start | None = None
    try:
        start = check_journal(disk, config)
        findings += start.plan.findings
    except JournalDamagedError as error:
        findings.append(Finding(error.path, f"is damaged at offset {error.offset}: {error.reason}", _SKIP))
    has_served = start is None or start.has_served
    current = f"{config.ledger_directory}/current"
    fences = f"{current}/{FILE_NAME}"
    if disk.exists(fences):
        try:
            ForgottenFences(disk, fences, wall_ms).load()
        except BookieError as error:
            findings.append(Finding(fences, "is damaged", str(error)))
    elif start is not None and start.has_seal:
        findings.append(Finding(fences, "is missing", _COPY))
    for name in ("ledgers", "locations"):
        path = f"{config.index_directory or config.ledger_directory}/current/{name}"
        check = check_map(disk, path)
        findings += check.findings
        if check.is_new and has_served and check.damage is None:
            findings.append(Finding(path, "is missing, and the bookie has served before", _COPY))
    return findings
