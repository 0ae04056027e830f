"""A namespace whose topics have deduplication, and what is in them."""

from __future__ import annotations

import pulsar

from tests.support import web
from tests.support.server import StandaloneProcess

NAMESPACE = "public/exact"


def make_deduplicated(server: StandaloneProcess) -> None:
    """Make the namespace, unless another module of the session has."""
    made = web.request("PUT", f"{server.web}/admin/v2/namespaces/{NAMESPACE}")
    assert made.status_code in (204, 409), made.text
    url = f"{server.web}/admin/v2/namespaces/{NAMESPACE}/deduplication"
    web.request("POST", url, json=True).raise_for_status()
    # nothing subscribes, and a restarted server would delete what is in closed ledgers
    kept = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
    web.request("POST", url.replace("deduplication", "retention"), json=kept).raise_for_status()


def values(client: pulsar.Client, *topics: str) -> list[bytes]:
    """Return all values of topics without partitions, in their order. No deduplication of the reader's."""
    found = []
    for topic in topics:
        reader = client.create_reader(topic, pulsar.MessageId.earliest)
        while reader.has_message_available():
            found.append(reader.read_next(120_000).data())
        reader.close()
    return found
