"""Settings of a broker about the life of topics: how much they may hold, how fast they may be used, when they come and
go. Part of BrokerOptions."""

from __future__ import annotations

from dataclasses import dataclass

from quire.service.config import BYTES, SECONDS, conf_key

HOLD = "producer_request_hold"
EXCEPTION = "producer_exception"
EVICTION = "consumer_backlog_eviction"
QUOTA_POLICIES = (HOLD, EXCEPTION, EVICTION)
"""Fate of a topic above its quota. Source: the original's BacklogQuota.RetentionPolicy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LifeOptions:
    """Options about the life of topics; 0 switches a limit off where noted."""

    quota_check: bool = conf_key(
        "backlogQuotaCheckEnabled",
        True,
        doc="Check the backlogs of topics periodically against their quotas. false: only new producers are checked.",
    )
    quota_check_interval_s: float = conf_key(
        "backlogQuotaCheckIntervalInSeconds",
        60,
        unit=SECONDS,
        minimum=1,
        doc="Seconds between two checks of all backlogs.",
    )
    quota_bytes: int = conf_key(
        "backlogQuotaDefaultLimitBytes",
        -1,
        unit=BYTES,
        minimum=-1,
        doc="Bytes that the slowest subscription of a topic may be behind. Namespaces and topics may have another "
        "(backlogQuota). -1: no limit.",
    )
    quota_gb: float = conf_key(
        "backlogQuotaDefaultLimitGB",
        -1,
        minimum=-1,
        doc="The same in gigabytes; above 0 it counts instead of backlogQuotaDefaultLimitBytes.",
    )
    quota_seconds: int = conf_key(
        "backlogQuotaDefaultLimitSecond",
        -1,
        unit=SECONDS,
        minimum=-1,
        doc="Age of the oldest message that a durable subscription may have left unacknowledged. Namespaces and topics "
        "may have another (backlogQuota). 0 or -1: no limit.",
    )
    quota_policy: str = conf_key(
        "backlogQuotaDefaultRetentionPolicy",
        HOLD,
        choices=QUOTA_POLICIES,
        doc="What becomes of a topic above its quota: producer_request_hold (its producers wait), producer_exception "
        "(their messages fail) or consumer_backlog_eviction (the oldest messages count as acknowledged).",
    )
    quota_precise_age: bool = conf_key(
        "preciseTimeBasedBacklogQuotaCheck",
        False,
        doc="true: the age of a message counts from its publish time, which is read. false: from the closing of its "
        "ledger.",
    )

    @property
    def quota_bytes_max(self) -> int:
        """Bytes of backlog that a topic may have; below 0: no limit."""
        return int(self.quota_gb * (1 << 30)) if self.quota_gb > 0 else self.quota_bytes
