"""What an operator may set about cursors."""

from __future__ import annotations

from dataclasses import dataclass

from quire.service.config import conf_key


@dataclass(frozen=True, slots=True, kw_only=True)
class CursorConfig:
    """Configuration of cursors. Keys have Pulsar's names; keys that Pulsar lacks are Quire's."""

    ensemble_size: int = conf_key(
        "managedLedgerDefaultEnsembleSize", 2, minimum=1, doc="Bookies that a new ledger is spread over."
    )
    write_quorum: int = conf_key(
        "managedLedgerDefaultWriteQuorum", 2, minimum=1, doc="Bookies that each entry is written to."
    )
    ack_quorum: int = conf_key(
        "managedLedgerDefaultAckQuorum", 2, minimum=1, doc="Bookies that must have an entry on disk before it counts."
    )
    entries_max: int = conf_key(
        "managedLedgerCursorMaxEntriesPerLedger",
        50_000,
        minimum=1,
        doc="Entries after which a cursor goes on in a new cursor ledger.",
    )
    age_max_s: int = conf_key(
        "managedLedgerCursorRolloverTimeInSeconds",
        14_400,
        minimum=1,
        doc="Seconds after which a cursor that is written to goes on in a new cursor ledger.",
    )
    node_ranges_max: int = conf_key(
        "managedLedgerMaxUnackedRangesToPersistInMetadataStore",
        1000,
        minimum=0,
        doc="Acknowledged ranges that are kept in the cursor's node when it is closed; with more, its ledger is kept.",
    )
    flush_delay_ms: int = conf_key(
        "quireCursorFlushDelayMillis",
        10,
        minimum=0,
        doc="Milliseconds after which acknowledgements that nobody waits for are written. Those with a request id are"
        " written at once.",
    )
    retry_timeout_s: int = conf_key(
        "managedLedgerMetadataOperationsTimeoutSeconds",
        60,
        minimum=1,
        doc="Seconds for which storing a position is tried again before those who wait for it are told.",
    )
