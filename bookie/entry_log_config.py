"""Settings of the entry logs that flushes write: keys and meanings are those of BookKeeper's bk_server.conf."""

from __future__ import annotations

from dataclasses import dataclass

from bookie.db_ledger_storage.log_writing.ledger_logs import LedgerLogOptions
from quire.service.config import SECONDS, conf_key


@dataclass(frozen=True, kw_only=True)  # without slots: one of several bases
class EntryLogConfig:
    """Entry logs: one for all ledgers, or one for each."""

    log_ahead: bool = conf_key(
        "entryLogFilePreallocationEnabled",
        True,
        doc="true: the next entry log is made ahead, when the present one is half full. false: when it is needed.",
    )
    log_per_ledger: bool = conf_key(
        "entryLogPerLedgerEnabled",
        False,
        doc="true: each ledger that is written has an entry log of its own, which is deleted with it, and costs a sync "
        "in each flush; for few ledgers on fast disks. false: all share one.",
    )
    ledger_logs_max: int = conf_key(
        "maximumNumberOfActiveEntryLogs",
        500,
        minimum=1,
        maximum=100_000,
        doc="With entryLogPerLedgerEnabled: entry logs that are written at the same time, each an open file.",
    )
    ledger_log_idle_s: int = conf_key(
        "entrylogMapAccessExpiryTimeInSeconds",
        300,
        minimum=1,
        unit=SECONDS,
        doc="With entryLogPerLedgerEnabled: seconds without an entry after which a ledger's entry log is ended.",
    )
    ledger_logs_counted: int = conf_key(
        "entryLogPerLedgerCounterLimitsMultFactor",
        10,
        minimum=1,
        maximum=1000,
        doc="With entryLogPerLedgerEnabled: the metrics count the entry logs of as many times as many ledgers, for as "
        "many times as long, as the two keys above say.",
    )

    @property
    def ledger_logs(self) -> LedgerLogOptions | None:
        """Bounds of the logs of single ledgers; None: all ledgers share one."""
        if not self.log_per_ledger:
            return None
        return LedgerLogOptions(
            active_max=self.ledger_logs_max, idle_s=self.ledger_log_idle_s, counted_factor=self.ledger_logs_counted
        )

    def check_entry_logs(self, transactional: bool) -> None:
        """Raise ValueError if the settings contradict each other, as with the original."""
        if self.log_per_ledger and transactional:
            raise ValueError(
                "entryLogPerLedgerEnabled and useTransactionalCompaction exclude each other: logs of one ledger are "
                "deleted with it, without copies"
            )
