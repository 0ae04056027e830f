"""The recorder of tests/golden/rest: makes the calls of calls.txt to a broker of Apache Pulsar 4.2.4, and writes its
answers. scripts/record_rest_answers runs it.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.interop.apache_broker import ApacheBroker
from tests.support.broker_process import BrokerCluster
from tests.support.rest_answers import FOLDER, calls, record, written
from tests.support.zookeeper import shared_server

OUTPUT = FOLDER / "pulsar-4.2.4.txt"
SETTINGS: dict[str, object] = {
    "managedLedgerDefaultEnsembleSize": 1,
    "managedLedgerDefaultWriteQuorum": 1,
    "managedLedgerDefaultAckQuorum": 1,
    "forceDeleteNamespaceAllowed": "true",
    "numHttpServerThreads": 8,
}


def main() -> None:
    """Start a cluster with the original's broker, and write its answers."""
    count = sum(1 for _ in calls())
    done: list[str] = []

    def show(name: str) -> None:
        done.append(name)
        print(f"{len(done)}/{count} {name}", flush=True)

    with tempfile.TemporaryDirectory() as folder:
        cluster = BrokerCluster(Path(folder), shared_server(), bookies=2)
        broker = ApacheBroker(Path(folder) / "pulsar", cluster.metadata_url, **SETTINGS)
        try:
            cluster.start_bookies()
            broker.start()
            answers = record(broker.ask, f"127.0.0.1:{broker.web_port}", broker.url, show)
        finally:
            broker.kill()
            cluster.end()
    OUTPUT.write_text(written(answers))


if __name__ == "__main__":
    main()
