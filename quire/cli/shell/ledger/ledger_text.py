"""Ledger metadata as text and as JSON (pure).

Source: the toString of BookKeeper's LedgerMetadataImpl, as its shell prints it (tests/golden/bookkeeper/db/shell).
"""

from __future__ import annotations

from base64 import b64encode
from typing import Any

from quire.metadata.ledgers import LedgerMetadata, LedgerState
from quire.wire.bookkeeper.entry import DIGEST_TYPES

DIGEST_NAMES = {digest: name for name, digest in DIGEST_TYPES.items()}


def metadata_text(metadata: LedgerMetadata) -> str:
    """Return one line in the original's form."""
    parts = [
        f"formatVersion={metadata.format_version}",
        f"ensembleSize={metadata.ensemble_size}",
        f"writeQuorumSize={metadata.write_quorum}",
        f"ackQuorumSize={metadata.ack_quorum}",
        f"state={metadata.state.name}",
    ]
    if metadata.state is LedgerState.CLOSED:
        parts += [f"length={metadata.length}", f"lastEntryId={metadata.last_entry_id}"]
    if metadata.password_known:
        parts += [f"digestType={DIGEST_NAMES[metadata.digest_type]}", f"password=base64:{_base64(metadata.password)}"]
    ensembles = ", ".join(f"{each.first_entry_id}=[{', '.join(each.bookies)}]" for each in metadata.fragments)
    custom = ", ".join(f"{key}=base64:{_base64(value)}" for key, value in metadata.custom_metadata)
    parts += [f"ensembles={{{ensembles}}}", f"customMetadata={{{custom}}}"]
    return f"LedgerMetadata{{{', '.join(parts)}}}"


def metadata_value(metadata: LedgerMetadata) -> dict[str, Any]:
    """Return the same for JSON; bytes in base64."""
    value: dict[str, Any] = {
        "formatVersion": metadata.format_version,
        "ensembleSize": metadata.ensemble_size,
        "writeQuorumSize": metadata.write_quorum,
        "ackQuorumSize": metadata.ack_quorum,
        "state": metadata.state.name,
    }
    if metadata.state is LedgerState.CLOSED:
        value |= {"length": metadata.length, "lastEntryId": metadata.last_entry_id}
    if metadata.password_known:
        value |= {"digestType": DIGEST_NAMES[metadata.digest_type], "password": _base64(metadata.password)}
    if metadata.ctime_ms >= 0:
        value["ctime"] = metadata.ctime_ms
    value["ensembles"] = {str(each.first_entry_id): list(each.bookies) for each in metadata.fragments}
    value["customMetadata"] = {key: _base64(item) for key, item in metadata.custom_metadata}
    return value


def _base64(data: bytes) -> str:
    return b64encode(data).decode("ascii")
