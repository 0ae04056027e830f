from __future__ import annotations

from dataclasses import replace

import pytest

from autorecovery.removal.ledger_scan import has_entries_on
from quire.cli.shell.ledger.ledger_text import metadata_text, metadata_value
from quire.metadata.ledgers import Fragment, LedgerMetadata, LedgerState
from quire.wire.bookkeeper.entry import DigestType

OPEN = LedgerMetadata(
    ensemble_size=3,
    write_quorum=2,
    ack_quorum=2,
    fragments=(Fragment(0, ("a", "b", "c")), Fragment(3, ("a", "d", "c"))),
    digest_type=DigestType.HMAC,
    password=b"golden",
    custom_metadata=(("application", b"x"),),
)


def closed(last: int, metadata: LedgerMetadata = OPEN) -> LedgerMetadata:
    return replace(metadata, state=LedgerState.CLOSED, last_entry_id=last, length=max(0, 10 * (last + 1)))


def test_an_open_ledger_shows_no_end() -> None:
    assert metadata_text(OPEN) == (
        "LedgerMetadata{formatVersion=3, ensembleSize=3, writeQuorumSize=2, ackQuorumSize=2, state=OPEN, "
        "digestType=MAC, "
        "password=base64:Z29sZGVu, ensembles={0=[a, b, c], 3=[a, d, c]}, customMetadata={application=base64:eA==}}"
    )
    assert "lastEntryId" not in metadata_value(OPEN)


def test_a_closed_ledger_shows_its_end() -> None:
    assert "state=CLOSED, length=50, lastEntryId=4, digestType" in metadata_text(closed(4))
    value = metadata_value(closed(4))
    assert (value["state"], value["lastEntryId"], value["length"]) == ("CLOSED", 4, 50)
    assert value["ensembles"] == {"0": ["a", "b", "c"], "3": ["a", "d", "c"]}
    assert value["customMetadata"] == {"application": "eA=="}


def test_what_the_metadata_does_not_keep_is_not_shown() -> None:
    old = replace(OPEN, password_known=False, format_version=1, ack_quorum=2)
    assert "password" not in metadata_text(old)
    assert "digestType" not in metadata_value(old)


@pytest.mark.parametrize(
    ("metadata", "holders"),
    [
        (OPEN, "abcd"),  # c holds entries 1 and 2; what comes may go to any of the last ensemble
        (closed(-1, replace(OPEN, fragments=OPEN.fragments[:1])), ""),
        (closed(0, replace(OPEN, fragments=OPEN.fragments[:1])), "ab"),
        (closed(1, replace(OPEN, fragments=OPEN.fragments[:1])), "abc"),
        (closed(2), "abc"),
        (closed(3), "abcd"),
    ],
)
def test_a_member_of_an_ensemble_may_have_no_entries(metadata: LedgerMetadata, holders: str) -> None:
    assert "".join(name for name in "abcdx" if has_entries_on(metadata, name)) == holders
