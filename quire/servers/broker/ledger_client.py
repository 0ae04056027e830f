"""Keys of Pulsar's broker.conf about the bookies' client of a broker, and what that client is made with."""

from __future__ import annotations

from dataclasses import dataclass

from quire.ledger.bookies.watcher import WatcherConfig
from quire.ledger.context import LedgerConfig
from quire.ledger.placement import PlacementConfig
from quire.ledger.read_config import ReadConfig
from quire.service.config import MS_IN_S, SECONDS, conf_key
from quire.wire.bookkeeper import v2


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerClientKeys:
    """How bookies are written to and read, and when one gets no new ledgers. The client itself has other keys in other
    programs."""

    timeout_s: int = conf_key(
        "bookkeeperClientTimeoutInSeconds",
        30,
        unit=SECONDS,
        minimum=1,
        doc="A bookie that has not answered for so long has failed; a writer replaces it.",
    )
    v2_protocol: bool = conf_key(
        "bookkeeperUseV2WireProtocol", True, doc="false: speak version 3 of the bookies' protocol only."
    )
    speculative_read_s: float = conf_key(
        "bookkeeperClientSpeculativeReadTimeoutInMillis",
        0,
        unit=MS_IN_S,
        minimum=0,
        doc="A read that takes longer is sent to the next bookie too. 0: as soon as that is known to be faster.",
    )
    sticky_reads: bool = conf_key(
        "bookkeeperEnableStickyReads", True, doc="Read a ledger from one bookie, whose read-ahead then helps."
    )
    reorder_reads: bool = conf_key(
        "bookkeeperClientReorderReadSequenceEnabled", True, doc="Bookies that failed or were slow are asked last."
    )
    explicit_lac_s: float = conf_key(
        "bookkeeperExplicitLacIntervalInMills",
        0,
        unit=MS_IN_S,
        minimum=0,
        doc="How often a ledger's writer sends its last confirmed entry when no entry has carried it. 0: never.",
    )
    rack_aware: bool = conf_key(
        "bookkeeperClientRackawarePolicyEnabled", True, doc="false: bookies are chosen at random, wherever they are."
    )
    racks_min: int = conf_key(
        "bookkeeperClientMinNumRacksPerWriteQuorum",
        2,
        minimum=1,
        doc="Racks over which the copies of an entry are spread, as far as there are so many.",
    )
    racks_enforced: bool = conf_key(
        "bookkeeperClientEnforceMinNumRacksPerWriteQuorum", False, doc="true: rather no ledger than one on fewer racks."
    )
    health_check: bool = conf_key(
        "bookkeeperClientHealthCheckEnabled", True, doc="Give bookies that fail often no new ledgers for a time."
    )
    health_interval_s: int = conf_key(
        "bookkeeperClientHealthCheckIntervalSeconds",
        60,
        unit=SECONDS,
        minimum=1,
        doc="Interval in which a bookie's errors are counted.",
    )
    health_errors: int = conf_key(
        "bookkeeperClientHealthCheckErrorThresholdPerInterval",
        5,
        minimum=1,
        doc="Errors that are too many for one interval.",
    )
    quarantine_s: int = conf_key(
        "bookkeeperClientHealthCheckQuarantineTimeInSeconds",
        1800,
        unit=SECONDS,
        minimum=1,
        doc="How long it then gets no new ledgers.",
    )
    quarantine_ratio: float = conf_key(
        "bookkeeperClientQuarantineRatio",
        1.0,
        minimum=0,
        maximum=1,
        doc="How probable it is that this broker does so, lest all brokers leave a bookie at once.",
    )

    @property
    def client(self) -> LedgerConfig:
        """Return the configuration of the ledger client."""
        default = ReadConfig()
        return LedgerConfig(
            protocol="v2" if self.v2_protocol else "v3",
            add_timeout_s=self.timeout_s,
            read_timeout_s=self.timeout_s,
            explicit_lac_interval_s=self.explicit_lac_s,
            frame_max=v2.PULSAR_FRAME_MAX,
            pending_bytes_max=None,  # maxMessagePublishBufferSizeInMB bounds all topics together
            reads=ReadConfig(
                speculative_first_s=self.speculative_read_s or default.speculative_first_s,
                speculative_max_s=self.speculative_read_s or default.speculative_max_s,
                sticky=self.sticky_reads,
                reorder=self.reorder_reads,
            ),
            placement=PlacementConfig(
                policy="rack-aware" if self.rack_aware else "random",
                min_racks_per_write_quorum=self.racks_min,
                enforce_min_racks_per_write_quorum=self.racks_enforced,
            ),
        )

    @property
    def watcher(self) -> WatcherConfig:
        """Return the rules by which a bookie gets no new ledgers for a time."""
        return WatcherConfig(
            health_check=self.health_check,
            health_check_interval_s=self.health_interval_s,
            health_check_errors=self.health_errors,
            quarantine_s=self.quarantine_s,
            quarantine_ratio=self.quarantine_ratio,
        )
