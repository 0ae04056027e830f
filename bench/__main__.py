"""`python -m bench NAME ...`: run the `main()` of one benchmark."""

from __future__ import annotations

import importlib
import sys

MEASUREMENTS = {
    "vs": "Quire and Apache Pulsar, both standalone and durable, in one interleaved run",
    "tls": "a raw flood over TLS, and with authentication and authorization, beside one without; Apache Pulsar too",
    "cluster": "a broker, three bookies and ZooKeeper, and the repair of ledgers, beside Apache Pulsar's same",
    "spark": "the Spark source and sink beside the official Python client, alone, in one interleaved run",
    "topics": "20,000 topics on one server: memory per topic, stop, and serving them all again",
    "dispatch": "delivery to Shared and Key_Shared consumers, fan-in, drain, many subscriptions, deduplication",
    "acks": "an acknowledgement of a part of a batch, beside up to 100,000 others: CPU, bytes written, the node",
    "connections": "memory of a server per idle connection, and its release",
    "links": "a bookie in the same process, and as a child process",
    "bookie": "one bookie process under a raw generator, beside Apache BookKeeper's",
    "metrics": "a scrape of 100,000 topics, and what recording costs",
    "ledger": "the ledger client on three bookies, ours and Apache BookKeeper's, and with a slow one",
}


def main() -> int:
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in MEASUREMENTS:
        print(
            "usage: scripts/bench NAME [ARGUMENTS]",
            *(f"  {each}  {doc}" for each, doc in MEASUREMENTS.items()),
            sep="\n",
        )
        return 0 if name in ("", "-h", "--help") else 2
    sys.argv = [f"scripts/bench {name}", *sys.argv[2:]]
    return importlib.import_module(f"bench.{name}").main() or 0


if __name__ == "__main__":
    sys.exit(main())
