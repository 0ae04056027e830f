"""Surveys: every ledger is read once, and what was not read is said."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import trio

from broker.console import cluster_survey
from broker.console.cluster_survey import KEPT_S, Surveys
from quire.ledger.errors import NoSuchLedgerError
from quire.metadata.errors import MalformedMetadataError, MetadataUnavailableError
from quire.metadata.ledger_metadata import Fragment, LedgerMetadata


class FakeLedgers:
    """Ledgers whose reads take a second, so that they overlap."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.failures: dict[int, Exception] = {}
        self.reading = 0
        self.reading_max = 0
        self.read: list[int] = []

    async def list_ledgers(self, first: int = 0) -> AsyncIterator[int]:
        for ledger_id in range(first, self.count):
            yield ledger_id

    async def read_metadata(self, ledger_id: int) -> LedgerMetadata:
        self.reading += 1
        self.reading_max = max(self.reading_max, self.reading)
        await trio.sleep(1)
        self.reading -= 1
        self.read.append(ledger_id)
        if ledger_id in self.failures:
            raise self.failures[ledger_id]
        return LedgerMetadata(ensemble_size=1, write_quorum=1, ack_quorum=1, fragments=(Fragment(0, ("a",)),))


async def test_all_ledgers_are_read_once_and_progress_is_named(nursery: trio.Nursery) -> None:
    ledgers = FakeLedgers(150)
    surveys = Surveys(ledgers, nursery, lambda: 5)
    survey = surveys.start()
    assert surveys.start() is survey, "one runs"
    await trio.sleep(4.5)
    assert survey.as_json() | {"limit": 0} == {
        "running": True,
        "startedMs": 5,
        "examined": 64,
        "listed": 150,
        "total": 150,
        "unreadable": 0,
        "limit": 0,
        "problem": "",
    }
    await trio.sleep(9)
    assert [row.ledger_id for row in survey.table.rows()] == list(range(150))
    assert len(ledgers.read) == 150
    assert ledgers.reading_max == 16
    assert not survey.running
    assert surveys.current() is survey


async def test_deleted_and_damaged_ledgers_are_not_examined(nursery: trio.Nursery) -> None:
    ledgers = FakeLedgers(5)
    ledgers.failures = {1: NoSuchLedgerError("gone"), 3: MalformedMetadataError("damaged")}
    survey = Surveys(ledgers, nursery, int).start()
    await trio.sleep(3)
    assert (len(survey.table), survey.total, survey.unreadable) == (3, 4, 1)


async def test_a_survey_that_ends_early_says_so_and_can_be_started_again(nursery: trio.Nursery) -> None:
    ledgers = FakeLedgers(150)
    ledgers.failures = {70: MetadataUnavailableError("ZooKeeper is away")}
    surveys = Surveys(ledgers, nursery, int)
    survey = surveys.start()
    await trio.sleep(15)
    assert len(survey.table) == 64, "a batch is added when it is complete"
    assert (survey.problem, survey.running, survey.total) == ("ZooKeeper is away", False, 150)
    assert surveys.start() is not survey


async def test_no_more_ledgers_than_the_limit_are_examined(
    nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_survey, "LEDGERS_MAX", 10)
    survey = Surveys(FakeLedgers(25), nursery, int).start()
    await trio.sleep(3)
    assert (len(survey.table), survey.total) == (10, 25)


async def test_a_survey_that_nobody_asks_for_is_forgotten(nursery: trio.Nursery) -> None:
    surveys = Surveys(FakeLedgers(1), nursery, int)
    surveys.start()
    await trio.sleep(KEPT_S - 1)
    assert surveys.current() is not None
    await trio.sleep(KEPT_S - 1)
    assert surveys.current() is not None, "it was asked for in the meantime"
    await trio.sleep(KEPT_S + 10)
    assert surveys._last is None
