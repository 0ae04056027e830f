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
    """Keys of writes to bookies, of reads, and of the quarantine of bookies that fail.

    The client itself has other keys in other programs.
    """

    timeout_s: int = conf_key(
        "bookkeeperClientTimeoutInSeconds",
        30,
        unit=SECONDS,
        minimum=1,
        doc="Time without an answer after which a bookie has failed; a writer replaces it.",
    )
    v2_protocol: bool = conf_key(
        "bookkeeperUseV2WireProtocol", True, doc="false: use only version 3 of the bookies' protocol."
    )
    speculative_read_s: float = conf_key(
        "bookkeeperClientSpeculativeReadTimeoutInMillis",
        0,
        unit=MS_IN_S,
        minimum=0,
        doc="Time after which a read is also sent to the next bookie. 0: as soon as measurements show that "
        "this is faster.",
    )
    sticky_reads: bool = conf_key(
        "bookkeeperEnableStickyReads",
        True,
        doc="true: a ledger is read from one bookie, whose read-ahead cache then helps.",
    )
    reorder_reads: bool = conf_key(
        "bookkeeperClientReorderReadSequenceEnabled", True, doc="true: reads use bookies that failed or were slow last."
    )
    explicit_lac_s: float = conf_key(
        "bookkeeperExplicitLacIntervalInMills",
        0,
        unit=MS_IN_S,
        minimum=0,
        doc="Time after which a ledger's writer sends its last confirmed entry in a request of its own, if "
        "no entry has carried it. 0: never.",
    )
    rack_aware: bool = conf_key(
        "bookkeeperClientRackawarePolicyEnabled", True, doc="false: bookies are chosen at random, whatever their racks."
    )
    racks_min: int = conf_key(
        "bookkeeperClientMinNumRacksPerWriteQuorum",
        2,
        minimum=1,
        doc="Minimum number of racks for the copies of an entry, if there are that many.",
    )
    racks_enforced: bool = conf_key(
        "bookkeeperClientEnforceMinNumRacksPerWriteQuorum",
        False,
        doc="true: a ledger that would be on fewer racks is not created.",
    )
    region_aware: bool = conf_key(
        "bookkeeperClientRegionawarePolicyEnabled",
        False,
        doc="true: copies are spread over regions, the first parts of the bookies' locations (/region/rack), and over "
        "racks within them. It counts before bookkeeperClientRackawarePolicyEnabled.",
    )
    disk_weighted: bool = conf_key(
        "bookkeeperDiskWeightBasedPlacementEnabled",
        False,
        doc="true: bookies with more free disk space get more ledgers, up to 3 times as many as the median one.",
    )
    weights_interval_s: int = conf_key(
        "bookkeeperClientGetBookieInfoIntervalSeconds",
        86400,
        unit=SECONDS,
        minimum=1,
        doc="Interval at which bookies are asked for their free disk space.",
    )
    weights_retry_s: int = conf_key(
        "bookkeeperClientGetBookieInfoRetryIntervalSeconds",
        60,
        unit=SECONDS,
        minimum=1,
        doc="Time after which a bookie is asked again that did not answer.",
    )
    health_check: bool = conf_key(
        "bookkeeperClientHealthCheckEnabled",
        True,
        doc="true: bookies that fail often get no new ledgers for some time.",
    )
    health_interval_s: int = conf_key(
        "bookkeeperClientHealthCheckIntervalSeconds",
        60,
        unit=SECONDS,
        minimum=1,
        doc="Interval over which the errors of a bookie are counted.",
    )
    health_errors: int = conf_key(
        "bookkeeperClientHealthCheckErrorThresholdPerInterval",
        5,
        minimum=1,
        doc="Number of errors in one interval at which a bookie gets no more new ledgers.",
    )
    quarantine_s: int = conf_key(
        "bookkeeperClientHealthCheckQuarantineTimeInSeconds",
        1800,
        unit=SECONDS,
        minimum=1,
        doc="Time during which such a bookie gets no new ledgers.",
    )
    quarantine_ratio: float = conf_key(
        "bookkeeperClientQuarantineRatio",
        1.0,
        minimum=0,
        maximum=1,
        doc="Probability that this broker avoids such a bookie, so that not all brokers avoid it at the same time.",
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
                policy="region-aware" if self.region_aware else "rack-aware" if self.rack_aware else "random",
                disk_weighted=self.disk_weighted,
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
            weights_interval_s=self.weights_interval_s,
            weights_retry_s=self.weights_retry_s,
        )
