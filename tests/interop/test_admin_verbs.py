"""Every verb of `quire admin` answers on a broker of Quire what it answers on one of Apache Pulsar 4.2.4, but for the
listed differences.

QUIRE_REWRITE_TEXTS=1 writes the present differences into the list, and keeps the reasons in it; the test fails then.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.apache_broker import ApacheBroker
from tests.support.admin_verbs import FOLDER, run_every_verb, shut_down
from tests.support.broker_process import CLUSTER, BrokerCluster
from tests.support.process import start_all
from tests.support.rest_answers import check, without_reason, written
from tests.support.zookeeper import shared_server

LISTED = Path(__file__).parent / "testdata" / "admin_verbs.txt"
SETTINGS: dict[str, object] = {
    "managedLedgerDefaultEnsembleSize": 2,
    "managedLedgerDefaultWriteQuorum": 2,
    "managedLedgerDefaultAckQuorum": 2,
    "transactionCoordinatorEnabled": "true",
    "forceDeleteNamespaceAllowed": "true",
    "forceDeleteTenantAllowed": "true",
}


@pytest.mark.real_clock(seconds=400)
def test_verbs_are_answered_as_by_the_original(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(FOLDER)
    ours = BrokerCluster(tmp_path / "ours", shared_server(), bookies=2)
    theirs = BrokerCluster(tmp_path / "theirs", shared_server(), bookies=2)
    original = ApacheBroker(tmp_path / "pulsar", theirs.metadata_url, **SETTINGS, numHttpServerThreads=8)
    try:
        ours.start_bookies()
        theirs.start_bookies()
        broker = ours.broker(**SETTINGS)
        start_all(broker)
        found = run_every_verb(broker.web, broker.url, CLUSTER) | shut_down(broker.web)
        original.start()
        recorded = tmp_path / "theirs.txt"
        answers = run_every_verb(original.web, original.url, CLUSTER) | shut_down(original.web)
        recorded.write_text(written(answers))
    finally:
        original.kill()
        ours.end()
        theirs.end()
    check(found, recorded, LISTED)
    broker.check_log()


def test_each_difference_has_a_reason() -> None:
    assert without_reason(LISTED) == []
