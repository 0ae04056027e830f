"""Settings of cursors."""

from __future__ import annotations

from dataclasses import dataclass

from quire.service.config import MS, SECONDS, conf_key


@dataclass(frozen=True, slots=True, kw_only=True)
class CursorConfig:
    """Configuration of cursors. Keys have Pulsar's names; keys that Pulsar lacks are Quire's."""

    ensemble_size: int = 2
    write_quorum: int = 2
    ack_quorum: int = 2
    """Quorums of new cursor ledgers: those of the managed ledgers."""
    placement: tuple[tuple[str, bytes], ...] = ()
    """Custom metadata that says which bookies new ledgers may be on."""
    entries_max: int = conf_key(
        "managedLedgerCursorMaxEntriesPerLedger",
        50_000,
        minimum=1,
        doc="Number of stored positions after which a subscription begins its next cursor ledger.",
    )
    age_max_s: int = conf_key(
        "managedLedgerCursorRolloverTimeInSeconds",
        14_400,
        minimum=1,
        unit=SECONDS,
        doc="Age of a cursor ledger at which a subscription begins the next one.",
    )
    node_ranges_max: int = conf_key(
        "managedLedgerMaxUnackedRangesToPersistInMetadataStore",
        1000,
        minimum=0,
        doc="Ranges of acknowledged entries that are stored in a subscription's node when it is closed; with "
        "more, they are in its ledger.",
    )
    ranges_max: int = conf_key(
        "managedLedgerMaxUnackedRangesToPersist",
        10_000,
        minimum=0,
        doc="Ranges of acknowledged entries above which a Shared or Key_Shared subscription is given nothing new "
        "where dispatcherPauseOnAckStatePersistentEnabled is true. More of them are stored all the same, as far as "
        "they fit one entry of the subscription's ledger.",
    )
    flush_delay_ms: int = conf_key(
        "quireCursorFlushDelayMillis",
        10,
        minimum=0,
        unit=MS,
        doc="Maximum time that acknowledgements without a request id stay in memory, in milliseconds. Those "
        "with one are written at once.",
    )
    retry_timeout_s: int = 60
    """Seconds for which storing a position is tried again before the requests that wait for it fail; as long as a
    ledger's start."""
