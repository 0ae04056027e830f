"""Settings of the data integrity check."""

from __future__ import annotations

from dataclasses import dataclass

from quire.service.config import MB, conf_key


@dataclass(frozen=True, kw_only=True)
class IntegrityKeys:
    """Keys of limbo and of the check that ends it. Source of the first two: BookKeeper's ServerConfiguration."""

    integrity_check: bool = conf_key(
        "dataIntegrityChecking",
        False,
        doc="true: a bookie that may have lost data (an older image of a folder, a part of the journal skipped, "
        "an unclean stop with journalSyncData=false or journalWriteData=false) answers 'unknown' for what it lacks, "
        "and copies it from the other bookies; with dataIntegrityStampMissingCookies also one with an empty folder. "
        "false: it does not start after such a loss.",
    )
    integrity_stamp: bool = conf_key(
        "dataIntegrityStampMissingCookies",
        False,
        doc="true, with dataIntegrityChecking: folders that have lost their cookie, because they were emptied or a "
        "disk was replaced, are used again. false: such a bookie does not start.",
    )
    integrity_rate_mb: int = conf_key(
        "quireDataIntegrityRateMb",
        32,
        minimum=0,
        maximum=1 << 20,
        unit=MB,
        doc="Megabytes per second that are copied from other bookies after a loss or damage. 0: no limit.",
    )
