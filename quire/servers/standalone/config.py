"""Configuration of `quire standalone`: keys of Pulsar's standalone.conf and of BookKeeper's bk_server.conf, in one
file.

Names are theirs; defaults are ours where theirs ask for gigabytes of memory or give up safety.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from bookie.config import BookieConfig
from broker.config import BrokerOptions
from broker.console.config import ConsoleOptions
from broker.security.authentication.config import AuthenticationOptions
from broker.security.authorization.config import AuthorizationOptions
from broker.series.config import MetricsOptions
from broker.tracing.config import TracingOptions
from cursors.config import CursorConfig
from managed_ledger.config import ManagedLedgerConfig
from quire.servers.broker.deletion import DeletionKeys
from quire.servers.broker.listening import ListenConfig
from quire.servers.broker.tiered_storage import TieredStorageKeys
from quire.servers.broker.tls_keys import ServerTlsKeys
from quire.service.config import Bounds
from quire.service.log_config import LogKeys
from quire.service.process_conf import Change, Process
from quire.service.properties import Grammar
from quire.service.unsupported import STANDALONE_RULES


@dataclass(frozen=True, slots=True, kw_only=True)
class StandaloneConfig:
    """Configuration of the rooms of a standalone server. Raises ValueError if the rooms contradict each other."""

    listen: ListenConfig
    tls: ServerTlsKeys
    broker: BrokerOptions
    authorization: AuthorizationOptions
    logs: ManagedLedgerConfig
    cursors: CursorConfig
    bookie: BookieConfig
    tiered: TieredStorageKeys
    deletion: DeletionKeys
    metrics: MetricsOptions
    tracing: TracingOptions
    console: ConsoleOptions
    authentication: AuthenticationOptions
    log: LogKeys

    def __post_init__(self) -> None:
        if self.listen.has_tls:
            self.tls.options()
            self.tls.options(web=True)


_HEAD: Final = """Configuration of `quire standalone`: every key with its default.
Names are Pulsar's and BookKeeper's; a standalone.conf written for Pulsar is read unchanged. The end of this file has
the effect of all other keys. A name that no version of them has is an error. The last value of a key wins."""

STANDALONE: Final = Process(
    "standalone",
    StandaloneConfig,
    Grammar.JAVA,
    STANDALONE_RULES,
    head=_HEAD,
    changes={
        "journalMaxSizeMB": Change(default=256, bounds=Bounds(1)),
        "journalMaxBackups": Change(default=1),
        "journalPreAllocSizeMB": Change(bounds=Bounds(1)),
        "journalSyncData": Change(
            doc="false: answer before the sync. A power cut then loses acknowledged messages.",
        ),
        "logSizeLimit": Change(bounds=Bounds(1 << 20, 1 << 30)),
        # As Pulsar's file: the disk of a single machine has other users too.
        "diskUsageThreshold": Change(default=0.99),
        "diskUsageWarnThreshold": Change(default=0.99),
        "localScrubInterval": Change(
            doc="Seconds between the beginnings of two scrubs, which read every stored entry, verify it, and report a "
            "damaged one: there is no other copy. 0: only when asked (PUT /api/v1/bookie/scrub).",
        ),
        "maxPendingReadRequestsPerThread": Change(doc="Maximum concurrent reads from disk; more are refused."),
    },
    fixed={
        # One bookie, so one copy, in the folder that --data-dir names.
        "managedLedgerDefaultEnsembleSize": 1,
        "managedLedgerDefaultWriteQuorum": 1,
        "managedLedgerDefaultAckQuorum": 1,
        "bookieId": "standalone:3181",
        "bookiePort": None,
        "journalDirectories": None,
        "ledgerDirectories": None,
        "indexDirectories": None,
        # No client but our own.
        "nettyMaxFrameSizeBytes": None,
        "maxBatchReadSize": None,
        "numReadWorkerThreads": None,
        "numHighPriorityWorkerThreads": None,
        "dbStorage_maxThrottleTimeMs": None,
        "quireMaxLongPolls": None,
        "allowStorageExpansion": None,
        "quireJournalBacklogMaxMb": None,
        "forceReadOnlyBookie": None,
        # There is no other bookie.
        "gcOverreplicatedLedgerWaitTime": None,
        "gcOverreplicatedLedgerMaxConcurrentRequests": None,
        "serverTcpNoDelay": None,
        "serverSockKeepalive": None,
        "serverTcpKeepIdle": None,
        "serverTcpKeepIntvl": None,
        "serverTcpKeepCnt": None,
        "serverTcpLinger": None,
        "serverWriteBufferHighWaterMark": None,
        "serverWriteBufferLowWaterMark": None,
        "waitTimeoutOnResponseBackpressureMs": None,
        "closeChannelOnResponseTimeout": None,
        "maxAddsInProgressLimit": None,
        "maxReadsInProgressLimit": None,
        "maxPendingAddRequestsPerThread": None,
        # No other bookie to copy from.
        "dataIntegrityChecking": None,
        "journalWriteData": None,
        "dataIntegrityStampMissingCookies": None,
        "quireDataIntegrityRateMb": None,
    },
)
