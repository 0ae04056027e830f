"""Ledger metadata as brokers show them, and which entries of a plan are read from bookies."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import pytest

from broker.admin.stats.internal_stats import _text
from quire.metadata.ledger_metadata import Fragment, LedgerMetadata, LedgerState
from quire.spark.errors import OptionError
from quire.spark.options.parse import Options, ReadVia
from quire.spark.planning.fragments import Fragments
from quire.spark.planning.logs import LedgerRange, LedgerSize, PartitionLog
from quire.spark.planning.stored import StoredLedger, choose, parse_metadata, stored_ledgers, why_not
from quire.spark.planning.tasks import TopicRange
from quire.wire.bookkeeper.entry import DigestType

TOPIC = "persistent://public/default/x"
CLOSED = LedgerMetadata(
    ensemble_size=3,
    write_quorum=2,
    ack_quorum=1,
    fragments=(Fragment(0, ("a:1", "b:2", "c:3")), Fragment(7, ("a:1", "d:4", "c:3"))),
    state=LedgerState.CLOSED,
    last_entry_id=9,
    length=1234,
)
OPEN = replace(CLOSED, state=LedgerState.OPEN, last_entry_id=-1, length=0)
SHOWN = (
    "LedgerMetadata{formatVersion=3, ensembleSize=3, writeQuorumSize=2, ackQuorumSize=1, state=CLOSED, length=1234, "
    "lastEntryId=9, digestType=CRC32C, password=OMITTED, ensembles={0=[a:1, b:2, c:3], 7=[a:1, d:4, c:3]}, "
    "customMetadata={component=base64:bWFuYWdlZC1sZWRnZXI=, state=base64:eA==}}"
)
"""As Apache Pulsar shows it."""


def local(metadata: LedgerMetadata, bookie: str) -> LedgerMetadata:
    return replace(metadata, ensemble_size=1, write_quorum=1, ack_quorum=1, fragments=(Fragment(0, (bookie,)),))


def test_metadata_are_read_as_the_original_and_as_quire_shows_them() -> None:
    assert parse_metadata(SHOWN) == CLOSED
    assert parse_metadata(_text(CLOSED)) == CLOSED
    assert parse_metadata(_text(OPEN)) == OPEN
    recovering = replace(OPEN, state=LedgerState.IN_RECOVERY)
    assert parse_metadata(_text(recovering)) == recovering


@pytest.mark.parametrize("text", ["", "x", "LedgerMetadata{state=OPEN}", SHOWN.replace("CRC32C", "NEW"), SHOWN[:140]])
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="ledger metadata"):
        parse_metadata(text)


def test_ledgers_with_metadata_are_on_bookies_offloaded_or_not() -> None:
    ledgers = [
        {"ledgerId": 1, "metadata": SHOWN, "offloaded": False},
        {"ledgerId": 2, "metadata": SHOWN, "offloaded": True},
        {"ledgerId": 3, "metadata": ""},
        {"ledgerId": 4, "metadata": "Ledger metadata not found"},
    ]
    assert stored_ledgers({"ledgers": ledgers}) == {each: StoredLedger(each, CLOSED) for each in (1, 2)}
    assert stored_ledgers({}) == {}


@pytest.mark.parametrize(
    ("metadata", "is_local", "reason"),
    [
        (CLOSED, False, None),
        (replace(CLOSED, digest_type=DigestType.HMAC), False, "need the ledger's password"),
        (replace(CLOSED, digest_type=DigestType.CRC32), False, None),
        (local(CLOSED, "standalone:3181"), True, "standalone server"),
        (local(CLOSED, "bookie-with-a-name"), False, "is not its address"),
        (local(CLOSED, "127.0.0.1:3181"), False, "loopback address of another machine"),
        (local(CLOSED, "localhost:3181"), False, "loopback address of another machine"),
        (local(CLOSED, "127.0.0.1:3181"), True, None),
    ],
)
def test_a_ledger_is_left_to_the_broker_for_a_reason(
    metadata: LedgerMetadata, is_local: bool, reason: str | None
) -> None:
    found = why_not(StoredLedger(5, metadata), local=is_local)
    assert (found is None) == (reason is None)
    assert (reason or "") in (found or "")


RANGES = (LedgerRange(1, 3, 9), LedgerRange(2, 0, 9), LedgerRange(3, 0, 4))
KNOWN = {1: StoredLedger(1, CLOSED), 2: StoredLedger(2, CLOSED), 3: StoredLedger(3, OPEN)}


@pytest.mark.parametrize(
    ("read_via", "ids"), [("auto", [1, 2]), ("bookies", [1, 2, 3]), ("broker", [])], ids=["auto", "bookies", "broker"]
)
def test_each_way_has_its_ledgers(read_via: ReadVia, ids: list[int]) -> None:
    found = choose(RANGES, KNOWN, tail=3, read_via=read_via, local=False)
    assert [ledger.ledger_id for ledger in found.ledgers] == ids
    assert found.refused == ()


def test_a_ledger_in_the_middle_that_is_still_open_is_the_brokers() -> None:
    known = {**KNOWN, 2: StoredLedger(2, OPEN)}
    assert [each.ledger_id for each in choose(RANGES, known, tail=3, read_via="auto", local=False).ledgers] == [1]


def test_a_range_behind_the_end_of_a_closed_ledger_is_the_brokers() -> None:
    ranges = (LedgerRange(1, 3, 10), LedgerRange(2, 0, 9))
    for read_via in ("auto", "bookies"):
        found = choose(ranges, KNOWN, tail=3, read_via=read_via, local=False)
        assert [ledger.ledger_id for ledger in found.ledgers] == [2]


# The shell


class Brokers:
    """Answers of the REST interface, and the requests."""

    def __init__(self, metadata: LedgerMetadata) -> None:
        self.metadata = metadata
        self.asked: list[tuple[str, ...]] = []

    def many_internal_stats(self, topics: Any, *, metadata: bool = False) -> list[dict[str, Any] | None]:
        assert metadata
        self.asked.append(tuple(topics))
        ledgers = [{"ledgerId": number, "metadata": _text(self.metadata)} for number in (1, 2)]
        return [{"ledgers": [*ledgers, {"ledgerId": 3, "metadata": _text(OPEN)}]} for _ in topics]


def fragments(brokers: Brokers, **options: str) -> Fragments:
    return Fragments(Options.parse({"topic": "x", "service.url": "pulsar://far", **options}, use="batch"), brokers)


LOG = {TOPIC: PartitionLog(TOPIC, tuple(LedgerSize(number, 10, 100) for number in (1, 2, 3)), (3, 9))}
WORK = TopicRange(partition=TOPIC, ranges=RANGES)


def test_brokers_are_asked_once_for_closed_ledgers_and_not_at_all_for_the_tail() -> None:
    brokers = Brokers(CLOSED)
    made = fragments(brokers)
    tail = replace(WORK, ranges=RANGES[2:])
    assert made.attach([tail], LOG) == [tail]
    assert brokers.asked == []
    for _ in range(2):
        [task] = made.attach([WORK], LOG)
        assert [ledger.ledger_id for ledger in task.stored] == [1, 2]
    assert brokers.asked == [(TOPIC,)]
    assert pickle.loads(pickle.dumps(task)) == task


def test_with_the_option_broker_nothing_is_asked() -> None:
    brokers = Brokers(CLOSED)
    assert fragments(brokers, readVia="broker").attach([WORK], LOG) == [WORK]
    assert brokers.asked == []


def test_a_standalone_server_is_read_through_the_broker_or_refused(caplog: pytest.LogCaptureFixture) -> None:
    brokers = Brokers(local(CLOSED, "standalone:3181"))
    made = fragments(brokers)
    for _ in range(2):
        assert made.attach([WORK], LOG) == [WORK]
    assert len(caplog.records) == 1
    assert "standalone server" in caplog.text
    with pytest.raises(
        OptionError, match=r"option 'readVia' is 'bookies': the bookie of a standalone server .* give broker"
    ):
        fragments(brokers, readVia="bookies").attach([WORK], LOG)
